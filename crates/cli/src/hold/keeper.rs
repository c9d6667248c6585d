//! The keeper: the process that holds the lock and runs the job, started by the front.

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::io;
use std::pin::pin;
use std::time::Duration;

use bellwether::{FencingToken, Hold, zk};
use futures_util::StreamExt;
use rustix::process::{Signal, getpgid, getppid};
use tokio::time::{Instant, MissedTickBehavior, sleep_until, timeout};

use crate::exit::Exit;
use crate::hold::holds::Holds;
use crate::hold::notice_printer::NoticePrinter;
use crate::hold::outage;
use crate::hold::release_requests::{self, Breaking};
use crate::job::descendants;
use crate::job::link::{News, Order, ToFront, since_boot};
use crate::job::notes::{self, Notes};
use crate::job::process::{Job, JobChange, Variable};
use crate::job::terminal;
use crate::output::Output;
use crate::signals::{self, Signals};
use crate::value::duration;

/// How many times per session timeout the keeper tells the front until when the hold is valid.
const BEATS: u32 = 24;

/// The keeper kills the job this part of a session timeout earlier than the front would. The front assumes then that the keeper is dead.
const AHEAD: u32 = 40;

/// How long after the end of a job the front may pass on the signal that ended it, where the signal was sent to all processes of a service.
const SIGNAL_LAG: Duration = Duration::from_millis(500);

/// The keeper's side: the link to the front, notes of the job, and requests to end.
#[derive(Debug)]
pub(crate) struct Keeper {
    front: ToFront,
    notes: Notes,
    notices: NoticePrinter,
    /// A signal that asked for the end while a job ran, which decides how it ends, or before it was started.
    interrupt: Cell<Option<Signal>>,
    /// When the hold with this token will be broken. It is kept between jobs: a repair runs before the command.
    breaking: RefCell<(Option<FencingToken>, Breaking)>,
    /// Caught and ignored: a signal to all processes of a service also reaches the front, which passes it on.
    _signals: Signals,
}

/// How a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// The command exited, or a signal ended it.
    Job(Exit),
    /// The command could not be started.
    NotStarted(Exit),
    /// The command ran longer than this limit and was stopped, perhaps in the middle of its work.
    TooLong(Duration),
    /// The hold is lost, or about to be lost or broken. The job was stopped.
    Lost,
    /// The front died. The job was killed, perhaps in the middle of its work.
    FrontGone,
}

impl End {
    /// The exit code.
    pub(crate) fn exit(self) -> Exit {
        match self {
            Self::Job(exit) | Self::NotStarted(exit) => exit,
            Self::TooLong(_) => Exit::TooLong,
            Self::Lost => Exit::Lost,
            Self::FrontGone => Exit::Failed,
        }
    }

    /// How a job failed, for people.
    pub(crate) fn reason(self) -> String {
        self.ending().unwrap_or_else(|| self.exit().reason())
    }

    /// How a job ended that may have left work half done, for the next holder. `None` if it did not, or if the hold is lost, so that
    /// nothing can be recorded.
    pub(crate) fn ending(self) -> Option<String> {
        match self {
            Self::Job(exit) => exit.ending(),
            Self::TooLong(limit) => Some(too_long(limit)),
            Self::FrontGone => Some("killed with its bellwether process".to_owned()),
            Self::NotStarted(_) | Self::Lost => None,
        }
    }
}

impl Keeper {
    /// Opens the link to the front.
    pub(crate) fn start() -> anyhow::Result<Self> {
        terminal::write_unstopped()?;
        if let Ok(group) = getpgid(getppid()) {
            terminal::is_of_front(group);
        }
        let signals = Signals::for_job()?;
        let front = ToFront::from_stdin()
            .map_err(|error| anyhow::anyhow!("--keeper is for internal use ({error})"))?;
        Ok(Self {
            front,
            notes: Notes::listen()?,
            notices: NoticePrinter::start(),
            interrupt: Cell::new(None),
            breaking: RefCell::default(),
            _signals: signals,
        })
    }

    /// The variable that tells the job the address of this keeper.
    pub(crate) fn variable(&self) -> Variable {
        (notes::VARIABLE, Some(self.notes.name().into()))
    }

    /// Resolves with the exit code when a signal arrives or the front dies, before or between jobs. Cancel safe.
    pub(crate) async fn interrupted(&self) -> Exit {
        loop {
            match self.front.order().await {
                Order::Signal(Signal::CONT) => {}
                Order::Signal(signal) => return Exit::Signal(signal.as_raw()),
                Order::FrontGone => return Exit::Failed,
            }
        }
    }

