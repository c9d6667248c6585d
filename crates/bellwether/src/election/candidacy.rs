//! A permanent candidacy.

use std::time::Duration;

use futures_util::stream::unfold;
use tracing::{info, warn};

use crate::election::{Election, Leadership};
use crate::error::{AcquireError, CandidacyError};
use crate::hold::acquire_there;
use crate::request::Events;
use crate::session::client::SessionId;

/// How long a candidate rests after a failure that did not wait by itself.
pub(crate) const REST: Duration = Duration::from_secs(1);

/// What happens to a candidate that [stands](crate::Election::candidacy) for election.
#[derive(Debug)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub enum CandidacyState {
    /// It is a candidate in the session with this id: for the first time, or again, because the previous session has ended, and with it the
    /// place in line or the leadership.
    Running {
        /// As [`Client::session_id`](crate::Client::session_id).
        session: SessionId,
    },
    /// It leads, until the leadership is resigned or lost. It becomes a candidate again when the next item is polled.
    Elected(Leadership),
    /// It is not a candidate at the moment, for this reason, and tries again, unless the client is closed. Report it to the service's
    /// monitoring.
    Interrupted(CandidacyError),
}

/// A stream of what happens to a permanent candidate: it runs, is elected, and runs again. When its session ends, it continues in a new
/// one, and reports that.
///
/// ```no_run
/// # use bellwether::{Election, Leadership};
/// # use bellwether::election::CandidacyState;
/// # use futures_util::StreamExt;
/// # async fn lead(leadership: &Leadership) {}
/// # async fn run(election: &Election) -> Result<(), Box<dyn std::error::Error>> {
/// let mut candidacy = election.candidacy();
/// while let Some(standing) = candidacy.next().await {
///     match standing {
///         CandidacyState::Elected(leadership) => {
///             if leadership.run(lead(&leadership)).await.is_ok() {
///                 leadership.resign().await?;
///             }
///         }
///         CandidacyState::Running { session } => println!("runs in session {session}"),
///         CandidacyState::Interrupted(error) => println!("does not run: {error}"),
///         _ => {}
///     }
/// }
/// # Ok(()) }
/// ```
///
/// The place in line is kept while the stream is not polled, and given up when the stream is dropped. The stream ends when the client is
/// closed.
pub type Candidacy = Events<CandidacyState>;

impl Candidacy {
    pub(crate) fn new(election: Election) -> Self {
        let runner = Runner {
            election,
            session: None,
            rests: false,
        };
        let next = async |runner: Option<Runner>| {
            let mut runner = runner?;
            let standing = runner.next().await;
            let is_over =
                matches!(&standing, CandidacyState::Interrupted(error) if error.is_final());
            Some((standing, (!is_over).then_some(runner)))
        };
        Self::from_stream(unfold(Some(runner), next))
    }
}

struct Runner {
    election: Election,
    /// The session that was reported last.
    session: Option<SessionId>,
    /// Whether the last try failed for a reason that may persist.
    rests: bool,
}

impl Runner {
    async fn next(&mut self) -> CandidacyState {
        if self.rests {
            self.election.client().runtime().sleep(REST).await;
        }
        let ran = self.run().await;
        // A candidate whose node another client deleted may run again at once. Other failures may persist, so it rests first.
        self.rests = !matches!(
            ran,
            Ok(_) | Err(CandidacyError::NoPart(AcquireError::Removed { .. }))
        );
        ran.unwrap_or_else(|error| {
            warn!(path = self.election.path(), %error, "candidate does not run");
            CandidacyState::Interrupted(error)
        })
    }

    async fn run(&mut self) -> Result<CandidacyState, CandidacyError> {
        loop {
            let session = self.election.client().session().await?;
            let id = SessionId::from(session.session_id());
            if self.session.replace(id) != Some(id) {
                info!(path = self.election.path(), session = %id, "candidate runs");
                return Ok(CandidacyState::Running { session: id });
            }
            let election = self.election.clone();
            let elected = async move { election.campaign_in(&session).await };
            match acquire_there(self.election.client().runtime(), elected).await {
                Ok(leadership) => return Ok(CandidacyState::Elected(leadership)),
                // The next item reports the new session.
                Err(AcquireError::SessionEnded { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}
