//! What a site does in a transaction, as handlers.

use std::error::Error;
use std::time::Duration;

use futures_util::future::OptionFuture;

use crate::node::data::Payload;
use crate::session::Moment;
use crate::two_phase::error::ParticipateError;
use crate::two_phase::nodes::ballot::{Decision, Vote};
use crate::two_phase::roles::participation::Participation;
use crate::two_phase::roles::serving::Handlers;

/// What a site has to do in a transaction. Each handler may be called more than once for the same transaction, also in another process than
/// before. Handlers have to be idempotent: record durably, by the [id](Proposal::id), what has been done.
///
/// An error ends [`participate`](crate::two_phase::Transaction::participate), and the same handler is called again by the next one.
pub trait Participant {
    /// Why a handler could not do its work now.
    type Error: Into<Box<dyn Error + Send + Sync>>;

    /// Prepares everything, so that [`commit`](Self::commit) can no longer fail, even if this process crashes, and votes. After a vote to
    /// commit, the site must be able to commit and to abort.
    fn prepare(
        &mut self,
        proposal: &Proposal,
    ) -> impl Future<Output = Result<Vote, Self::Error>> + Send;

    /// Applies what was prepared. This site has prepared it and voted for it, perhaps in an earlier process.
    fn commit(
        &mut self,
        proposal: &Proposal,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Undoes what was prepared. That may be nothing: it is also called if nothing was prepared, or only half of it.
    fn abort(
        &mut self,
        proposal: &Proposal,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// What a transaction is about, as one site sees it.
#[derive(Clone, Debug)]
pub struct Proposal {
    id: String,
    site: String,
    payload: Vec<u8>,
    due: Option<Moment>,
}

impl Proposal {
    pub(in crate::two_phase) fn new(
        id: &str,
        site: &str,
        payload: Vec<u8>,
        due: Option<Moment>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            site: site.to_owned(),
            payload,
            due,
        }
    }

    /// The id of the transaction.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Which site this is.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// What was given at the beginning, the same for every site.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The payload as [`String`], or with [`Json`](crate::Json) as a type of your own.
    ///
    /// # Errors
    ///
    /// If the payload cannot be decoded.
    pub fn read<T: Payload>(&self) -> Result<T, Box<dyn Error + Send + Sync>> {
        T::from_bytes(self.payload.clone())
    }

    /// How long the transaction still waits for this vote; zero when it may be too late, `None` without a deadline.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.due.map(Moment::left)
    }

    pub(in crate::two_phase) fn due(&self) -> Option<Moment> {
        self.due
    }
}

impl Participation {
    /// Calls the handlers, as many at once as `handlers` allows, or without a limit.
    pub(in crate::two_phase) async fn run<P: Participant>(
        mut self,
        participant: &mut P,
        handlers: Option<&Handlers>,
    ) -> Result<Decision, ParticipateError> {
        let proposal = self.proposal().clone();
        if !self.has_voted() && !self.is_decided() {
            let permit = OptionFuture::from(handlers.map(Handlers::to_prepare)).await;
            let vote = participant.prepare(&proposal).await.map_err(failed)?;
            drop(permit);
            self.vote(vote).await?;
        }
        let decision = self.decision().await?;
        if !self.has_applied() {
            let _permit = OptionFuture::from(handlers.map(Handlers::to_settle)).await;
            let done = match decision {
                Decision::Commit => participant.commit(&proposal).await,
                Decision::Abort => participant.abort(&proposal).await,
            };
            done.map_err(failed)?;
            self.applied().await?;
        }
        Ok(decision)
    }
}

fn failed(error: impl Into<Box<dyn Error + Send + Sync>>) -> ParticipateError {
    ParticipateError::Handler(error.into())
}