    /// The exit code if a signal asked for the end while a job ran or was about to start. No further job is started then.
    pub(crate) fn interrupted_in_job(&self) -> Option<Exit> {
        let signal = self.interrupt.get()?;
        Some(Exit::Signal(signal.as_raw()))
    }

    /// As [`interrupted`](Self::interrupted), but as if the signal had arrived while a job was about to start.
    pub(crate) async fn interrupted_before_job(&self) -> Exit {
        let exit = self.interrupted().await;
        if let Exit::Signal(number) = exit {
            self.interrupt.set(Signal::from_named_raw(number));
        }
        exit
    }

    /// Whether a job that failed was asked to end, by a signal to bellwether or from the keyboard: it is not its own fault then.
    pub(crate) async fn is_asked_to_end(&self, exit: Exit) -> bool {
        if self.interrupt.get().is_none() && matches!(exit, Exit::Signal(_)) {
            let _ = timeout(SIGNAL_LAG, self.interrupted_before_job()).await;
        }
        self.interrupt.get().is_some() || exit.is_by_keyboard()
    }

    /// Waits while the front is stopped, as by Ctrl-Z: a command that the user stopped must not start a job. The hold is kept, as under
    /// a job that is stopped. `None` when the front runs; otherwise the reason not to start the command.
    pub(crate) async fn wait_for_front(&self, holds: Holds<'_>, output: Output) -> Option<End> {
        let mut is_told = false;
        // Checked again after each order: the front passes SIGCONT on.
        while getppid().is_some_and(descendants::is_stopped) {
            if !std::mem::replace(&mut is_told, true) {
                self.notice(
                    format!(
                        "{} is held; the command starts when this job is continued",
                        holds.paths()
                    ),
                    output,
                );
            }
            tokio::select! {
                _ = holds.lost() => return Some(End::Lost),
                order = self.front.order() => match order {
                    Order::Signal(Signal::CONT) => {}
                    Order::Signal(signal) => {
                        self.interrupt.set(Some(signal));
                        return Some(End::NotStarted(Exit::Signal(signal.as_raw())));
                    }
                    Order::FrontGone => return Some(End::FrontGone),
                },
            }
        }
        None
    }

