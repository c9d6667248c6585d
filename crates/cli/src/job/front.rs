//! The front: the process that the user started. It starts the keeper, which holds the lock and runs the job.
//!
//! ```text
//! shell ── front ── keeper ── job
//!          in the   in a      in a process group of its own, in the
//!          group of group of  foreground of the terminal while it runs
//!          the      its own
//!          shell
//! ```
//!
//! Front and keeper watch each other, so that the job never survives the death of one of them: when the front dies, the keeper kills
//! the job; when the keeper dies, the front adopts the job and kills it. Ctrl-Z stops the front, as the shell expects, while the keeper
//! continues to send heartbeats. If the keeper itself is stopped, the front kills the job before the server can grant the lock to the
//! next holder.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{
    Pid, Signal, WaitStatus, getpgrp, kill_current_process_group, kill_process_group,
};
use tokio::time::{Instant, sleep_until};

use crate::exit::Exit;
use crate::job::descendants::Descendants;
use crate::job::link::{News, ToKeeper, since_boot};
use crate::job::terminal::Terminal;
use crate::local::PROGRAM;
use crate::output::Output;
use crate::signals::Signals;

/// How often to check the deadline of the hold: a timer does not count the time while the machine is suspended.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs the same command line again in a keeper.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(output: Output) -> anyhow::Result<Exit> {
    let mut signals = Signals::for_job()?;
    let descendants = Descendants::adopt()?;
    let (link, stdin) = ToKeeper::carrying(std::io::stdin())?;
    let keeper = Command::new(PROGRAM)
        .arg0("bellwether")
        .arg("--keeper")
        .args(std::env::args_os().skip(1))
        .stdin(stdin)
        .process_group(0)
        .spawn()
        .context("cannot start the keeper of the job")?;
    let mut front = Front {
        keeper: Pid::from_child(&keeper),
        descendants,
        link,
        terminal: Terminal::of_front(getpgrp()),
        job: None,
    };
    let exit = front.watch(&mut signals, output).await;
    if let Some((terminal, job)) = front.terminal.as_ref().zip(front.job) {
        terminal.take_back(job);
    }
    exit
}

struct Front {
    keeper: Pid,
    descendants: Descendants,
    link: ToKeeper,
    terminal: Option<Terminal>,
    /// The group of the job, once it runs.
    job: Option<Pid>,
}

impl Front {
    /// Watches until the keeper ends, or until the hold ends without any action of the keeper.
    async fn watch(&mut self, signals: &mut Signals, output: Output) -> anyhow::Result<Exit> {
        let reason = loop {
            // The clock first: this process may be stopped in between, and the keeper's deadline must be the more recent value.
            let now = since_boot();
            let left = match self.link.held_until()? {
                Some(time) => time.saturating_sub(now),
                None => Duration::MAX,
            };
            if left.is_zero() {
                break Err("the process that keeps the lock does not answer");
            }
            tokio::select! {
                biased;
                news = self.link.news() => match news? {
                    Some(News::Started(job)) => self.job = Some(job),
                    Some(News::Stopped) => self.stop(),
                    // The keeper is ending.
                    None => break self.end_of_keeper().await?,
                },
                signal = signals.next() => self.link.signal(signal),
                () = sleep_until(Instant::now() + left.min(LOOK_EVERY)) => {}
            }
        };
        match reason {
            Ok(exit) => Ok(exit),
            Err(reason) => {
                let held = self.link.held_until()?.is_some();
                if let Some(job) = self.job {
                    // First the process group; processes that left it are found below. An empty group is no error.
                    let _ = kill_process_group(job, Signal::KILL);
                }
                output.error(&anyhow::anyhow!("{reason}; the job is killed"));
                self.descendants.kill_all().await?;
                Ok(if held { Exit::Lost } else { Exit::Failed })
            }
        }
    }

    /// How the keeper ended: with an exit code, or with the reason to kill the job.
    async fn end_of_keeper(&mut self) -> anyhow::Result<Result<Exit, &'static str>> {
        loop {
            let (process, status) = self.descendants.changed().await?;
            if process == self.keeper && !status.stopped() {
                return Ok(match exit_status(status).code() {
                    Some(_) => Ok(Exit::of_command(exit_status(status))),
                    None => Err("the process that keeps the lock was killed"),
                });
            }
        }
    }

    /// Stops this process group, as the terminal would have done if the job had no process group of its own. Returns when the group is
    /// continued; at once if there is no shell that could continue it, or if the shell has brought it to the foreground since the job was
    /// stopped for being in the background.
    fn stop(&mut self) {
        if let Some((terminal, job)) = self.terminal.as_ref().zip(self.job) {
            if terminal.take_back(job) {
                // A process may always signal its own group.
                let _ = kill_current_process_group(Signal::TSTP);
            } else {
                terminal.stop_in_background();
            }
        }
        self.link.signal(Signal::CONT);
    }
}

fn exit_status(status: WaitStatus) -> ExitStatus {
    ExitStatus::from_raw(status.as_raw())
}
