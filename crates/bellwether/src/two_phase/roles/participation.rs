//! One of the sites.

use std::time::Duration;

use tokio::select;

use crate::session::Moment;
use crate::session::telemetry::call;
use crate::two_phase::error::TransactionError;
use crate::two_phase::nodes::ballot::{Ballot, Decision, Vote};
use crate::two_phase::nodes::child::{self, DECISION};
use crate::two_phase::nodes::transaction_spec::{Form, TransactionSpec};
use crate::two_phase::roles::participant::Proposal;
use crate::two_phase::roles::presence::Presence;
use crate::two_phase::transaction::Transaction;
use crate::two_phase::view::View;

/// How much later than the coordinator a site takes over after the deadline, and how much later than the site before it, so that not all
/// sites do it at once.
const STAGGER: Duration = Duration::from_millis(200);

/// The part of one site in a [`Transaction`], visible to the other sites. [`participate`](Transaction::participate) does all of it by
/// handlers; a participation is for callers that take each step themselves.
///
/// If it is dropped before it has voted, the site counts as dead for this transaction.
#[derive(Debug)]
pub struct Participation {
    transaction: Transaction,
    spec: TransactionSpec,
    begun_ms: i64,
    proposal: Proposal,
    presence: Presence,
    ballot: Option<Ballot>,
    decision: Option<Decision>,
    has_applied: bool,
}

impl Participation {
    pub(in crate::two_phase) async fn take(
        transaction: &Transaction,
        site: &str,
    ) -> Result<Self, TransactionError> {
        transaction.open().await?;
        let enter = Presence::enter(transaction, child::here(site));
        // In this order, and together. Behind its own write a session reads nothing older, also where its server lags.
        let (presence, spec, names) =
            tokio::join!(biased; enter, transaction.spec(), transaction.children());
        let (spec, payload, begun_ms) = spec?;
        transaction.check_site(&spec, site)?;
        let (presence, names) = (presence?, names?);
        let has = |name: &str| names.iter().any(|found| found == name);
        let due = spec.limit().map(|limit| presence.due(begun_ms, limit));
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
            spec,
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

    /// Whether this site had already applied the decision when this process began to take part.
    #[must_use]
    pub fn has_applied(&self) -> bool {
        self.has_applied
    }

    /// Votes, and returns the vote that counts: a site votes once, and the first vote counts. It may be a vote to abort that another
    /// process has cast in its place, because the site was dead or late.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have voted or not. A later call returns the vote that counts.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`]. It may have voted; call again to know.
    pub async fn vote(&mut self, vote: Vote) -> Result<&Ballot, TransactionError> {
        call!("transaction.vote", self.transaction.place().path())
            .run(async {
                if self.ballot.is_none() {
                    let site = self.proposal.site();
                    self.ballot = Some(self.transaction.cast(site, vote, true).await?);
                }
                Ok(self.ballot.as_ref().expect("there is one now"))
            })
            .await
    }

    /// Waits for the decision.
    ///
    /// In the form [`Coordinator`](Form::Coordinator), this site waits for the coordinator; if there is no decision some time after the
    /// deadline, it takes over. In the form [`EverySite`](Form::EverySite) it counts for itself.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call continues.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn decision(&mut self) -> Result<Decision, TransactionError> {
        call!("transaction.decision", self.transaction.place().path())
            .run_to(
                async {
                    if let Some(decision) = self.decision {
                        return Ok(decision);
                    }
                    let decision = match self.spec.form {
                        Form::EverySite => self.count(self.turn(0)).await?,
                        Form::Coordinator => match self.hear().await? {
                            Some(decision) => decision,
                            None => self.count(self.turn(1)).await?,
                        },
                    };
                    self.decision = Some(decision);
                    Ok(decision)
                },
                Decision::outcome,
            )
            .await
    }

    /// Marks that this site has applied the decision, and ends the participation. When every site has, the transaction can be
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
        call!("transaction.applied", self.transaction.place().path())
            .run(async move {
                let site = self.proposal.site();
                self.transaction.mark_applied(site).await
            })
            .await
    }

    /// Waits for the decision of a coordinator; `None` when it is time to count.
    async fn hear(&mut self) -> Result<Option<Decision>, TransactionError> {
        loop {
            self.presence.keep().await?;
            let runtime = self.transaction.client().runtime();
            let is_due = async {
                match self.turn(1) {
                    Some(turn) => runtime.sleep(turn.left()).await,
                    None => std::future::pending().await,
                }
            };
            select! {
                biased;
                decision = self.transaction.announced(true) => return decision.map(Some),
                () = is_due => return Ok(None),
                // The other sites have to see that this site continues in its next session.
                () = self.presence.lost() => {}
            }
        }
    }

    /// Counts the votes itself, and from `due` on votes to abort in place of the missing sites.
    async fn count(&mut self, due: Option<Moment>) -> Result<Decision, TransactionError> {
        let (spec, payload) = (&self.spec, self.proposal.payload());
        let mut view = View::new(&self.transaction, spec, payload, self.begun_ms);
        if let Some(own) = &self.ballot {
            view.know(self.proposal.site(), own);
        }
        view.decide(&mut self.presence, due).await
    }

    /// When this site takes over after the deadline, `after` turns later than its rank among the sites alone would say.
    fn turn(&self, after: u32) -> Option<Moment> {
        let turns = self.spec.rank(self.proposal.site()).saturating_add(after);
        Some(self.proposal.due()? + STAGGER * turns)
    }
}
