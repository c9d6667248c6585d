//! Shows that the checks find deliberate mistakes: builds the patched copy of the workspace, and makes each of them there.
//!
//! It expects the program `simulate` of the same profile beside it.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the command"
)]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use bellwether_sim::mistakes::{FailingTest, Patch, Workspace};

/// In so many tries of a test its mistake has to show: real clocks, on a machine that may be busy.
const TRIES_MAX: u32 = 3;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<()> {
    let workspace = Workspace::default();
    let programs = workspace.build()?;
    let unpatched = std::env::current_exe()?.with_file_name("simulate");
    let differences = differences(&unpatched, &programs.simulate)?;
    ensure!(
        differences.is_empty(),
        "without a mistake, the patched copy differs from the code that it was made of: {differences:#?}"
    );
    println!("the patched copy does the same as the code, unless a mistake is made");
    let status = Command::new(&programs.simulate).arg("--table").status()?;
    ensure!(status.success(), "a mistake was not found");
    let mut unfound = 0;
    for patch in workspace.patches()? {
        for test in patch.tests() {
            match fails(&programs.tests, &patch, test) {
                Ok(()) => println!("{} fails with {}", test.name, patch.name),
                Err(error) => {
                    eprintln!("{error:#}");
                    unfound += 1;
                }
            }
        }
    }
    ensure!(unfound == 0, "{unfound} tests do not find their mistake");
    Ok(())
}

/// The runs without a mistake that have other checksums in the other program, in each of several tries: on a busy machine, a run is now and
/// then not repeated exactly, also by the same program.
fn differences(simulate: &Path, other: &Path) -> Result<BTreeSet<String>> {
    let mut differences: Option<BTreeSet<String>> = None;
    for _ in 0..TRIES_MAX {
        let (ours, theirs) = (sums(simulate)?, sums(other)?);
        ensure!(
            ours.lines().count() == theirs.lines().count(),
            "the programs know other runs"
        );
        let run_of = |line: &str| line.rsplit_once(' ').map(|(run, _)| run.to_owned());
        let pairs = ours.lines().zip(theirs.lines());
        let now = pairs.filter(|(one, two)| one != two);
        let now: BTreeSet<String> = now.filter_map(|(line, _)| run_of(line)).collect();
        let before = differences.take();
        let left = before.map_or(now.clone(), |before| &before & &now);
        if left.is_empty() {
            return Ok(left);
        }
        eprintln!("not repeated: {left:#?}");
        differences = Some(left);
    }
    Ok(differences.unwrap_or_default())
}

/// Checksums of runs without a mistake. Those of torn plans are left out: they are not always the same, by some milliseconds in the pause
/// before a reconnect.
fn sums(simulate: &Path) -> Result<String> {
    let mut command = Command::new(simulate);
    let output = command.args(["--sums", "--seeds", "2"]).output();
    let output = output.with_context(|| simulate.display().to_string())?;
    ensure!(output.status.success(), "--sums: {}", output.status);
    let sums = String::from_utf8(output.stdout)?;
    let stable = sums.lines().filter(|line| !line.contains(" torn "));
    Ok(stable.flat_map(|line| [line, "\n"]).collect())
}

/// Runs a test until it fails as it should.
fn fails(tests: &Path, patch: &Patch, test: &FailingTest) -> Result<()> {
    let mut printed = String::new();
    for _ in 0..TRIES_MAX {
        let output = Command::new(tests)
            .args(["--exact", &test.name, "--nocapture"])
            .env("BELLWETHER_MISTAKE", &patch.name)
            .output()?;
        printed = format!(
            "{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        ensure!(printed.contains("running 1 test"), "no test {}", test.name);
        if !output.status.success() && printed.contains(&test.says) {
            return Ok(());
        }
    }
    bail!(
        "{} does not find {}: in {TRIES_MAX} tries it did not fail with `{}`\n{printed}",
        test.name,
        patch.name,
        test.says
    )
}
