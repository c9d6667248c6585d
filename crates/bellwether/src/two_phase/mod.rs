//! Two-phase commit: all sites apply a change, or none does.

mod nodes;
mod roles;
mod serving;
mod transaction;
mod view;

pub use self::nodes::{Ballot, DeadSite, Decision, Form, Vote};
pub use self::roles::{Coordinator, Participant, Participation, Proposal};
pub use self::serving::{Invitation, Invitations};
pub use self::transaction::Transaction;
pub use self::view::{SiteStatus, Status, TransactionProgress};

use std::collections::BTreeSet;
use std::time::Duration;

use bellwether_client as zk;
use futures_util::future::try_join_all;

use crate::error::{Error, ErrorKind, Failure};
use crate::node::{Access, OperationId};
use crate::request::receipts::RECEIPT;
use crate::request::{NotWritten, PersistentNode};
use crate::session::client::Client;
use crate::session::telemetry::call;
use crate::two_phase::nodes::TransactionSpec;
use crate::two_phase::roles::Presence;
use crate::two_phase::serving::HANDLERS_MAX;
use crate::two_phase::view::View;

/// The largest number of sites of a transaction. What is cleaned up together has to fit into one request.
const SITES_MAX: usize = 1_000;

/// The time for which a transaction waits for votes unless set.
const DEADLINE: Duration = Duration::from_secs(30);

/// The number of transactions that are looked at together.
const LOOKED_AT_TOGETHER: usize = 16;

/// Transactions among sites: each prepares and votes, and if all vote to commit, all commit; else all abort.
///
/// # What it guarantees
///
/// Every site gets the same decision, and it never changes: votes and the decision are nodes that are created once, and the decision
/// follows from the votes. It is *commit* only if every site has voted to commit. So any number of coordinators, at once or one after the
/// other, reach the same decision, and a site or coordinator that crashes at any point continues where it was when it restarts. The
/// handlers of a [`Participant`] are called at least once, *commit* only at a site that has voted for it.
///
/// # What it does not
///
/// Sites do not commit at the same moment: a site that is down commits when it restarts. And it blocks, as two-phase commit must: from its
/// vote to commit until the decision, a site can neither commit nor abort, and keeps its locks. How long that takes:
///
/// | who fails | what the other sites wait for |
/// |---|---|
/// | a site, before its vote | nothing, if the counting process has seen it there: aborted when its session ends, or, with [`DeadSite::Wait`], the deadline |
/// | a site that never came | the deadline |
/// | a site, after its vote | nothing; the vote counts |
/// | the coordinator | the deadline: then a site takes over. Before it, any process that [takes over](Transaction::coordinate) |
/// | the servers | the servers: no decision is possible without them |
///
/// [Without a deadline](Self::no_deadline) such a wait ends only when the failed process returns, or another one takes over or
/// [aborts](Coordinator::abort). The deadline says from when on a missing vote counts as a vote to abort; it does not say when a decision
/// is known everywhere.
///
/// # Node layout
///
/// A transaction is a persistent node `PATH/<id>`: a line of JSON with the spec (sites, form, time limit, who), then the payload. Below
/// it: `vote-<site>` and `decision`, persistent and never changed; `applied-<site>`, persistent, of each site that is done; and, ephemeral,
/// `here-<site>-<id>` and `coordinator-<id>` of the processes that take part now. The path is a container; while a transaction is begun
/// there is a `receipt-…` in it, ephemeral.
///
/// # Fairness
///
/// Transactions are independent of each other. Locking the data is up to the sites.
///
/// # Session loss
///
/// Everything continues in the next session. A site whose session ends before its vote counts as dead for a moment, which may abort the
/// transaction, depending on [`DeadSite`].
///
/// # Example
///
/// ```
/// use bellwether::{Client, TwoPhase, connect};
/// use bellwether::two_phase::{Decision, Participant, Proposal, Vote};
///
/// /// A real one keeps what it has prepared on disk, by the id of the transaction.
/// #[derive(Default)]
/// struct Account {
///     balance: i64,
///     reserved: i64,
/// }
///
/// impl Participant for Account {
///     type Error = std::num::ParseIntError;
///
///     async fn prepare(&mut self, proposal: &Proposal) -> Result<Vote, Self::Error> {
///         let amount: i64 = String::from_utf8_lossy(proposal.payload()).parse()?;
///         self.reserved = if proposal.site() == "payer" { -amount } else { amount };
///         match self.balance + self.reserved < 0 {
///             true => Ok(Vote::Abort("not enough money".into())),
///             false => Ok(Vote::Commit),
///         }
///     }
///
///     async fn commit(&mut self, _: &Proposal) -> Result<(), Self::Error> {
///         self.balance += std::mem::take(&mut self.reserved);
///         Ok(())
///     }
///
///     async fn abort(&mut self, _: &Proposal) -> Result<(), Self::Error> {
///         self.reserved = 0;
///         Ok(())
///     }
/// }
///
/// async fn pay(client: &Client, amount: &str) -> Result<(Decision, i64, i64), Box<dyn std::error::Error>> {
///     let payments = TwoPhase::new(client, "/payments");
///     let (mut payer, mut payee) = (Account { balance: 100, ..Account::default() }, Account::default());
///     let mut coordinator = payments.begin(["payer", "payee"], amount).await?;
///     // In real life, three processes.
///     let transaction = payments.transaction(coordinator.id());
///     let (decision, one, other) = tokio::join!(
///         coordinator.decide(),
///         transaction.participate("payer", &mut payer),
///         transaction.participate("payee", &mut payee),
///     );
///     let decision = decision?;
///     assert_eq!((one?, other?), (decision, decision));
///     transaction.forget().await?;
///     Ok((decision, payer.balance, payee.balance))
/// }
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = bellwether_testkit::TestServer::start().await?;
/// let client = connect(server.connect_string()).await?;
/// assert_eq!(pay(&client, "60").await?, (Decision::Commit, 40, 60));
/// assert_eq!(pay(&client, "600").await?, (Decision::Abort, 100, 0));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct TwoPhase {
    client: Client,
    dir: PersistentNode,
    form: Form,
    dead_site: DeadSite,
    deadline: Option<Duration>,
    handlers_max: usize,
}

