//! How long a command may take to get what it waits for, connecting included.

use std::time::Duration;

use bellwether::{Client, Connect};
use tokio::time::{Instant, timeout};

use crate::args::{ConnectArgs, WaitArgs};
use crate::connect::connect_with;
use crate::exit::Exit;
use crate::output::Output;
use crate::refusal::Refusal;

/// How long servers may take to answer a command that does not wait.
const AT_ONCE_LIMIT: Duration = Duration::from_secs(5);

/// The limit that the arguments set, from the moment when this is made.
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

    /// That of a command without a limit.
    pub(crate) fn endless() -> Self {
        Self {
            start: Instant::now(),
            limit: None,
            conflict_exit_code: 124,
        }
    }

    /// Whether a turn that does not come at once is not waited for.
    pub(crate) fn is_at_once(self) -> bool {
        self.limit == Some(Duration::ZERO)
    }

    /// What the arguments say, for people.
    pub(crate) fn limit(self) -> Option<Duration> {
        self.limit
    }

    /// How much of the limit is left; `None` if there is none.
    pub(crate) fn left(self) -> Option<Duration> {
        let limit = self.limit?;
        Some(limit.saturating_sub(self.start.elapsed()))
    }

    /// The exit when what was waited for did not come in time.
    pub(crate) fn exit(self) -> Exit {
        Exit::NotHad(self.conflict_exit_code)
    }

    /// Opens a session within the limit; `None` if that took too long. Where nothing is waited for, each server is tried once.
    pub(crate) async fn connect(
        self,
        args: &ConnectArgs,
        output: Output,
        options: impl Fn(Connect) -> Connect,
    ) -> anyhow::Result<Option<Client>> {
        let connected = connect_with(args, output, |connect| match self.is_at_once() {
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
                let what = format!("no server has answered within {limit:?}");
                Err(Refusal::failed(what).into())
            }
            Err(_) => {
                let limit = self.limit.unwrap_or_default();
                output.notice(format_args!("no server has answered within {limit:?}"));
                Ok(None)
            }
        }
    }
}
