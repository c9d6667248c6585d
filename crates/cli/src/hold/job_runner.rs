//! Runs commands under holds: the session, the keeper and the options of a job.
//!
//! The command that uses it acquires and releases the hold.

use std::ffi::OsString;
use std::pin::pin;
use std::time::Duration;

use bellwether::{Client, ClientState, Connect, Hold};
use futures_util::future::join_all;
use rustix::process::{Pid, getppid};
use tokio::time::timeout;
use tracing::field::Empty;
use tracing::{Instrument, info_span};

use crate::args::JobArgs;
use crate::connect;
use crate::connect::patience::Patience;
use crate::connect::session::close;
use crate::exit::Exit;
use crate::hold::holds::Holds;
use crate::hold::keeper::{End, Keeper, Times};
use crate::job::descendants::Descendants;
use crate::job::process::{Job, Variable};
use crate::output::Output;
use crate::output::refusal::Refusal;
use crate::traces;
use crate::value::duration;

/// The default grace; at most a third of the session timeout.
const GRACE: Duration = Duration::from_secs(3);

/// How long an ensemble is usually without a leader, at most.
const ELECTION: Duration = Duration::from_secs(5);

/// The pause after a session could not be opened.
const REST: Duration = Duration::from_secs(1);

/// How long a worker that is stopped waits for a claim that may be under way.
const CLAIM_LAG: Duration = Duration::from_millis(200);

/// The time limit for recording how a job ended.
pub(crate) const ENDING_LIMIT: Duration = Duration::from_secs(2);

/// The variable that makes a job within a job count as the same owner.
const OWNER: &str = "BELLWETHER_OWNER";

/// The owner of waits and holds in the search for deadlocks: the job around this one, if there is one.
pub(crate) fn owner(client: &Client) -> String {
    owner_around().unwrap_or_else(|| format!("{:x}", client.session_id()))
}

fn owner_around() -> Option<String> {
    std::env::var(OWNER).ok()
}

/// Sets what people read about the holds of a command: what it runs, its message, and the job around it.
pub(crate) fn presented(mut connect: Connect, args: &JobArgs, command: &[OsString]) -> Connect {
    // Only the program: its arguments may be secret.
    if let Some(program) = command.first() {
        connect = connect.command(program.to_string_lossy());
    }
    if let Some(message) = &args.message {
        connect = connect.message(message);
    }
    match owner_around() {
        Some(owner) => connect.owner(owner),
        None => connect,
    }
}

#[derive(Debug)]
pub(crate) struct JobRunner<'a> {
    args: &'a JobArgs,
    command: &'a [OsString],
    keeper: Keeper,
    client: Client,
    /// Whether jobs may finish when bellwether gets SIGTERM.
    lets_finish: bool,
    pub(crate) output: Output,
}

/// Opens a job runner, does `work` there, and waits for the end of its session.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn with_job_runner<'a>(
    args: &'a JobArgs,
    command: &'a [OsString],
    patience: Patience,
    output: Output,
    work: impl AsyncFnOnce(&mut JobRunner<'a>) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let keeper = Keeper::start()?;
    let options = |connect| of_front(presented(connect, args, command));
    let client = tokio::select! {
        client = patience.connect(&args.connect, output, options) => client?,
        exit = keeper.interrupted() => return Ok(exit),
    };
    let mut job_runner = JobRunner {
        args,
        command,
        keeper,
        client,
        lets_finish: false,
        output,
    };
    // Wrong arguments are reported before any wait.
    let exit = match job_runner.times() {
        Ok(times) => {
            job_runner.warn_of_short_timeout(times);
            work(&mut job_runner).await
        }
        Err(error) => Err(error),
    };
    close(job_runner.client).await;
    exit
}

/// Shows the front as the process of a hold: it passes signals on to the job, while the keeper ignores them.
fn of_front(connect: Connect) -> Connect {
    let front = getppid().map_or(0, Pid::as_raw_pid);
    connect.process(front.unsigned_abs())
}

