//! Where commands are run under holds: a session, the keeper of the job, and what the arguments say about both.
//!
//! What is held, how it is waited for and how it is given back is up to the command that uses it.

use std::ffi::OsString;
use std::time::Duration;

use bellwether::{Client, Connect, Hold};
use rustix::process::{Pid, getppid};
use tokio::time::timeout;

use crate::args::JobArgs;
use crate::connect::{self, connect_with};
use crate::duration;
use crate::exit::Exit;
use crate::family::Family;
use crate::job::{Job, Variable};
use crate::keeper::{End, Keeper, Times};
use crate::nested;
use crate::output::Output;
use crate::patience::Patience;
use crate::previous;
use crate::refusal::Refusal;
use crate::session::close;

/// How long a command has to end after SIGTERM when the hold is lost; no more than a third of the session timeout.
const GRACE: Duration = Duration::from_secs(3);

/// How long the servers of an ensemble are usually without a leader at most.
const ELECTION: Duration = Duration::from_secs(5);

/// How long to rest after a session could not be opened.
const REST: Duration = Duration::from_secs(1);

/// How long it may take to record how a job ended.
pub(crate) const ENDING_LIMIT: Duration = Duration::from_secs(2);

/// The variable by which a job that takes another lock is known as the same waiter.
const OWNER: &str = "BELLWETHER_OWNER";

/// Who waits and holds, for those who look for circles of waiting: the job around this one, if there is one.
pub(crate) fn owner(client: &Client) -> String {
    std::env::var(OWNER).unwrap_or_else(|_| format!("{:x}", client.session_id()))
}

#[derive(Debug)]
pub(crate) struct Workplace<'a> {
    args: &'a JobArgs,
    keeper: Keeper,
    client: Client,
    pub(crate) output: Output,
}

/// Opens a workplace, does `work` there, and waits for the end of its session.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn at_workplace<'a>(
    args: &'a JobArgs,
    patience: Patience,
    output: Output,
    work: impl AsyncFnOnce(&mut Workplace<'a>) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let keeper = Keeper::start()?;
    let client = tokio::select! {
        client = patience.connect(&args.connect, output, in_name_of_front) => match client? {
            Some(client) => client,
            None => return Ok(patience.exit()),
        },
        exit = keeper.told_to_end() => return Ok(exit),
    };
    let mut workplace = Workplace {
        args,
        keeper,
        client,
        output,
    };
    // What is wrong with the arguments is told before anybody waits.
    let exit = match workplace.times() {
        Ok(times) => {
            workplace.warn_of_short_timeout(times);
            work(&mut workplace).await
        }
        Err(refusal) => Err(refusal.into()),
    };
    close(workplace.client).await;
    exit
}

/// The process that people are told of is the front: signals to it go to the job, while the keeper ignores them.
fn in_name_of_front(connect: Connect) -> Connect {
    let front = getppid().map_or(0, Pid::as_raw_pid);
    connect.process(front.unsigned_abs())
}

impl Workplace<'_> {
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Awaits something that comes before or after a job, unless it is of no more use: the exit that this means then.
    pub(crate) async fn unless_told<T>(&self, work: impl Future<Output = T>) -> Result<T, Exit> {
        tokio::select! {
            done = work => Ok(done),
            exit = self.keeper.told_to_end() => Err(exit),
        }
    }

    /// The exit that it means if somebody has asked for the end while a job ran.
    pub(crate) fn was_told_to_end(&self) -> Option<Exit> {
        self.keeper.was_told_to_end()
    }

    /// Runs a command under a hold, with variables besides those that tell of the hold or instead of them, until it ends or the
    /// hold does. Nothing of it is left when the hold has ended.
    pub(crate) async fn run(
        &self,
        command: &[OsString],
        hold: &Hold,
        variables: impl IntoIterator<Item = Variable>,
    ) -> anyhow::Result<End> {
        let mut all = vec![
            ("BELLWETHER_TOKEN", Some(hold.token().to_string().into())),
            ("BELLWETHER_PATH", Some(hold.path().into())),
            (OWNER, Some(owner(&self.client).into())),
            (
                nested::VARIABLE,
                Some(nested::tokens_with(hold.token()).into()),
            ),
            self.keeper.variable(),
        ];
        all.extend(connect::variables(&self.args.connect)?);
        all.extend(previous::variables(hold.previous()));
        all.extend(variables);
        if let Some(end) = self.keeper.wait_for_front(hold, self.output).await {
            return Ok(end);
        }
        match Job::start(command, &all, Family::adopt()?) {
            Ok(job) => {
                let times = self.times()?;
                let end = self.keeper.attend(job, hold, times, self.output).await?;
                if let Some(how) = end.ending() {
                    tell_ending(hold, &how).await;
                }
                Ok(end)
            }
            Err((error, exit)) => {
                let program = command.first().map(OsString::as_os_str).unwrap_or_default();
                let error = anyhow::Error::new(error);
                self.output
                    .error(&error.context(format!("cannot run {}", program.display())));
                Ok(End::NotStarted(exit))
            }
        }
    }

    /// Gives back what was held; `exit` if that was acknowledged in time.
    pub(crate) async fn give_back<E>(
        &self,
        path: &str,
        release: impl Future<Output = Result<(), E>>,
        exit: Exit,
    ) -> Exit
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        give_back(
            path,
            release,
            self.client.session_timeout(),
            exit,
            self.output,
        )
        .await
    }

    /// Opens another session if there is none any more, for as long as it takes; the exit if that is of no more use.
    pub(crate) async fn renew(&mut self) -> Result<(), Exit> {
        let mut told = false;
        while self.client.is_ended() {
            let opened = self.unless_told(connect_with(
                &self.args.connect,
                self.output,
                in_name_of_front,
            ));
            match opened.await? {
                Ok(client) => self.client = client,
                Err(error) => {
                    if !std::mem::replace(&mut told, true) {
                        self.output.error(&error);
                    }
                    // A rest in which somebody may say that it is enough.
                    if let Ok(exit) = timeout(REST, self.keeper.told_to_end()).await {
                        return Err(exit);
                    }
                }
            }
        }
        Ok(())
    }

    /// In an ensemble a job is stopped when nothing was proven for half a session timeout less its grace: that should be more than
    /// an election takes.
    fn warn_of_short_timeout(&self, times: Times) {
        let outage_max = self.client.outage_max().saturating_sub(times.grace);
        if self.client.is_ensemble() && outage_max < ELECTION {
            self.output.notice(format_args!(
                "the job is stopped if the servers have no leader for {}; a longer --session-timeout or a shorter --grace helps",
                duration::text(outage_max)
            ));
        }
    }

    /// The times of a job. More grace than a third of the session timeout would have it stopped for outages that nobody else
    /// would notice.
    fn times(&self) -> Result<Times, Refusal> {
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
                return Err(Refusal::usage(what).hint(format!(
                    "use --session-timeout {seconds}s, or a shorter grace"
                )));
            }
        };
        Ok(Times {
            session_timeout,
            grace,
        })
    }
}

/// Leaves word of how a job ended whose hold is not given back. Without an answer in time, the next holder only knows that it
/// was not.
async fn tell_ending(hold: &Hold, how: &str) {
    let told = timeout(ENDING_LIMIT, hold.tell_ending(how)).await;
    if let Ok(Err(error)) = told {
        tracing::debug!(%error, "the ending is not recorded");
    }
}

/// Gives back what was held; `exit` if that was acknowledged within `limit`. If not, part of the time may not have been
/// covered.
pub(crate) async fn give_back<E>(
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
