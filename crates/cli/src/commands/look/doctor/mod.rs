//! `bellwether doctor`: looks for problems, and says what to do about them.

mod finding;
mod holds;
mod nodes;
mod servers;
mod times;

use bellwether::error::ConnectError;
use serde_json::{Value, json};

use self::finding::{Finding, Severity};
use crate::args::DoctorArgs;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::{self, Output};

pub(crate) fn run(args: DoctorArgs, output: Output) -> anyhow::Result<Exit> {
    let ended = in_session(&args.tree.connect, output, async |client| {
        let mut findings = servers::look(&args.tree.connect).await?;
        findings.extend(times::look(client, &args.tree.connect).await);
        findings.extend(nodes::look(&client.raw(), &args.path, output).await?);
        findings.extend(holds::look(client, &args.path, args.max_directories).await?);
        report(&findings, &args)
    });
    match ended {
        Err(error) if error.is::<ConnectError>() => {
            let finding = Finding::critical("connect", format!("{error:#}"));
            let advice = "start a server there, or name another one with --connect";
            report(&[finding.advice(advice)], &args)
        }
        ended => ended,
    }
}

/// Prints the findings, and returns the exit code of the worst.
fn report(findings: &[Finding], args: &DoctorArgs) -> anyhow::Result<Exit> {
    let worst = findings.iter().map(|finding| finding.severity).max();
    let worst = worst.unwrap_or(Severity::Fine);
    output::answer(|out| {
        if args.tree.json {
            let findings: Value = findings.iter().map(Finding::object).collect();
            writeln!(
                out,
                "{}",
                json!({"worst": worst.word(), "findings": findings})
            )?;
            return Ok(Exit::Done);
        }
        for finding in findings {
            writeln!(out, "{finding}")?;
        }
        Ok(Exit::Done)
    })?;
    Ok(worst.exit())
}
