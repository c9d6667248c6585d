//! The process that becomes a job: it arranges to be killed with the keeper, and executes the command in its place.
//!
//! Front and keeper end the job if one of them is killed. If both are, only the kernel can: `PR_SET_PDEATHSIG` kills a process when its
//! parent ends. A process can set it only for itself, and between fork and exec only unsafe code could run; so the keeper starts this
//! program again, which sets it and executes the command, with the same process id.
//!
//! It is in force for the command itself, not for processes that the command starts, and the kernel clears it if the command is a
//! set-user-ID program or has file capabilities, such as `sudo`.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, ExitStatus};

use rustix::process::{Signal, getppid, set_parent_process_death_signal};

use crate::exit::Exit;
use crate::job::link::FromKeeper;
use crate::local::PROGRAM;
use crate::output::Output;
use crate::output::refusal::Refusal;

/// The first argument of such a process. The id of the keeper and the command follow.
const FLAG: &str = "--job";

/// This program as the process that becomes the job of this process.
pub(super) fn command(job: &[OsString]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.arg0("bellwether").arg(FLAG);
    command.arg(std::process::id().to_string()).args(job);
    command
}

/// Executes the job if this process was started for that, and does not return then unless it fails.
pub(crate) fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != FLAG {
        return None;
    }
    let output = Output::new(true);
    let exit = match FromKeeper::from_stdin() {
        Ok(keeper) => {
            let Err(error) = execute(arguments);
            keeper.tell_failure();
            output.fail(&error)
        }
        Err(error) => output.fail(&anyhow::anyhow!("{FLAG} is for internal use ({error})")),
    };
    Some(exit.into())
}

/// Why a process that could not execute its command ended.
pub(super) fn failure(status: ExitStatus) -> Exit {
    let failures = [Exit::NotFound, Exit::NotRunnable];
    let mut failures = failures.into_iter();
    let failure = failures.find(|exit| status.code() == Some(exit.code().into()));
    failure.unwrap_or(Exit::Failed)
}

/// Executes the command, which follows the id of the keeper.
fn execute(mut arguments: impl Iterator<Item = OsString>) -> anyhow::Result<Infallible> {
    let keeper = arguments.next().unwrap_or_default();
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A keeper that ended before sends no signal, and this process has another parent.
    let is_there = getppid().is_some_and(|parent| *keeper == *parent.to_string());
    anyhow::ensure!(is_there, "the process that keeps the lock has ended");
    let program = arguments.next().unwrap_or_default();
    let error = Command::new(&program).args(arguments).exec();
    let exit = match error.kind() {
        ErrorKind::NotFound => Exit::NotFound,
        _ => Exit::NotRunnable,
    };
    let what = format!("cannot run {}", program.display());
    Err(anyhow::Error::new(error).context(Refusal::failed(what).with_exit(exit)))
}