impl TwoPhase {
    /// Transactions below a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            dir: PersistentNode::new(client, path.into()),
            form: Form::default(),
            dead_site: DeadSite::default(),
            deadline: Some(DEADLINE),
            handlers_max: HANDLERS_MAX,
        }
    }

    /// Sets which process counts the votes of transactions that are begun with this handle: a [coordinator](Form::Coordinator) unless set.
    #[must_use]
    pub fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// Sets what happens to transactions that are begun with this handle when a site dies before its vote: [abort](DeadSite::Abort) unless
    /// set.
    #[must_use]
    pub fn dead_site(self, dead_site: DeadSite) -> Self {
        Self { dead_site, ..self }
    }

    /// Sets how long transactions that are begun with this handle wait for votes. After that, the process that counts votes to abort in
    /// place of the missing sites. 30 seconds unless set.
    ///
    /// The clocks of the sites do not matter. The time from the beginning until a site came is measured by the time of day of the leader of the
    /// servers, the rest by the site's own monotonic clock. So if another server leads meanwhile, or its clock is set, the deadline is early or
    /// late by the difference of the clocks: at the earliest when the site comes, at the latest `deadline` after that. What is decided stays
    /// the same at every site.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// Waits for votes without a limit. A site that never votes then blocks a transaction until a coordinator [aborts](Coordinator::abort)
    /// it.
    #[must_use]
    pub fn no_deadline(self) -> Self {
        Self {
            deadline: None,
            ..self
        }
    }

    /// Sets how many handlers of [`serve`](Self::serve) run at once: at most `limit` that prepare, and at most `limit` that commit or
    /// abort. 16 unless set, and never less than one.
    #[must_use]
    pub fn handlers_max(self, limit: usize) -> Self {
        Self {
            // The most that a semaphore takes.
            handlers_max: limit.clamp(1, tokio::sync::Semaphore::MAX_PERMITS),
            ..self
        }
    }

    /// Sets which clients may use the nodes. The list of the [client](crate::Connect::acl) unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            dir: self.dir.with_access(Access::new(acl)),
            ..self
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.dir.path()
    }

    /// Begins a transaction among these sites, under an id of its own: one round trip.
    ///
    /// In the form of [every site](Form::EverySite) the result may be dropped at once.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the transaction may have begun or not. A transaction without a coordinator is aborted by its sites after
    /// the deadline; [`in_doubt`](Self::in_doubt) finds it.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `BadSize`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `OutcomeUnknown`, `Refused`.
    /// Only after `OutcomeUnknown` it may have begun.
    pub async fn begin<S: Into<String>>(
        &self,
        sites: impl IntoIterator<Item = S>,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Coordinator, Error> {
        let id = OperationId::new().to_string();
        self.begin_as(id, sites, payload).await
    }

    /// Does the same as [`begin`](Self::begin), under an id of yours, such as the number of an order. An id must not be used again: a site
    /// that was paused since could take the new transaction for the old one.
    ///
    /// # Cancel safety
    ///
    /// As [`begin`](Self::begin).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::AlreadyBegun`] if there is one with this id; else as [`begin`](Self::begin).
    pub async fn begin_as<S: Into<String>>(
        &self,
        id: impl Into<String>,
        sites: impl IntoIterator<Item = S>,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Coordinator, Error> {
        call!("transaction.begin", self.dir.path())
            .run(self.begin_transaction(
                self.transaction(id),
                sites.into_iter().map(Into::into).collect(),
                payload.into(),
            ))
            .await
    }

    async fn begin_transaction(
        &self,
        transaction: Transaction,
        sites: BTreeSet<String>,
        payload: Vec<u8>,
    ) -> Result<Coordinator, Failure> {
        transaction.open().await?;
        if sites.is_empty() || sites.len() > SITES_MAX {
            return Err(transaction.place().failed(ErrorKind::BadSize {
                size: sites.len(),
                size_max: SITES_MAX,
            }));
        }
        for site in &sites {
            transaction.place().check_child(site)?;
        }
        let spec = TransactionSpec::new(
            sites,
            self.form,
            self.dead_site,
            self.deadline,
            self.client.current().who(),
        );
        transaction::check_can_be_forgotten(transaction.place(), &spec)?;
        let made = self.make(&transaction, &spec, &payload);
        let enter = Presence::enter(&transaction, nodes::coordinator());
        // In this order, and together.
        let (made, presence) = tokio::join!(biased; made, enter);
        made?;
        let presence = match presence {
            // It came too early, before the directory was there.
            Err(Failure {
                kind: ErrorKind::NotFound,
                ..
            }) => Presence::enter(&transaction, nodes::coordinator()).await?,
            presence => presence?,
        };
        let view = View::new(&transaction, &spec, &payload, presence.made_ms());
        Ok(Coordinator::new(view, presence, &spec))
    }

    /// Creates the node of a transaction exactly once: if the reply to a create is lost, the transaction may be finished and removed before
    /// the next try, and must not be created again.
    async fn make(
        &self,
        transaction: &Transaction,
        spec: &TransactionSpec,
        payload: &[u8],
    ) -> Result<(), Failure> {
        let place = transaction.place();
        let data = spec.to_data(payload);
        let options = zk::CreateMode::Persistent.with_acl(place.access().acl());
        let made = place.once(data.len(), |writer, node| {
            writer.create(node.as_str(), &data, &options);
        });
        match made.await {
            Ok(_) => Ok(()),
            Err(NotWritten::Refused(zk::Error::NODE_EXISTS)) => {
                Err(place.failed(ErrorKind::AlreadyBegun))
            }
            Err(error) => Err(place.not_written(error)),
        }
    }

    /// A transaction that was begun, here or elsewhere. Nothing is sent until a verb is called.
    #[must_use]
    pub fn transaction(&self, id: impl Into<String>) -> Transaction {
        Transaction::new(&self.client, &self.dir, id.into())
    }

    /// All transactions that have not been removed, in the order of their ids.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `Refused`.
    pub async fn list(&self) -> Result<Vec<Status>, Error> {
        call!("transaction.list", self.dir.path())
            .run(async {
                let mut all = Vec::new();
                for ids in self.ids().await?.chunks(LOOKED_AT_TOGETHER) {
                    let looks = ids.iter().map(|id| async move {
                        match self.transaction(id).status().await {
                            Ok(status) => Ok(Some(status)),
                            // Removed meanwhile, or created by another program.
                            Err(Error {
                                kind: ErrorKind::NotFound | ErrorKind::Unreadable(_),
                                ..
                            }) => Ok(None),
                            Err(error) => Err(error),
                        }
                    });
                    all.extend(try_join_all(looks).await?.into_iter().flatten());
                }
                Ok(all)
            })
            .await
    }

    /// The transactions that wait for a decision, in the order of their ids. Sites that have voted to commit can do neither until there
    /// is one: [take over](Transaction::coordinate) those whose coordinator is gone.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `Refused`.
    pub async fn in_doubt(&self) -> Result<Vec<Status>, Error> {
        let mut all = self.list().await?;
        all.retain(|status| status.decision.is_none());
        Ok(all)
    }

    async fn ids(&self) -> Result<Vec<String>, Failure> {
        let listed = self.dir.ask(|opened| {
            let (zk, node) = (opened.session.zk(), opened.path.as_str());
            // Made before the first await: both are sent in one packet. Some may have begun through a server that is ahead of ours.
            let (synced, listed) = (zk.sync(node), zk.children(node));
            async {
                synced.await?;
                listed.await
            }
        });
        let mut ids = listed.await?.unwrap_or_default();
        ids.retain(|id| is_id(id));
        ids.sort_unstable();
        Ok(ids)
    }
}

fn is_id(name: &str) -> bool {
    !name.starts_with(RECEIPT)
}

/// Returns whether the data of a node is that of a transaction.
pub(crate) fn is_transaction(data: &[u8]) -> bool {
    TransactionSpec::from_data(data).is_some()
}

/// Reads a node of a transaction as everything that it could be.
#[cfg(feature = "fuzz")]
pub(crate) fn read_any_node(name: &str, data: &[u8]) {
    let _ = nodes::Child::parse(name);
    let _ = nodes::TransactionSpec::from_data(data);
    let _ = nodes::Ballot::from_data(data);
    let _ = nodes::Verdict::from_data(data);
}
