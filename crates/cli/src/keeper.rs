//! The process that holds a lock and runs a job under it, behind the front.

use std::io;
use std::pin::pin;
use std::time::Duration;

use bellwether::Hold;
use rustix::process::Signal;
use tokio::time::{Instant, MissedTickBehavior};

use crate::exit::Exit;
use crate::job::{Change, Job, Variable};
use crate::link::{News, Order, ToFront, since_boot};
use crate::notes::{self, Notes};
use crate::output::Output;
use crate::signals::Signals;
use crate::terminal;

/// How often the front is told how long the hold is good for, in a session timeout.
const BEATS: u32 = 24;

/// What a keeper hears from its front.
#[derive(Debug)]
pub(crate) struct Keeper {
    front: ToFront,
    notes: Notes,
    /// Caught and left alone: whoever signals all processes of a service reaches the front too, which passes it on.
    _signals: Signals,
}

/// How the time with a job has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The command has ended by itself, or by a signal.
    Job(Exit),
    /// The command could not be started.
    NotStarted(Exit),
    /// The hold is about to be lost, or is lost. The job is gone.
    Lost,
    /// The front has died. The job is gone, perhaps in the middle of its work.
    FrontGone,
}

impl End {
    /// The exit that it means.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Job(exit) | Self::NotStarted(exit) => exit,
            Self::Lost => Exit::Lost,
            Self::FrontGone => Exit::Failed,
        }
    }
}

impl Keeper {
    /// Takes up the link to the front.
    pub(crate) fn start() -> anyhow::Result<Self> {
        terminal::write_unstopped()?;
        let signals = Signals::for_job()?;
        let front = ToFront::from_stdin()
            .map_err(|error| anyhow::anyhow!("a keeper is started by its front only ({error})"))?;
        Ok(Self {
            front,
            notes: Notes::listen()?,
            _signals: signals,
        })
    }

    /// The variable by which a job finds this keeper.
    pub(crate) fn variable(&self) -> Variable {
        (notes::VARIABLE, Some(self.notes.name().into()))
    }

    /// Resolves when there is no more use in waiting for a hold, with the exit that it means. Cancel safe.
    pub(crate) async fn told_to_end(&self) -> Exit {
        loop {
            match self.front.order().await {
                Order::Signal(Signal::CONT) => {}
                Order::Signal(signal) => return Exit::Signal(signal.as_raw()),
                Order::FrontGone => return Exit::Failed,
            }
        }
    }

    /// Stays with a job until it ends, or until the hold does.
    pub(crate) async fn attend(
        &self,
        mut job: Job,
        hold: &Hold,
        times: Times,
        output: Output,
    ) -> io::Result<End> {
        let mut notes = pin!(self.notes.record(hold));
        let mut beats = tokio::time::interval(times.session_timeout / BEATS);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.hold_for(hold.time_left())?;
        self.front.tell(News::Started(job.group()));
        let end = loop {
            tokio::select! {
                biased;
                change = job.changed() => match change? {
                    Change::Ended(status) => break End::Job(Exit::of_command(status)),
                    Change::Stopped => self.front.tell(News::Stopped),
                },
                () = hold.expiring(times.grace) => {
                    output.notice(format_args!("{} is lost; stopping the command", hold.path()));
                    // What another hand has ended is over already; the job gets its grace all the same.
                    let left = match hold.time_left() {
                        Duration::ZERO => times.grace,
                        left => left,
                    };
                    self.hold_for(left)?;
                    job.stop(Instant::now() + left).await?;
                    break End::Lost;
                }
                order = self.front.order() => match order {
                    Order::Signal(signal) => {
                        tracing::debug!(signal = signal.as_raw(), "passed on to the command");
                        job.signal(signal);
                    }
                    Order::FrontGone => {
                        job.kill().await?;
                        break End::FrontGone;
                    }
                },
                _ = beats.tick() => self.hold_for(hold.time_left())?,
                never = &mut notes => match never {},
            }
        };
        self.front.hold_until(None)?;
        Ok(end)
    }

    fn hold_for(&self, time: Duration) -> io::Result<()> {
        self.front.hold_until(Some(since_boot() + time))
    }
}

/// The times of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) session_timeout: Duration,
    /// How long the job has to end by itself when the hold does.
    pub(crate) grace: Duration,
}
