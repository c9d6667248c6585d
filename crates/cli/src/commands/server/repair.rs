//! `bellwether serve --repair`: cuts off data that a server cannot use, after confirmation.

use std::io::{self, BufRead, IsTerminal};
use std::path::Path;

use anyhow::Context;
use bellwether_server::Config;
use bellwether_server::files::Repair;

use crate::exit::Exit;
use crate::output::Output;
use crate::output::refusal::Refusal;

pub(crate) fn run(config: &Config, yes: bool, output: Output) -> anyhow::Result<Exit> {
    let Some(data) = config.data_dir.as_deref() else {
        output.error(&anyhow::anyhow!("no data folder is named"));
        output.hint("name it with --data, or with --config and dataDir in the file");
        return Ok(Exit::Usage);
    };
    let logs = config.data_log_dir.as_deref().unwrap_or(data);
    for folder in [data, logs] {
        let exists = folder.join("version-2").is_dir();
        anyhow::ensure!(exists, "there are no data files in {}", folder.display());
    }
    let repair = Repair::plan(data, logs).context("nothing can be repaired here")?;
    let Some(wrong) = repair.wrong() else {
        output.say("nothing to repair: a server can start from these files");
        return Ok(Exit::Done);
    };
    output.say(format_args!("{}: {wrong}", place(data, logs)));
    for step in repair.steps() {
        output.say(format_args!("would {step}"));
    }
    output.say("data that is cut off or set aside is lost for clients; a backup may still have it");
    if !yes && !ask(output)? {
        output.say("nothing was changed");
        return Ok(Exit::No);
    }
    let last = repair.apply().context("the repair was not finished")?;
    output.say(format_args!(
        "repaired; start the server without --repair. Zxids and fencing tokens continue above {last:#x}"
    ));
    Ok(Exit::Done)
}

fn ask(output: Output) -> anyhow::Result<bool> {
    if !io::stdin().is_terminal() {
        let what = "stdin is not a terminal, so there is no confirmation";
        let refusal = Refusal::usage(what).hint("--yes repairs without confirmation");
        return Err(refusal.into());
    }
    output.ask("repair? [y/N] ");
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

fn place(data: &Path, logs: &Path) -> String {
    if data == logs {
        data.display().to_string()
    } else {
        format!("{} and {}", data.display(), logs.display())
    }
}
