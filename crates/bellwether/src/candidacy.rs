//! A candidate that runs as long as it lives.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use tracing::{info, warn};

use crate::election::{Election, Leadership};
use crate::error::{AcquireError, StandError};

/// How long a candidate rests after a failure that did not wait by itself.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// What happens to one who [stands](crate::Election::stand) for election.
#[derive(Debug)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub enum Standing {
    /// It runs, through the session with this id: for the first time, or in a new session because the one before has ended, and
    /// with it the place in line or the office.
    Running {
        /// As [`Client::session_id`](crate::Client::session_id).
        session: i64,
    },
    /// It leads, until the leadership is given back or lost. It runs again as soon as it is asked for what happens next.
    Elected(Leadership),
    /// It does not run at the moment, for this reason, and tries again. Whoever keeps watch over a service wants to know.
    Interrupted(StandError),
}

/// A stream of what happens to a candidate that goes on for ever: it runs, is elected, runs again; when its session ends, it
/// opens the next one, and says so.
///
/// ```no_run
/// # use bellwether::{Election, Leadership, Standing};
/// # use futures_util::StreamExt;
/// # async fn lead(leadership: &Leadership) {}
/// # async fn run(election: &Election) -> Result<(), Box<dyn std::error::Error>> {
/// let mut candidacy = election.stand();
/// while let Some(standing) = candidacy.next().await {
///     match standing {
///         Standing::Elected(leadership) => tokio::select! {
///             () = lead(&leadership) => leadership.resign().await?,
///             () = leadership.lost() => {}
///         },
///         Standing::Running { session } => println!("runs in session {session:x}"),
///         Standing::Interrupted(error) => println!("does not run: {error}"),
///         _ => {}
///     }
/// }
/// # Ok(()) }
/// ```
///
/// The place in line is kept while nobody asks for the next item, and given up when the stream is dropped.
pub struct Candidacy(BoxStream<'static, Standing>);

impl Candidacy {
    pub(crate) fn new(election: Election) -> Self {
        let runner = Runner {
            election,
            session: None,
            rests: false,
        };
        let next = async |mut runner: Runner| Some((runner.next().await, runner));
        Self(unfold(runner, next).boxed())
    }
}

impl Stream for Candidacy {
    type Item = Standing;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Standing>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for Candidacy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Candidacy").finish_non_exhaustive()
    }
}

struct Runner {
    election: Election,
    /// The session that was told last.
    session: Option<i64>,
    /// Whether the last try failed for a reason that may be there still.
    rests: bool,
}

impl Runner {
    async fn next(&mut self) -> Standing {
        if self.rests {
            self.election.client().home().sleep(REST).await;
        }
        let ran = self.run().await;
        // Whoever was removed by another hand may run again at once; what else went wrong may be wrong still.
        self.rests = !matches!(
            ran,
            Ok(_) | Err(StandError::NoPart(AcquireError::Removed { .. }))
        );
        ran.unwrap_or_else(|error| {
            warn!(path = self.election.path(), %error, "candidate does not run");
            Standing::Interrupted(error)
        })
    }

    async fn run(&mut self) -> Result<Standing, StandError> {
        loop {
            let client = self.election.client().successor().await?;
            let session = client.session_id();
            self.election = self.election.through(client);
            if self.session.replace(session) != Some(session) {
                info!(path = self.election.path(), session, "candidate runs");
                return Ok(Standing::Running { session });
            }
            match self.election.campaign().await {
                Ok(leadership) => return Ok(Standing::Elected(leadership)),
                // The next session is told of.
                Err(AcquireError::SessionEnded { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
