//! Runs several workers in parallel, each in a process with its own session and keeper.

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use anyhow::Context;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use tokio::process::{Child, Command};

use crate::exit::Exit;
use crate::local::PROGRAM;
use crate::signals::Signals;

/// Runs the same command line in `count` workers, and passes signals on. If one of them fails, or cannot be started, the others are stopped too.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(count: u32) -> anyhow::Result<Exit> {
    let mut signals = Signals::for_job()?;
    let mut workers = Vec::new();
    for _ in 0..count {
        let worker = Command::new(PROGRAM)
            .arg0("bellwether")
            .arg(format!("--worker={}", std::process::id()))
            .args(std::env::args_os().skip(1))
            // Signals of the terminal reach this process, which passes them on.
            .process_group(0)
            .spawn();
        match worker {
            Ok(worker) => workers.push(worker),
            Err(error) => {
                pass_on(Signal::TERM, &workers.iter().filter_map(process).collect());
                return Err(error).context("cannot start a worker");
            }
        }
    }
    let mut running: BTreeSet<_> = workers.iter().filter_map(process).collect();
    let ends = workers.iter_mut().map(async |worker| {
        let process = process(worker);
        (process, worker.wait().await)
    });
    let mut ends: FuturesUnordered<_> = ends.collect();
    let mut exit = Exit::Done;
    loop {
        tokio::select! {
            signal = signals.next() => pass_on(signal, &running),
            end = ends.next() => match end {
                None => return Ok(exit),
                Some((ended, status)) => {
                    // Its pid may belong to another process now.
                    if let Some(ended) = ended {
                        running.remove(&ended);
                    }
                    let end = ending(status?);
                    if exit == Exit::Done {
                        exit = end;
                    }
                    if !is_own(end) {
                        pass_on(Signal::TERM, &running);
                    }
                }
            },
        }
    }
}

fn process(worker: &Child) -> Option<i32> {
    worker.id().and_then(|id| i32::try_from(id).ok())
}

fn pass_on(signal: Signal, running: &BTreeSet<i32>) {
    for process in running.iter().copied().filter_map(Pid::from_raw) {
        // It may have ended, and is not reaped yet.
        let _ = kill_process(process, signal);
    }
}

/// Makes a worker end when its parent ends, for whatever reason. `parent` is the process that started it.
pub(crate) fn end_with_parent(parent: i32) -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    // A parent that ended before sends no signal, and the worker has another parent.
    let is_there = getppid().is_some_and(|process| process.as_raw_pid() == parent);
    anyhow::ensure!(is_there, "the process that started this worker has ended");
    Ok(())
}

fn ending(status: ExitStatus) -> Exit {
    match status.code() {
        Some(0) => Exit::Done,
        Some(_) => Exit::of_command(status),
        None => Exit::Signal(status.signal().unwrap_or_default()),
    }
}

/// Whether a worker ended because no work is left, perhaps after commands that failed.
fn is_own(end: Exit) -> bool {
    matches!(end, Exit::Done | Exit::Command(1))
}
