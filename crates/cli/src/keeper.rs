//! The process that holds a lock and runs a job under it, behind the front.

use std::cell::{Cell, RefCell};
use std::io;
use std::pin::pin;
use std::time::Duration;

use bellwether::Hold;
use futures_util::StreamExt;
use rustix::process::{Signal, getppid};
use tokio::time::{Instant, MissedTickBehavior};

use crate::aside::Aside;
use crate::asked::{self, Breaking};
use crate::exit::Exit;
use crate::family;
use crate::job::{Change, Job, Variable};
use crate::link::{News, Order, ToFront, since_boot};
use crate::notes::{self, Notes};
use crate::output::Output;
use crate::signals::{self, Signals};
use crate::terminal;

/// How often the front is told how long the hold is good for, in a session timeout.
const BEATS: u32 = 24;

/// The keeper kills the job so much before the front would, as a part of the session timeout: the front takes it for dead then.
const AHEAD: u32 = 40;

/// What a keeper hears from its front.
#[derive(Debug)]
pub(crate) struct Keeper {
    front: ToFront,
    notes: Notes,
    aside: Aside,
    /// The signal by which somebody has asked for the end while a job ran. The job may end in its own way.
    asked_to_end: Cell<Option<Signal>>,
    /// When the hold of this token will be taken away. It may have another job after this one: a repair comes first.
    breaking: RefCell<(i64, Breaking)>,
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
    /// The hold is about to be lost, is lost, or has to be let go of. The job is gone.
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

    /// How a job ended that may have left something half done, as the next holder is told; `None` if it did not, or if
    /// nothing can be recorded any more.
    pub(crate) fn ending(self) -> Option<String> {
        match self {
            Self::Job(exit) => exit.ending(),
            Self::FrontGone => Some("killed with its bellwether".to_owned()),
            Self::NotStarted(_) | Self::Lost => None,
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
            aside: Aside::start(),
            asked_to_end: Cell::new(None),
            breaking: RefCell::default(),
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

    /// The exit that it means if somebody has asked for the end while a job ran: there is to be no other one.
    pub(crate) fn was_told_to_end(&self) -> Option<Exit> {
        let signal = self.asked_to_end.get()?;
        Some(Exit::Signal(signal.as_raw()))
    }

    /// Waits while the front is stopped, as by Ctrl-Z: what a user has stopped must not start a command. What is held stays held,
    /// as under a job that is stopped. `None` when the front runs; else why the command is not to be started.
    pub(crate) async fn wait_for_front(&self, hold: &Hold, output: Output) -> Option<End> {
        let mut is_told = false;
        // Looked at again after each order: SIGCONT to the front is passed on.
        while getppid().is_some_and(family::is_stopped) {
            if !std::mem::replace(&mut is_told, true) {
                self.notice(
                    format!(
                        "{} is held; the command starts when this one goes on",
                        hold.path()
                    ),
                    output,
                );
            }
            tokio::select! {
                () = hold.lost() => return Some(End::Lost),
                order = self.front.order() => match order {
                    Order::Signal(Signal::CONT) => {}
                    Order::Signal(signal) => {
                        return Some(End::NotStarted(Exit::Signal(signal.as_raw())));
                    }
                    Order::FrontGone => return Some(End::FrontGone),
                },
            }
        }
        None
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
        let (mut requests, mut breaking) = (hold.revocations(), self.breaking_of(hold));
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
                    self.notice(format!("{} is lost; stopping the command", hold.path()), output);
                    // What another hand has ended is over already; the job gets its grace all the same.
                    let left = match hold.time_left() {
                        Duration::ZERO => times.grace,
                        left => left.saturating_sub(times.ahead()),
                    };
                    break self.stop(job, left, times).await?;
                }
                by = breaking.near(times.grace) => {
                    self.notice(format!("letting go of {}; stopping the command", hold.path()), output);
                    let left = hold.time_left().saturating_sub(times.ahead());
                    let left = left.min(by.saturating_duration_since(Instant::now()));
                    let end = self.stop(job, left, times).await?;
                    if let Some(request) = breaking.request() {
                        asked::record_break(hold, request).await;
                    }
                    break end;
                }
                order = self.front.order() => match order {
                    Order::Signal(signal) => {
                        tracing::debug!(signal = signal.as_raw(), "passed on to the command");
                        if signals::ends_a_job(signal) {
                            self.asked_to_end.set(Some(signal));
                        }
                        job.signal(signal);
                    }
                    Order::FrontGone => {
                        job.kill().await?;
                        break End::FrontGone;
                    }
                },
                Some(request) = requests.next() => {
                    self.notice(asked::told(hold.path(), &request), output);
                    breaking.announced(&request);
                    self.breaking.replace((hold.token(), breaking.clone()));
                }
                _ = beats.tick() => self.hold_for(hold.time_left())?,
                never = &mut notes => match never {},
            }
        };
        self.front.hold_until(None)?;
        self.aside.said().await;
        Ok(end)
    }

    /// While a job runs, a write that waits would stop the beats, and the front would kill the job.
    fn notice(&self, text: String, output: Output) {
        self.aside.say(move || output.notice(text));
    }

    fn breaking_of(&self, hold: &Hold) -> Breaking {
        match &*self.breaking.borrow() {
            (token, breaking) if *token == hold.token() => breaking.clone(),
            _ => Breaking::default(),
        }
    }

    /// Ends a job within so long, or else the front does.
    async fn stop(&self, job: Job, left: Duration, times: Times) -> io::Result<End> {
        self.hold_for(left + times.ahead())?;
        job.stop(Instant::now() + left).await?;
        Ok(End::Lost)
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

impl Times {
    /// How much earlier the keeper kills a job than the front would.
    fn ahead(self) -> Duration {
        self.session_timeout / AHEAD
    }
}
