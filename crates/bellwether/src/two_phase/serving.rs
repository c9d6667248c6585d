//! A site that takes part in every transaction: the stream of transactions that wait for it, and their handlers, concurrently.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bellwether_client as zk;
use futures_util::stream::{FuturesUnordered, StreamExt, unfold};
use tokio::select;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};
use tracing::warn;

use crate::error::{Error, ErrorKind, Failure};
use crate::events::Events;
use crate::session::Moment;
use crate::session::retry::NodeEvent;
use crate::two_phase::nodes::{Child, Decision};
use crate::two_phase::roles::Participant;
use crate::two_phase::transaction::Transaction;
use crate::two_phase::{TwoPhase, is_id};

/// The delay until an invitation is repeated: after the first failure, and at most. It doubles in between.
const AGAIN_MIN: Duration = Duration::from_millis(100);
const AGAIN_MAX: Duration = Duration::from_secs(30);

/// A stream of the transactions that wait for a site: unfinished ones first, then each new one. See [`TwoPhase::invitations`].
///
/// It continues over lost connections and session expiry, and ends after an error. Nothing is sent until it is polled.
pub type Invitations = Events<Result<Invitation, Error>>;

/// A transaction that waits for a site. [`Invitations`] is a stream of them.
///
/// If it is dropped before the site has done its part, for example because a handler failed, the invitation is repeated: after 100 ms, then
/// after twice as long each time, up to 30 seconds. Keep it while the site works on the transaction.
#[derive(Debug)]
pub struct Invitation {
    transaction: Transaction,
    site: String,
    is_done: AtomicBool,
    dropped: mpsc::UnboundedSender<String>,
}

impl Invitation {
    /// The transaction.
    #[must_use]
    pub fn transaction(&self) -> &Transaction {
        &self.transaction
    }

    /// The id of the transaction.
    #[must_use]
    pub fn id(&self) -> &str {
        self.transaction.id()
    }

    /// Returns the invited site.
    #[must_use]
    pub fn site(&self) -> &str {
        &self.site
    }

