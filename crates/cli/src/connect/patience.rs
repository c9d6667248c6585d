//! The wait limit of a command, which includes the time to connect.

use std::time::Duration;

use bellwether::error::ConnectError;
use bellwether::{Client, Connect, zk};
use tokio::time::{Instant, timeout};

use crate::args::{ConnectArgs, LimitArgs, WaitArgs};
use crate::connect::open;
use crate::exit::Exit;
use crate::output::Output;
use crate::output::refusal::Refusal;

/// How long a command that does not wait, or no longer waits, gives a server to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(5);

/// How long connecting may take at least: a server that is there needs some time to open a session.
const CONNECT_LIMIT_MIN: Duration = Duration::from_secs(1);

/// How much later the limit is enforced where the client does not.
const SLACK: Duration = Duration::from_millis(500);

/// The exit code of commands without `-E`.
const TIMED_OUT: u8 = 124;

/// A wait limit, which begins when this is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    start: Instant,
    limit: Option<Duration>,
    conflict_exit_code: u8,
}

impl Patience {
    pub(crate) fn new(args: &WaitArgs) -> Self {
        let limited = Self::limited(&args.limit);
        match args.at_once {
            true => Self {
                limit: Some(Duration::ZERO),
                ..limited
            },
            false => limited,
        }
    }

    /// For a command that has to wait.
    pub(crate) fn limited(args: &LimitArgs) -> Self {
        Self {
            start: Instant::now(),
            limit: args.wait,
            conflict_exit_code: args.conflict_exit_code,
        }
    }

    /// No limit.
    pub(crate) fn endless() -> Self {
        Self {
            start: Instant::now(),
            limit: None,
            conflict_exit_code: TIMED_OUT,
        }
    }

    /// A limit of its own, if there is one.
    pub(crate) fn within(limit: Option<Duration>) -> Self {
        Self {
            limit,
            ..Self::endless()
        }
    }

    /// Whether the command does not wait at all.
    pub(crate) fn is_at_once(self) -> bool {
        self.limit == Some(Duration::ZERO)
    }

    /// The whole limit, for messages.
    pub(crate) fn limit(self) -> Option<Duration> {
        self.limit
    }

    /// The rest of the limit; `None` without a limit.
    pub(crate) fn left(self) -> Option<Duration> {
        let limit = self.limit?;
        Some(limit.saturating_sub(self.start.elapsed()))
    }

    /// The exit code after the limit has passed in a wait for other clients. Fails if no server answers: then they are not known to be in
    /// the way, and `-E 0` must not turn that into success.
    pub(crate) async fn exit(self, client: &Client) -> anyhow::Result<Exit> {
        // Any answer counts, a refusal too.
        match timeout(ANSWER_LIMIT, client.raw().exists("/")).await {
            Ok(Ok(_) | Err(zk::Error::Refused(_))) => Ok(Exit::NotHad(self.conflict_exit_code)),
            _ => Err(no_answer(self.limit.unwrap_or_default())),
        }
    }

    /// Opens a session within the limit. A command that does not wait tries each server once.
    pub(crate) async fn connect(
        self,
        args: &ConnectArgs,
        output: Output,
        options: impl Fn(Connect) -> Connect,
    ) -> anyhow::Result<Client> {
        let Some(left) = self.left() else {
            return open(args, output, options).await;
        };
        let limit = match self.is_at_once() {
            true => ANSWER_LIMIT,
            false => left.max(CONNECT_LIMIT_MIN),
        };
        // The client knows what each server has answered, so that its error is the better one.
        let connected = open(args, output, |connect| match self.is_at_once() {
            true => options(connect).connect_timeout(limit).fail_fast(),
            false => options(connect).connect_timeout(limit),
        });
        match timeout(limit + SLACK, connected).await {
            Ok(Err(error)) if is_late(&error, limit) => Err(error.context(unanswered(limit))),
            Ok(client) => client,
            Err(_) => Err(no_answer(limit)),
        }
    }
}

/// An error, and not a wait that was too short: nothing is known about other clients.
fn no_answer(limit: Duration) -> anyhow::Error {
    Refusal::failed(unanswered(limit)).into()
}

fn unanswered(limit: Duration) -> String {
    format!("no server answered within {limit:?}")
}

/// Whether servers were asked until the limit had passed.
fn is_late(error: &anyhow::Error, limit: Duration) -> bool {
    let Some(ConnectError::Unreachable { after, .. }) = error.downcast_ref() else {
        return false;
    };
    *after + SLACK > limit
}
