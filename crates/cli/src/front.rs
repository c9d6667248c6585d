//! The process that the user has started, in front of the keeper, which holds the lock and runs the job.
//!
//! ```text
//! shell ── front ── keeper ── job
//!          in the   a group   a group of its own, in the foreground
//!          group of of its    of the terminal while it runs
//!          the shell's own
//!          choice
//! ```
//!
//! Each of the two watches the other, so that no single death leaves the job behind: when the front dies, the keeper
//! kills the job; when the keeper dies, its orphans fall to the front, which kills them. The front may be stopped by
//! Ctrl-Z, as the shell expects, while the keeper's heartbeat goes on. A keeper that is stopped says nothing any more,
//! and the front kills the job before the server can have granted the next.

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{
    Pid, Signal, WaitStatus, getpgrp, kill_current_process_group, kill_process_group,
};
use tokio::time::{Instant, sleep_until};

use crate::exit::Exit;
use crate::family::Family;
use crate::link::{News, ToKeeper, since_boot};
use crate::output::Output;
use crate::signals::Signals;
use crate::terminal::Terminal;

/// How often the time of the hold is looked at: a timer does not count the time that the machine sleeps.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Runs this very command line again in a keeper.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(output: Output) -> anyhow::Result<Exit> {
    let mut signals = Signals::for_job()?;
    let family = Family::adopt()?;
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
        family,
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

/// This program, even if its file has been replaced meanwhile.
pub(crate) const PROGRAM: &str = "/proc/self/exe";

struct Front {
    keeper: Pid,
    family: Family,
    link: ToKeeper,
    terminal: Option<Terminal>,
    /// The group of the job, once it runs.
    job: Option<Pid>,
}

impl Front {
    /// Stays until the keeper ends, or until the hold does and the keeper has done nothing about it.
    async fn watch(&mut self, signals: &mut Signals, output: Output) -> anyhow::Result<Exit> {
        let reason = loop {
            // The clock first: this process may be stopped in between, and what the keeper says must be the later word.
            let now = since_boot();
            let left = match self.link.held_until()? {
                Some(time) => time.saturating_sub(now),
                None => Duration::MAX,
            };
            if left.is_zero() {
                break Err("the keeper of the job does not answer");
            }
            tokio::select! {
                biased;
                news = self.link.news() => match news? {
                    Some(News::Started(job)) => self.job = Some(job),
                    Some(News::Stopped) => self.stop(),
                    // It is ending.
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
                    // At once, before those are looked for who have left the group. Nobody is left at worst.
                    let _ = kill_process_group(job, Signal::KILL);
                }
                output.error(&anyhow::anyhow!("{reason}; the job is killed"));
                self.family.kill_all().await?;
                Ok(if held { Exit::Lost } else { Exit::Failed })
            }
        }
    }

    /// How the keeper has ended: with an exit code, or else the job has to be ended too.
    async fn end_of_keeper(&mut self) -> anyhow::Result<Result<Exit, &'static str>> {
        loop {
            let (process, status) = self.family.changed().await?;
            if process == self.keeper && !status.stopped() {
                return Ok(match exit_status(status).code() {
                    Some(_) => Ok(Exit::of_command(exit_status(status))),
                    None => Err("the keeper of the job was killed"),
                });
            }
        }
    }

    /// Stops this process and those around it, as the terminal would have done had the job not had a group of its own.
    /// Returns when they go on; at once if there is no shell that could let them, or if the shell has brought them to the
    /// front since the job was stopped for being in the background: who is in the background stops for that alone.
    fn stop(&mut self) {
        if let Some((terminal, job)) = self.terminal.as_ref().zip(self.job) {
            if terminal.take_back(job) {
                // Whoever is in the own group may be signalled.
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
