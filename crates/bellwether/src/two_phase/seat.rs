//! One of the sites.

use std::time::Duration;

use tokio::select;

use super::ballot::{Ballot, Decision, Vote};
use super::child::{self, DECISION};
use super::error::TransactionError;
use super::participant::Proposal;
use super::presence::Presence;
use super::terms::{Form, Terms};
use super::transaction::Transaction;
use super::view::View;
use crate::clock::Moment;

/// How much later than the coordinator a site takes the matter into its own hands when the deadline has passed, and how much
/// later than the site before it: so that not all of them do.
const STAGGER: Duration = Duration::from_millis(200);

/// A part in a [`Transaction`], which the others see. [`participate`](Transaction::participate) does all of it by
/// handlers; this is for those who go step by step.
///
/// Dropped before it has voted, the site counts as dead, for this transaction.
#[derive(Debug)]
pub struct Seat {
    transaction: Transaction,
    terms: Terms,
    begun_ms: i64,
    proposal: Proposal,
    presence: Presence,
    ballot: Option<Ballot>,
    decision: Option<Decision>,
    has_applied: bool,
}

impl Seat {
    pub(super) async fn take(
        transaction: &Transaction,
        site: &str,
    ) -> Result<Self, TransactionError> {
        transaction.visit().await?;
        let enter = Presence::enter(transaction, child::here(site));
        // In this order, and together. Behind its own write a session reads nothing older, also where its server lags.
        let (presence, terms, names) =
            tokio::join!(biased; enter, transaction.terms(), transaction.children());
        let (terms, payload, begun_ms) = terms?;
        transaction.check_site(&terms, site)?;
        let (presence, names) = (presence?, names?);
        let has = |name: &str| names.iter().any(|found| found == name);
        let due = terms.limit().map(|limit| presence.due(begun_ms, limit));
        Ok(Self {
            ballot: match has(&child::vote(site)) {
                true => transaction.read_ballot(site).await?,
                false => None,
            },
            decision: match has(DECISION) {
                true => transaction.read_decision().await?,
                false => None,
            },
            has_applied: has(&child::applied(site)),
            transaction: transaction.clone(),
            proposal: Proposal::new(transaction.id(), site, payload, due),
            terms,
            begun_ms,
            presence,
        })
    }

    /// What the transaction is about.
    #[must_use]
    pub fn proposal(&self) -> &Proposal {
        &self.proposal
    }

    /// Whether there is a vote of this site, cast by itself or by another in its place, as far as is known here.
    #[must_use]
    pub fn has_voted(&self) -> bool {
        self.ballot.is_some()
    }

    /// Whether the decision is known here.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.decision.is_some()
    }

    /// Whether this site had done as was decided when it took its seat.
    #[must_use]
    pub fn has_applied(&self) -> bool {
        self.has_applied
    }

    /// Votes, and returns the vote that stands: a site votes once, and the first vote counts. It may be one to abort that somebody has
    /// cast in its place, when it was gone or late.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have voted or not. A later call returns what stands.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`]. It may have voted; call again to know.
    pub async fn vote(&mut self, vote: Vote) -> Result<&Ballot, TransactionError> {
        if self.ballot.is_none() {
            let site = self.proposal.site();
            self.ballot = Some(self.transaction.cast(site, vote, true).await?);
        }
        Ok(self.ballot.as_ref().expect("there is one now"))
    }

    /// Waits for the decision.
    ///
    /// In the form of the [coordinator](Form::Coordinator) this site waits to be told; when nobody has told it some time after the deadline, it
    /// takes over. In the form of [every site](Form::EverySite) it counts for itself.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call goes on.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn decision(&mut self) -> Result<Decision, TransactionError> {
        if let Some(decision) = self.decision {
            return Ok(decision);
        }
        let decision = match self.terms.form {
            Form::EverySite => self.count(self.turn(0)).await?,
            Form::Coordinator => match self.hear().await? {
                Some(decision) => decision,
                None => self.count(self.turn(1)).await?,
            },
        };
        self.decision = Some(decision);
        Ok(decision)
    }

    /// Marks that this site has done as was decided, and gives the seat up. When every site has, the transaction can be
    /// [forgotten](Transaction::forget).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been marked or not.
    ///
    /// # Errors
    ///
    /// [`TransactionError::Undecided`] while there is no decision; else see [`TransactionError`].
    pub async fn applied(self) -> Result<(), TransactionError> {
        let site = self.proposal.site();
        self.transaction.mark_applied(site).await
    }

    /// Waits to be told by a coordinator; `None` when it is time to count.
    async fn hear(&mut self) -> Result<Option<Decision>, TransactionError> {
        loop {
            self.presence.keep().await?;
            let home = self.transaction.client().home();
            let is_due = async {
                match self.turn(1) {
                    Some(turn) => home.sleep(turn.left()).await,
                    None => std::future::pending().await,
                }
            };
            select! {
                decision = self.transaction.announced(true) => return decision.map(Some),
                () = is_due => return Ok(None),
                // The others are to see that this site goes on, in its next session.
                () = self.presence.lost() => {}
            }
        }
    }

    /// Counts the votes itself, and votes for the missing from then on.
    async fn count(&mut self, due: Option<Moment>) -> Result<Decision, TransactionError> {
        let (terms, payload) = (&self.terms, self.proposal.payload());
        let mut view = View::new(&self.transaction, terms, payload, self.begun_ms);
        if let Some(own) = &self.ballot {
            view.know(self.proposal.site(), own);
        }
        view.decide(&mut self.presence, due).await
    }

    /// When it is the turn of this site to give up on the missing, so many after the deadline.
    fn turn(&self, after: u32) -> Option<Moment> {
        let turns = self.terms.rank(self.proposal.site()).saturating_add(after);
        Some(self.proposal.due()? + STAGGER * turns)
    }
}