    /// Takes part as the invited site. See [`Transaction::participate`].
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, a later call continues where this call was.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NotFound`, `NoSession`, `Refused`, `NotASite`, `TooManyEphemerals`,
    /// `Undecided`, `Handler`. The invitation is repeated when this one is dropped.
    pub async fn participate<P: Participant>(
        &self,
        participant: &mut P,
    ) -> Result<Decision, Error> {
        let decision = self.transaction.participate(&self.site, participant).await;
        if decision.is_ok() {
            self.done();
        }
        decision
    }

    /// The site has done its part: no further look is needed.
    pub(super) fn done(&self) {
        self.is_done.store(true, Ordering::Relaxed);
    }
}

impl Drop for Invitation {
    fn drop(&mut self) {
        if !*self.is_done.get_mut() {
            // If the stream is gone, there is nothing to repeat.
            let _ = self.dropped.send(self.transaction.id().to_owned());
        }
    }
}

impl TwoPhase {
    /// The transactions that wait for a site: what it has left open, perhaps in an earlier process, then each new one, and again those
    /// whose [`Invitation`] was dropped before the site had done its part. A site recovers by [taking part](Invitation::participate) in
    /// each of them; [`serve`](Self::serve) does that, concurrently.
    ///
    /// Every beginning and every end of a transaction below the path wakes all listeners.
    pub fn invitations(&self, site: impl Into<String>) -> Invitations {
        let (dropped, returned) = mpsc::unbounded_channel();
        let listening = Listening {
            of: self.clone(),
            site: site.into(),
            known: BTreeMap::new(),
            waiting: VecDeque::new(),
            later: BTreeSet::new(),
            dropped,
            returned,
            event: None,
            ended: false,
        };
        Invitations::from_stream(unfold(listening, Listening::next))
    }
}

struct Listening {
    of: TwoPhase,
    site: String,
    /// The ids that have been looked at, as long as they are there, and how often each was dropped undone.
    known: BTreeMap<String, u32>,
    /// Transactions to be looked at now.
    waiting: VecDeque<String>,
    /// Transactions to be looked at again, and the times.
    later: BTreeSet<(Moment, String)>,
    /// The sender for invitations that are dropped before the part is done.
    dropped: mpsc::UnboundedSender<String>,
    returned: mpsc::UnboundedReceiver<String>,
    event: Option<NodeEvent>,
    ended: bool,
}

/// The work that a site has to do in a transaction.
enum SiteTask {
    /// The site has something to do.
    Open,
    /// The same, and a caller works on it.
    Taken,
    /// The site has done its part, or has none.
    Nothing,
}

impl Listening {
    async fn next(mut self) -> Option<(Result<Invitation, Error>, Self)> {
        if self.ended {
            return None;
        }
        let next = self.invitation().await;
        let next = next.map_err(|failure| failure.of("transaction.invitations", self.of.path()));
        self.ended = next.is_err();
        Some((next, self))
    }

    async fn invitation(&mut self) -> Result<Invitation, Failure> {
        loop {
            while let Some(id) = self.waiting.pop_front() {
                let transaction = self.of.transaction(&id);
                let part = self.part(&transaction).await?;
                let failures = self.known.entry(id.clone()).or_default();
                match (part, *failures) {
                    (SiteTask::Open, _) | (SiteTask::Taken, 0) => {
                        return Ok(Invitation {
                            transaction,
                            site: self.site.clone(),
                            is_done: AtomicBool::new(false),
                            dropped: self.dropped.clone(),
                        });
                    }
                    // The caller went on without its invitation, or the node of the failed part is still there.
                    (SiteTask::Taken, _) => self.schedule(id),
                    (SiteTask::Nothing, _) => {}
                }
            }
            self.woken().await?;
        }
    }

    /// Waits until there may be something to look at.
    async fn woken(&mut self) -> Result<(), Failure> {
        let Some(event) = &mut self.event else {
            return self.list().await;
        };
        let due = self.later.first().map(|(due, _)| *due);
        let runtime = self.of.client.runtime();
        let is_due = async {
            match due {
                Some(due) => runtime.sleep(due.left()).await,
                None => std::future::pending().await,
            }
        };
        select! {
            biased;
            _ = event => {
                self.event = None;
                self.list().await?;
            }
            Some(id) = self.returned.recv() => self.schedule(id),
            () = is_due => {
                let now = Moment::now();
                while let Some((due, _)) = self.later.first() && *due <= now {
                    let (_, id) = self.later.pop_first().expect("there is a first one");
                    self.waiting.push_back(id);
                }
            }
        }
        Ok(())
    }

    /// Has a transaction looked at again, later each time.
    fn schedule(&mut self, id: String) {
        // Unknown by now if it was forgotten.
        if let Some(failures) = self.known.get_mut(&id) {
            let pause = AGAIN_MIN
                .saturating_mul(1 << (*failures).min(16))
                .min(AGAIN_MAX);
            *failures += 1;
            self.later.insert((Moment::now() + pause, id));
        }
    }

    async fn part(&self, transaction: &Transaction) -> Result<SiteTask, Failure> {
        let (spec, names) = tokio::join!(transaction.spec(), transaction.children());
        match (spec, names) {
            (Ok((spec, ..)), Ok(names)) => {
                let is_there = |child: Child<'_>| {
                    let mut children = names.iter().filter_map(|name| Child::parse(name));
                    children.any(|found| found == child)
                };
                if !spec.sites.contains(&self.site) || is_there(Child::Applied(&self.site)) {
                    return Ok(SiteTask::Nothing);
                }
                Ok(match is_there(Child::Here(&self.site)) {
                    true => SiteTask::Taken,
                    false => SiteTask::Open,
                })
            }
            // Removed meanwhile, or created by another program.
            (
                Err(Failure {
                    kind: ErrorKind::NotFound | ErrorKind::Unreadable(_),
                    ..
                }),
                _,
            )
            | (
                _,
                Err(Failure {
                    kind: ErrorKind::NotFound,
                    ..
                }),
            ) => Ok(SiteTask::Nothing),
            (Err(error), _) | (_, Err(error)) => Err(error),
        }
    }

    /// Lists the transactions, and sets a watch for the next change.
    async fn list(&mut self) -> Result<(), Failure> {
        let ids = self.ids().await?.into_iter().filter(|id| is_id(id));
        let ids: BTreeSet<String> = ids.collect();
        self.known.retain(|id, _| ids.contains(id));
        self.later.retain(|(_, id)| ids.contains(id));
        let new = ids.into_iter().filter(|id| !self.known.contains_key(id));
        self.waiting.extend(new);
        Ok(())
    }

    async fn ids(&mut self) -> Result<Vec<String>, Failure> {
        let dir = &self.of.dir;
        loop {
            let opened = dir.open_in_time().await?;
            let zk = opened.session.zk();
            let node = opened.path.as_str();
            let error = match zk.children_watched(node).await {
                Ok((ids, watch)) => {
                    self.event = Some(NodeEvent::of(watch));
                    return Ok(ids);
                }
                Err(zk::Error::NO_NODE) => match zk.exists_watched(node).await {
                    Ok((None, watch)) => {
                        self.event = Some(NodeEvent::of(watch));
                        return Ok(Vec::new());
                    }
                    Ok((Some(_), _)) => continue,
                    Err(error) => error,
                },
                Err(error) => error,
            };
            dir.again(&opened, error).await?;
        }
    }
}

/// The number of transactions in which a site takes part at once. Most of them wait for other sites. Further ones wait for their turn.
const PARTS_MAX: usize = 1_000;

/// The number of handlers that run at once unless set.
pub(super) const HANDLERS_MAX: usize = 16;

/// Limits how many handlers run at once.
///
/// Commits and aborts have their own permits: a prepare may wait for data that another transaction keeps locked until it commits or aborts.
#[derive(Debug)]
pub(super) struct Handlers {
    preparing: Semaphore,
    settling: Semaphore,
}

impl Handlers {
    fn new(limit: usize) -> Self {
        Self {
            preparing: Semaphore::new(limit),
            settling: Semaphore::new(limit),
        }
    }

    pub(super) async fn to_prepare(&self) -> SemaphorePermit<'_> {
        permit(&self.preparing).await
    }

    pub(super) async fn to_settle(&self) -> SemaphorePermit<'_> {
        permit(&self.settling).await
    }
}

async fn permit(of: &Semaphore) -> SemaphorePermit<'_> {
    of.acquire().await.expect("it is never closed")
}

impl TwoPhase {
    /// Takes part in every transaction that waits for a site, unfinished ones first, until the future is dropped or an error ends it, which
    /// is returned.
    ///
    /// `participant` makes the handlers of one transaction. Transactions run concurrently: one that waits for an absent site blocks no
    /// other. [`handlers_max`](Self::handlers_max) limits how many of their handlers run at once. When a handler fails, the error is logged
    /// and the [invitation](Invitation) is repeated.
    ///
    /// ```
    /// # use bellwether::{TwoPhase, connect};
    /// # use bellwether::two_phase::{Participant, Proposal, Vote};
    /// #[derive(Clone)]
    /// struct Bank; // Has a pool of connections to its database.
    /// # impl Participant for Bank {
    /// #     type Error = std::convert::Infallible;
    /// #     async fn prepare(&mut self, _: &Proposal) -> Result<Vote, Self::Error> { Ok(Vote::Commit) }
    /// #     async fn commit(&mut self, _: &Proposal) -> Result<(), Self::Error> { Ok(()) }
    /// #     async fn abort(&mut self, _: &Proposal) -> Result<(), Self::Error> { Ok(()) }
    /// # }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = bellwether_testkit::TestServer::start().await?;
    /// let client = connect(server.connect_string()).await?;
    /// let transfers = TwoPhase::new(&client, "/transfers");
    /// let bank = Bank;
    /// let serving = transfers.serve("payer", |_| bank.clone());
    /// # let mut coordinator = transfers.begin(["payer"], "").await?;
    /// # tokio::select! {
    /// #     error = serving => return Err(error.into()),
    /// #     decision = coordinator.decide() => assert_eq!(decision?, bellwether::two_phase::Decision::Commit),
    /// # }
    /// # Ok(()) }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Dropped at any await, a later call continues where this call was.
    pub async fn serve<P: Participant>(
        &self,
        site: impl Into<String>,
        mut participant: impl FnMut(&Transaction) -> P,
    ) -> Error {
        let handlers = Handlers::new(self.handlers_max);
        let mut invitations = self.invitations(site);
        let mut parts = FuturesUnordered::new();
        loop {
            let has_room = parts.len() < PARTS_MAX;
            select! {
                biased;
                Some(()) = parts.next(), if !parts.is_empty() => {}
                Some(invitation) = invitations.next(), if has_room => match invitation {
                    Ok(invitation) => {
                        let participant = participant(invitation.transaction());
                        parts.push(take_part(invitation, participant, &handlers));
                    }
                    Err(error) => return error,
                },
            }
        }
    }
}

async fn take_part<P: Participant>(
    invitation: Invitation,
    mut participant: P,
    handlers: &Handlers,
) {
    let transaction = invitation.transaction();
    let part = async {
        let participation = transaction.join(invitation.site()).await?;
        participation.run(&mut participant, Some(handlers)).await
    };
    match part.await {
        Ok(_) => invitation.done(),
        // Forgotten meanwhile.
        Err(Failure {
            kind: ErrorKind::NotFound,
            ..
        }) => {}
        Err(failure) => {
            let error = failure.of("transaction.participate", transaction.place().path());
            let error: &dyn std::error::Error = &error;
            warn!(
                transaction = transaction.id(),
                site = invitation.site(),
                error,
                "taking part failed, will be retried"
            );
        }
    }
}
