//! What a site does in a transaction, as handlers.

use std::error::Error;
use std::time::Duration;

use super::ballot::{Decision, Vote};
use super::error::ParticipateError;
use super::seat::Seat;
use crate::clock::Moment;
use crate::queue::Payload;

/// What a site has to do in a transaction. Each handler may be called more than once for the same transaction, and in
/// another process than before: whoever implements them keeps what has been done by the [id](Proposal::id), where it outlives
/// the process, and does it once.
///
/// An error ends [`participate`](crate::Transaction::participate), and the same handler is called again by the next one.
pub trait Participant {
    /// Why a handler could not do its work now.
    type Error;

    /// Makes everything ready, so that [`commit`](Self::commit) cannot fail any more, whatever happens to this process, and says whether
    /// that has been possible. From a vote to commit on, the site must be able to do either.
    fn prepare(
        &mut self,
        proposal: &Proposal,
    ) -> impl Future<Output = Result<Vote, Self::Error>> + Send;

    /// Makes what was prepared take effect. It was prepared and voted for by this site, perhaps by an earlier process.
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
    pub(super) fn new(id: &str, site: &str, payload: Vec<u8>, due: Option<Moment>) -> Self {
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
    /// If it is none.
    pub fn read<T: Payload>(&self) -> Result<T, Box<dyn Error + Send + Sync>> {
        T::from_bytes(self.payload.clone())
    }

    /// How long a vote is waited for; zero when it may be too late, `None` without a deadline.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.due.map(Moment::left)
    }

    pub(super) fn due(&self) -> Option<Moment> {
        self.due
    }
}

impl Seat {
    pub(super) async fn run<P: Participant>(
        mut self,
        participant: &mut P,
    ) -> Result<Decision, ParticipateError<P::Error>> {
        let proposal = self.proposal().clone();
        if !self.has_voted() && !self.is_decided() {
            let vote = participant.prepare(&proposal).await;
            self.vote(vote.map_err(ParticipateError::Handler)?).await?;
        }
        let decision = self.decision().await?;
        if !self.has_applied() {
            let done = match decision {
                Decision::Commit => participant.commit(&proposal).await,
                Decision::Abort => participant.abort(&proposal).await,
            };
            done.map_err(ParticipateError::Handler)?;
            self.applied().await?;
        }
        Ok(decision)
    }
}