    /// Watches over a job until it ends, or until the first of its holds does.
    pub(crate) async fn attend(
        &self,
        mut job: Job,
        holds: Holds<'_>,
        times: Times,
        zk: &zk::Client,
        output: Output,
    ) -> io::Result<End> {
        // All holds are in one session, so they are valid for the same time.
        let hold = holds.first();
        let mut notes = pin!(self.notes.record(hold));
        let (mut requests, mut breaking) = (holds.revocations(), self.breaking_of(holds));
        let mut broken = self.broken_of(holds).unwrap_or(hold);
        let notice = |text| self.notice(text, output);
        let mut outages = pin!(outage::watch(zk, hold, times.grace, notice));
        let mut beats = tokio::time::interval(times.session_timeout / BEATS);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.hold_for(hold.time_left())?;
        self.front.tell(News::Started(job.group()));
        let mut time_is_up = pin!(after(times.max));
        // For a job that may finish after SIGTERM: when it gets the signal, and then when it is killed.
        let (mut is_told, mut patience) = (false, None);
        let end = loop {
            tokio::select! {
                biased;
                change = job.changed() => match change? {
                    JobChange::Ended(status) => break End::Job(Exit::of_command(status)),
                    JobChange::NotStarted(exit) => break End::NotStarted(exit),
                    JobChange::Stopped => self.front.tell(News::Stopped),
                },
                hold = holds.expiring(times.grace) => {
                    self.notice(format!("{} is lost; stopping the command", hold.path()), output);
                    // A hold that was broken has no time left; the job gets its grace anyway.
                    let left = match hold.time_left() {
                        Duration::ZERO => times.grace + times.ahead(),
                        left => left,
                    };
                    break self.stop(job, left.saturating_sub(times.ahead()), left).await?;
                }
                by = breaking.near(times.grace) => {
                    self.notice(format!("releasing {}; stopping the command", broken.path()), output);
                    let left = hold.time_left().saturating_sub(times.ahead());
                    let left = left.min(by.job.saturating_duration_since(Instant::now()));
                    let front = by.front.saturating_duration_since(Instant::now());
                    let front = front.min(hold.time_left());
                    // At the same time, because the hold is deleted by force soon after.
                    let record = release_requests::record_break(broken, breaking.request());
                    let (end, ()) = tokio::join!(self.stop(job, left, front), record);
                    break end?;
                }
                limit = &mut time_is_up => {
                    self.notice(format!("the command was {}", too_long(limit)), output);
                    let left = hold.time_left().saturating_sub(times.ahead()).min(times.grace);
                    break match self.stop(job, left, hold.time_left()).await? {
                        End::Lost => End::TooLong(limit),
                        end => end,
                    };
                }
                order = self.front.order() => match order {
                    Order::Signal(Signal::TERM) if times.finishes && self.interrupt.get().is_none() => {
                        self.interrupt.set(Some(Signal::TERM));
                        let grace = duration::text(times.grace);
                        self.notice(format!("the command may finish within {grace}"), output);
                        patience = Instant::now().checked_add(times.grace);
                    }
                    Order::Signal(signal) => {
                        tracing::debug!(signal = signal.as_raw(), "passed on to the command");
                        if signals::ends_a_job(signal) {
                            self.interrupt.set(Some(signal));
                        }
                        job.signal(signal);
                    }
                    Order::FrontGone => {
                        job.kill().await?;
                        break End::FrontGone;
                    }
                },
                () = until(patience) => {
                    if std::mem::replace(&mut is_told, true) {
                        job.kill().await?;
                        break End::Job(Exit::Signal(Signal::KILL.as_raw()));
                    }
                    job.signal(Signal::TERM);
                    // A stopped process would not handle it.
                    job.signal(Signal::CONT);
                    patience = Instant::now().checked_add(times.grace);
                }
                Some((asked, request)) = requests.next() => {
                    self.notice(release_requests::notice(asked.path(), &request), output);
                    if breaking.announced(&request) {
                        broken = asked;
                        self.breaking.replace((Some(asked.token()), breaking.clone()));
                    }
                }
                _ = beats.tick() => self.hold_for(hold.time_left())?,
                never = &mut notes => match never {},
                never = &mut outages => match never {},
            }
        };
        self.front.hold_until(None)?;
        self.notices.flush().await;
        Ok(end)
    }

    /// Prints a notice without blocking: a blocked write would delay the heartbeat, and the front would kill the job.
    fn notice(&self, text: String, output: Output) {
        self.notices.print(move || output.notice(text));
    }

    fn breaking_of(&self, holds: Holds<'_>) -> Breaking {
        match self.broken_of(holds) {
            Some(_) => self.breaking.borrow().1.clone(),
            None => Breaking::default(),
        }
    }

    /// The hold that will be broken, if there is one.
    fn broken_of<'a>(&self, holds: Holds<'a>) -> Option<&'a Hold> {
        let token = self.breaking.borrow().0?;
        holds.iter().find(|hold| hold.token() == token)
    }

    /// Stops a job within `left`. If this process fails to, the front does so after `front`.
    async fn stop(&self, job: Job, left: Duration, front: Duration) -> io::Result<End> {
        self.hold_for(front)?;
        job.stop(Instant::now() + left).await?;
        Ok(End::Lost)
    }

    fn hold_for(&self, time: Duration) -> io::Result<()> {
        self.front.hold_until(Some(since_boot() + time))
    }
}

/// How a job ended that ran longer than `--max-time`.
pub(crate) fn too_long(limit: Duration) -> String {
    let limit = match limit.as_secs() {
        0 => format!("{limit:?}"),
        _ => duration::text(limit),
    };
    format!("stopped after {limit} (--max-time)")
}

/// Resolves with the limit when it has passed; never without a limit.
async fn after(limit: Option<Duration>) -> Duration {
    until(limit.and_then(|limit| Instant::now().checked_add(limit))).await;
    limit.unwrap_or_default()
}

/// Resolves at a time; never without one.
async fn until(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => pending().await,
    }
}

/// The time limits of a job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Times {
    pub(crate) session_timeout: Duration,
    /// How long the job may take to end after SIGTERM.
    pub(crate) grace: Duration,
    /// How long the job may run.
    pub(crate) max: Option<Duration>,
    /// Whether the job may go on for a grace before it gets a SIGTERM that was sent to bellwether.
    pub(crate) finishes: bool,
}

impl Times {
    /// How much earlier than the front the keeper kills a job.
    fn ahead(self) -> Duration {
        self.session_timeout / AHEAD
    }
}
