//! The roles in a transaction: coordinators that count votes, and sites that vote.

use std::ops::Deref;
use std::time::Duration;

use bellwether_client as zk;
use futures_util::future::OptionFuture;
use tokio::select;

use crate::error::{Error, ErrorKind, Failure};
use crate::node::OperationId;
use crate::node::data::Payload;
use crate::session::cleaner::Leftover;
use crate::session::telemetry::call;
use crate::session::{Moment, Reserved, Session};
use crate::two_phase::nodes::{self, Ballot, DECISION, Decision, Form, TransactionSpec, Vote};
use crate::two_phase::serving::Handlers;
use crate::two_phase::transaction::Transaction;
use crate::two_phase::view::{Status, Then, View};

/// The delay by which a site takes over later than the coordinator after the deadline, and how much later than the site before it, so that
/// not all sites do it at once.
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
    pub(super) async fn take(transaction: &Transaction, site: &str) -> Result<Self, Failure> {
        transaction.open().await?;
        let enter = Presence::enter(transaction, nodes::here(site));
        // In this order, and together. Behind its own write a session reads nothing older, also where its server lags.
        let (presence, spec, names) =
            tokio::join!(biased; enter, transaction.spec(), transaction.children());
        let (spec, payload, begun_ms) = spec?;
        transaction.check_site(&spec, site)?;
        let (presence, names) = (presence?, names?);
        let has = |name: &str| names.iter().any(|found| found == name);
        let due = spec.limit().map(|limit| presence.due(begun_ms, limit));
        Ok(Self {
            ballot: match has(&nodes::vote(site)) {
                true => transaction.read_ballot(site).await?,
                false => None,
            },
            decision: match has(DECISION) {
                true => transaction.read_decision().await?,
                false => None,
            },
            has_applied: has(&nodes::applied(site)),
            transaction: transaction.clone(),
            proposal: Proposal::new(transaction.id(), site, payload, due),
            spec,
            begun_ms,
            presence,
        })
    }

    /// Returns the proposal: what the transaction is about.
    #[must_use]
    pub fn proposal(&self) -> &Proposal {
        &self.proposal
    }

    /// Returns whether there is a vote of this site, cast by itself or by another in its place, as far as is known here.
    #[must_use]
    pub fn has_voted(&self) -> bool {
        self.ballot.is_some()
    }

    /// Returns whether the decision is known here.
    #[must_use]
    pub fn is_decided(&self) -> bool {
        self.decision.is_some()
    }

    /// Returns whether this site had already applied the decision when this process began to take part.
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
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`. It may have voted; call again to
    /// know.
    pub async fn vote(&mut self, vote: Vote) -> Result<&Ballot, Error> {
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
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`, `TooManyEphemerals`.
    pub async fn decision(&mut self) -> Result<Decision, Error> {
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
    /// [`ErrorKind::Undecided`] while there is no decision; else [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`,
    /// `NoSession`, `Refused`.
    pub async fn applied(self) -> Result<(), Error> {
        call!("transaction.applied", self.transaction.place().path())
            .run(async move {
                let site = self.proposal.site();
                self.transaction.mark_applied(site).await
            })
            .await
    }

    /// Waits for the decision of a coordinator; `None` when it is time to count.
    async fn hear(&mut self) -> Result<Option<Decision>, Failure> {
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
    async fn count(&mut self, due: Option<Moment>) -> Result<Decision, Failure> {
        let (spec, payload) = (&self.spec, self.proposal.payload());
        let mut view = View::new(&self.transaction, spec, payload, self.begun_ms);
        if let Some(own) = &self.ballot {
            view.know(self.proposal.site(), own);
        }
        view.decide(&mut self.presence, due).await
    }

    /// Returns the time when this site takes over after the deadline, `after` turns later than its rank among the sites alone would say.
    fn turn(&self, after: u32) -> Option<Moment> {
        let turns = self.spec.rank(self.proposal.site()).saturating_add(after);
        Some(self.proposal.due()? + STAGGER * turns)
    }
}

/// The work of a site in a transaction. Each handler may be called more than once for the same transaction, also in another process than
/// before. Handlers have to be idempotent: record durably, by the [id](Proposal::id), what has been done.
///
/// An error ends [`participate`](crate::two_phase::Transaction::participate), and the same handler is called again by the next one.
pub trait Participant {
    /// The reason why a handler could not do its work now.
    type Error: Into<Box<dyn std::error::Error + Send + Sync>>;

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

/// A transaction, as one site sees it.
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

    /// Returns the name of this site.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Returns the payload that was given at the beginning, the same for every site.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.payload
    }

    /// The payload as [`String`], or with [`Json`](crate::Json) as a type of your own.
    ///
    /// # Errors
    ///
    /// If the payload cannot be decoded.
    pub fn read<T: Payload>(&self) -> Result<T, Box<dyn std::error::Error + Send + Sync>> {
        T::from_bytes(self.payload.clone())
    }

    /// Returns the time for which the transaction still waits for this vote; zero when it may be too late, `None` without a deadline.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.due.map(Moment::left)
    }

    pub(super) fn due(&self) -> Option<Moment> {
        self.due
    }
}