impl JobRunner<'_> {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Awaits work before or after a job. `Err` with the exit code if a signal arrives or the front dies.
    pub(crate) async fn unless_interrupted<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Exit> {
        tokio::select! {
            done = work => Ok(done),
            exit = self.keeper.interrupted() => Err(exit),
        }
    }

    /// Awaits an item to work on. `Err` with the exit code if a signal arrives or the front dies; but a claim that is under way is awaited,
    /// because otherwise it would count as an attempt.
    pub(crate) async fn unless_stopped<T>(&self, take: impl Future<Output = T>) -> Result<T, Exit> {
        let mut take = pin!(take);
        let exit = tokio::select! {
            biased;
            taken = &mut take => return Ok(taken),
            exit = self.keeper.interrupted_before_job() => exit,
        };
        timeout(CLAIM_LAG, take).await.map_err(|_| exit)
    }

    /// From now on, a job may finish when bellwether gets SIGTERM: it gets the signal itself only after its grace.
    pub(crate) fn let_jobs_finish(&mut self) {
        self.lets_finish = true;
    }

    /// Pauses. `Err` with the exit code if a signal arrives or the front dies.
    pub(crate) async fn pause(&self, time: Duration) -> Result<(), Exit> {
        match timeout(time, self.keeper.interrupted()).await {
            Ok(exit) => Err(exit),
            Err(_) => Ok(()),
        }
    }

    /// The exit code if a signal asked for the end while a job ran or was about to start.
    pub(crate) fn interrupted_in_job(&self) -> Option<Exit> {
        self.keeper.interrupted_in_job()
    }

    /// Whether an attempt that ended like this does not count: the command could not be run, or was asked to end.
    pub(crate) async fn is_uncounted(&self, end: End) -> bool {
        match end {
            End::NotStarted(_) => true,
            End::Job(exit) => self.keeper.is_asked_to_end(exit).await,
            _ => false,
        }
    }

    /// Runs a command under a hold until it ends or the hold does. `variables` are added to those of the hold, or replace them. No
    /// process of the job outlives the hold.
    pub(crate) async fn run(
        &self,
        command: &[OsString],
        hold: &Hold,
        variables: impl IntoIterator<Item = Variable>,
    ) -> anyhow::Result<End> {
        self.run_under(command, Holds::new(&[hold]), variables)
            .await
    }

    /// As [`run`](Self::run), under several holds. The command is stopped when the first of them ends.
    pub(crate) async fn run_under(
        &self,
        command: &[OsString],
        holds: Holds<'_>,
        variables: impl IntoIterator<Item = Variable>,
    ) -> anyhow::Result<End> {
        let program = command.first().map(OsString::as_os_str).unwrap_or_default();
        let span = info_span!(
            "job",
            // Its arguments may be secret.
            program = %program.display(),
            outcome = Empty
        );
        let run = self.run_in_span(command, holds, variables);
        let end = run.instrument(span.clone()).await?;
        span.record("outcome", end.reason());
        Ok(end)
    }

    async fn run_in_span(
        &self,
        command: &[OsString],
        holds: Holds<'_>,
        variables: impl IntoIterator<Item = Variable>,
    ) -> anyhow::Result<End> {
        let mut all = vec![
            (OWNER, Some(owner(&self.client).into())),
            self.keeper.variable(),
        ];
        let servers = connect::variables(&self.args.connect)?;
        all.extend(servers.into_iter().map(|(name, value)| (name, Some(value))));
        all.extend(holds.variables());
        all.extend(traces::variables());
        all.extend(variables);
        if let Some(end) = self.keeper.wait_for_front(holds, self.output).await {
            return Ok(end);
        }
        if let Some(exit) = self.interrupted_in_job() {
            return Ok(End::NotStarted(exit));
        }
        // This process may have been stopped or blocked since the grant, even by a notice on a terminal that is paused.
        if let Some(lost) = holds.iter().find(|hold| !hold.is_held()) {
            let path = lost.path();
            self.output
                .notice(format_args!("{path} is lost; the command is not run"));
            return Ok(End::Lost);
        }
        match Job::start(command, &all, Descendants::adopt()?) {
            Ok(job) => {
                let times = self.times()?;
                let zk = self.client.raw();
                let end = self.keeper.attend(job, holds, times, &zk, self.output);
                let end = end.await?;
                if let Some(how) = end.ending() {
                    join_all(holds.iter().map(|hold| tell_ending(hold, &how))).await;
                }
                Ok(end)
            }
            Err(error) => {
                let error = anyhow::Error::new(error);
                self.output
                    .error(&error.context("cannot start the command"));
                Ok(End::NotStarted(Exit::NotRunnable))
            }
        }
    }

    /// Awaits the release of a hold, or the settlement of an item. Returns `exit` if it was acknowledged in time.
    pub(crate) async fn settle<E>(
        &self,
        path: &str,
        release: impl Future<Output = Result<(), E>>,
        exit: Exit,
    ) -> Exit
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        settle(
            path,
            release,
            self.client.session_timeout(),
            exit,
            self.output,
        )
        .await
    }

    /// Opens a new session if the old one has ended, however long it takes. `Err` with the exit code if a signal arrives.
    pub(crate) async fn renew(&mut self) -> Result<(), Exit> {
        let mut told = false;
        while self.client.state() == ClientState::NoSession {
            let opened = self.unless_interrupted(connect::open(
                &self.args.connect,
                self.output,
                |connect| of_front(presented(connect, self.args, self.command)),
            ));
            match opened.await? {
                Ok(client) => self.client = client,
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        self.output.error(&error);
                    }
                    self.pause(REST).await?;
                }
            }
        }
        Ok(())
    }

    /// In an ensemble, a job is stopped after half a session timeout, less its grace, without an answer. That should be longer than an
    /// election.
    fn warn_of_short_timeout(&self, times: Times) {
        let outage_max = self.client.outage_max().saturating_sub(times.grace);
        if self.client.is_ensemble() && outage_max < ELECTION {
            self.output.notice(format_args!(
                "the command will be stopped if the servers have no leader for {}; use a longer --session-timeout or a shorter --grace",
                duration::text(outage_max)
            ));
        }
    }

    /// The time limits of a job. With a grace of more than a third of the session timeout, it would be stopped for short outages.
    fn times(&self) -> anyhow::Result<Times> {
        let session_timeout = self.client.session_timeout();
        let longest = session_timeout / 3;
        let grace = match self.args.grace {
            None => GRACE.min(longest),
            Some(grace) if grace <= longest => grace,
            Some(grace) => {
                let what = format!(
                    "a grace of {grace:?} is more than a third of the session timeout, {session_timeout:?}"
                );
                let seconds = (grace * 3).as_secs_f64().ceil();
                let hint = format!("use --session-timeout {seconds}s, or a shorter grace");
                return Err(Refusal::usage(what).hint(hint).into());
            }
        };
        Ok(Times {
            session_timeout,
            grace,
            // As for `timeout`, 0 means that there is no limit.
            max: self.args.max_time.filter(|limit| !limit.is_zero()),
            finishes: self.lets_finish,
        })
    }
}

/// Records how a job ended whose hold is not released. If that fails, the next holder only learns that there was a crash.
async fn tell_ending(hold: &Hold, how: &str) {
    let told = timeout(ENDING_LIMIT, hold.tell_ending(how)).await;
    if let Ok(Err(error)) = told {
        tracing::debug!(%error, "the ending is not recorded");
    }
}

/// Awaits the release of a hold, or the settlement of an item. Returns `exit` if it was acknowledged within `limit`; if not, the hold may
/// have been lost before.
pub(crate) async fn settle<E>(
    path: &str,
    release: impl Future<Output = Result<(), E>>,
    limit: Duration,
    exit: Exit,
    output: Output,
) -> Exit
where
    E: std::error::Error + Send + Sync + 'static,
{
    let error = match timeout(limit, release).await {
        Ok(Ok(())) => return exit,
        Ok(Err(error)) => anyhow::Error::new(error),
        Err(_) => anyhow::anyhow!("the release of {path} was not acknowledged"),
    };
    output.error(&error);
    Exit::Lost
}
