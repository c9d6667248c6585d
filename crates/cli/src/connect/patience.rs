//! The wait limit of a command, which includes the time to connect.

use std::time::Duration;

use bellwether::{Client, Connect};
use tokio::time::{Instant, timeout};

use crate::args::{ConnectArgs, WaitArgs};
use crate::connect::open;
use crate::exit::Exit;
use crate::output::Output;
use crate::output::refusal::Refusal;

/// The time limit for connecting of a command that does not wait.
const AT_ONCE_LIMIT: Duration = Duration::from_secs(5);

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
    pub(crate) fn new(args: &WaitArgs, at_once: bool) -> Self {
        Self {
            start: Instant::now(),
            limit: if at_once {
                Some(Duration::ZERO)
            } else {
                args.wait
            },
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

    /// The exit code if the limit passes.
    pub(crate) fn exit(self) -> Exit {
        Exit::NotHad(self.conflict_exit_code)
    }

    /// Opens a session within the limit; `None` if the limit passes. A command that does not wait tries each server once.
    pub(crate) async fn connect(
        self,
        args: &ConnectArgs,
        output: Output,
        options: impl Fn(Connect) -> Connect,
    ) -> anyhow::Result<Option<Client>> {
        let connected = open(args, output, |connect| match self.is_at_once() {
            true => options(connect).fail_fast(),
            false => options(connect),
        });
        let Some(left) = self.left() else {
            return connected.await.map(Some);
        };
        let limit = if self.is_at_once() {
            AT_ONCE_LIMIT
        } else {
            left
        };
        match timeout(limit, connected).await {
            Ok(client) => client.map(Some),
            Err(_) if self.is_at_once() => {
                let what = format!("no server answered within {limit:?}");
                Err(Refusal::failed(what).into())
            }
            Err(_) => {
                let limit = self.limit.unwrap_or_default();
                output.notice(format_args!("no server answered within {limit:?}"));
                Ok(None)
            }
        }
    }
}