impl Participation {
    /// Calls the handlers, as many at once as `handlers` allows, or without a limit.
    pub(super) async fn run<P: Participant>(
        mut self,
        participant: &mut P,
        handlers: Option<&Handlers>,
    ) -> Result<Decision, Failure> {
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

fn failed(error: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ErrorKind {
    ErrorKind::Handler(error.into().into())
}

/// A coordinator of a [`Transaction`], which it derefs to.
///
/// It owns nothing: any number of coordinators, at once or one after the other, reach the same decision. If it is dropped before that, the
/// transaction waits for another coordinator, or for its deadline.
#[derive(Debug)]
pub struct Coordinator {
    view: View,
    presence: Presence,
    due: Option<Moment>,
}

impl Coordinator {
    pub(super) fn new(view: View, presence: Presence, spec: &TransactionSpec) -> Self {
        let due = spec
            .limit()
            .map(|limit| presence.due(view.begun_ms(), limit));
        Self {
            view,
            presence,
            due,
        }
    }

    /// Waits until the votes are enough for a decision, records the decision, and returns it.
    ///
    /// It is *commit* when every site has voted for it, and *abort* with the first vote against it. The coordinator votes to abort in place
    /// of a site that has died, unless the transaction is to [wait](crate::two_phase::DeadSite::Wait), and after the deadline in place of
    /// every missing site.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the transaction may have been decided or not. A later call, or any other coordinator, continues.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`, `TooManyEphemerals`.
    pub async fn decide(&mut self) -> Result<Decision, Error> {
        call!("transaction.decide", self.place().path())
            .run_to(
                self.view.decide(&mut self.presence, self.due),
                Decision::outcome,
            )
            .await
    }

    /// Decides if the present votes are enough; `None` if they are not. It does not wait.
    ///
    /// # Cancel safety
    ///
    /// As [`decide`](Self::decide).
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub async fn try_decide(&mut self) -> Result<Option<Decision>, Error> {
        call!("transaction.try_decide", self.place().path())
            .find(async {
                self.view.update(Then::Leave).await?;
                self.view.try_decide().await
            })
            .await
    }

    /// Votes to abort in place of every site that has not voted, and returns the decision: a transaction that all sites have voted to
    /// commit is committed, and can no longer be aborted.
    ///
    /// # Cancel safety
    ///
    /// As [`decide`](Self::decide).
    ///
    /// # Errors
    ///
    /// As [`decide`](Self::decide).
    pub async fn abort(&mut self, reason: &str) -> Result<Decision, Error> {
        call!("transaction.abort", self.place().path())
            .run_to(
                async {
                    self.view.update(Then::Leave).await?;
                    self.view.abort(reason).await?;
                    Ok(self.decide().await?)
                },
                Decision::outcome,
            )
            .await
    }

    /// The status that was seen last: after [`decide`](Self::decide), all votes behind the decision.
    #[must_use]
    pub fn last_seen(&self) -> &Status {
        self.view.status()
    }
}

impl Deref for Coordinator {
    type Target = Transaction;

    fn deref(&self) -> &Transaction {
        self.view.transaction()
    }
}

/// The presence of a site or coordinator while this value lives, across sessions.
#[derive(Debug)]
pub(super) struct Presence {
    transaction: Transaction,
    prefix: String,
    node: PresenceNode,
}

/// A node of one session. Dropped, it is deleted in the background.
#[derive(Debug)]
struct PresenceNode {
    session: Session,
    path: String,
    _reserved: Reserved,
    /// The times when it was made: by the clock of the servers, and by ours.
    made_ms: i64,
    asked: Moment,
    /// The number of the connection that sent the create, until it is answered.
    sent_through: Option<u64>,
    /// The servers have refused to make it.
    is_certainly_absent: bool,
}

impl Presence {
    /// Creates a node whose name has this prefix.
    pub(super) async fn enter(transaction: &Transaction, prefix: String) -> Result<Self, Failure> {
        Ok(Self {
            node: PresenceNode::make(transaction, &prefix).await?,
            transaction: transaction.clone(),
            prefix,
        })
    }

    /// Makes the node anew if its session has ended.
    pub(super) async fn keep(&mut self) -> Result<(), Failure> {
        if self.node.session.is_ended() {
            self.node = PresenceNode::make(&self.transaction, &self.prefix).await?;
        }
        Ok(())
    }

    /// Returns the time when its node was made, by the clock of the servers.
    pub(super) fn made_ms(&self) -> i64 {
        self.node.made_ms
    }

    /// Resolves when the node goes with its session.
    pub(super) async fn lost(&self) {
        self.node.session.ended().await;
    }

    /// Returns the time when a time limit after the beginning has passed. Both ends are measured by the time of day of the leader, so
    /// clocks of other machines may differ as they like. Clocks of two leaders in turn may not: the result is wrong by their difference,
    /// but never earlier than the request for the node, nor later than `limit` after it.
    pub(super) fn due(&self, begun_ms: i64, limit: Duration) -> Moment {
        let age_ms = self.node.made_ms.saturating_sub(begun_ms);
        let age = Duration::from_millis(u64::try_from(age_ms).unwrap_or_default());
        self.node.asked + limit.saturating_sub(age)
    }
}

impl PresenceNode {
    async fn make(transaction: &Transaction, prefix: &str) -> Result<Self, Failure> {
        let place = transaction.place();
        loop {
            let opened = place.open_in_time().await?;
            let session = &opened.session;
            // A new name for each try, so that the outcome of a try whose reply was lost does not matter.
            let path = opened
                .path
                .child(format_args!("{prefix}{}", OperationId::new()));
            let Some(reserved) = session.ephemeral_quota().reserve(path.len()) else {
                let bytes = session.ephemeral_quota().bytes();
                return Err(place.failed(ErrorKind::TooManyEphemerals { bytes }));
            };
            let mut node = Self {
                session: session.clone(),
                path,
                _reserved: reserved,
                made_ms: 0,
                asked: Moment::now(),
                sent_through: Some(session.zk().connections()),
                is_certainly_absent: false,
            };
            let who = session.who().to_data();
            let options = zk::CreateMode::Ephemeral.with_acl(place.access().acl());
            match session.zk().create(&node.path, &who, &options).await {
                Ok(zk::Created { stat, .. }) => {
                    node.made_ms = stat.ctime;
                    node.sent_through = None;
                    return Ok(node);
                }
                Err(error) => {
                    node.is_certainly_absent = !error.is_in_doubt();
                    match error {
                        zk::Error::NO_NODE => return Err(transaction.not_found()),
                        error => place.again(&opened, error).await?,
                    }
                }
            }
        }
    }
}

impl Drop for PresenceNode {
    fn drop(&mut self) {
        if !self.is_certainly_absent {
            let leftover = Leftover::Node(std::mem::take(&mut self.path));
            let cleaner = self.session.cleaner();
            match self.sent_through {
                None => cleaner.remove(leftover),
                Some(connection) => cleaner.remove_late(leftover, connection),
            }
        }
    }
}
