//! Two-phase commit: several sites do something, or none of them does.

mod ballot;
mod child;
mod cleaning;
mod coordinator;
mod error;
mod invitations;
mod participant;
mod presence;
mod progress;
mod seat;
mod status;
mod terms;
mod transaction;
mod view;

use std::collections::BTreeSet;
use std::time::Duration;

use bellwether_client as zk;
use futures_util::future::try_join_all;

use crate::access::Access;
use crate::client::Client;
use crate::group::check_name;
use crate::name::AcquisitionId;
use crate::receipt::RECEIPT;
use crate::state::{NotWritten, Site as Place, StateError};
use crate::who::Who;
use presence::Presence;
use terms::Terms;
use view::View;

pub use ballot::{Ballot, Decision, Vote};
pub use coordinator::Coordinator;
pub use error::{ParticipateError, TransactionError};
pub use invitations::Invitations;
pub use participant::{Participant, Proposal};
pub use progress::TransactionProgress;
pub use seat::Seat;
pub use status::{SiteStatus, Status};
pub use terms::{DeadSite, Form};
pub use transaction::Transaction;

/// How many sites a transaction may have. What is cleaned up together has to fit into one request.
const SITES_MAX: usize = 1_000;

/// How long votes are waited for unless another time is set.
const DEADLINE: Duration = Duration::from_secs(30);

/// How many transactions are looked at together.
const LOOKED_AT_TOGETHER: usize = 16;

/// Transactions among sites: each prepares and votes, and if all vote to commit, all commit; else all abort.
///
/// # What it guarantees
///
/// Every site comes to the same decision, and it never changes: a vote and the decision are nodes that are made once, and
/// the decision follows from the votes. It is *commit* only if every site has voted to commit. So any number of coordinators, at once or
/// one after the other, decide alike, and a site or a coordinator that crashes at any point and comes back goes on where it was.
/// The handlers of a [`Participant`] are called at least once, *commit* only at a site that has voted for it.
///
/// # What it does not
///
/// It does not make them do so at one moment: a site that is away commits when it comes back. And it blocks, as two-phase commit
/// must: from its vote to commit until the decision a site can do neither, and keeps what it has locked. How long that is:
///
/// | who fails | what the others wait for |
/// |---|---|
/// | a site, before its vote | nothing, if whoever counts has seen it there: aborted when its session ends, or, with [`DeadSite::Wait`], the deadline |
/// | a site that never came | the deadline |
/// | a site, after its vote | nothing; the vote counts |
/// | the coordinator | the deadline: then a site takes over. Before it, anybody who [takes over](Transaction::coordinate) |
/// | the servers | the servers: nobody can decide without them |
///
/// [Without a deadline](Self::no_deadline) such a wait ends only when somebody comes back, takes over or
/// [aborts](Coordinator::abort). A deadline says from when on a missing vote is a vote to abort; it does not say when a decision is
/// known everywhere.
///
/// # Node layout
///
/// A transaction is a persistent node `PATH/<id>`: a line of JSON with the terms (sites, form, time limit, who), then the payload. Below it:
/// `vote-<site>` and `decision`, persistent and never changed; `applied-<site>`, persistent, of each site that is done; and, ephemeral,
/// `here-<site>-<id>` and `coordinator-<id>` of whoever takes part now. The path is a container; while a transaction is
/// begun there is a `receipt-…` in it, ephemeral.
///
/// # Fairness
///
/// Transactions know nothing of each other. What they touch is locked, or not, by the sites.
///
/// # Session loss
///
/// Everything goes on in the next session. A site whose session ends before its vote counts as dead for a moment, and by
/// [`DeadSite`] that may abort the transaction.
///
/// # Example
///
/// ```
/// use bellwether::{Client, Decision, Participant, Proposal, TwoPhase, Vote, connect};
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
    dir: Place,
    form: Form,
    dead_site: DeadSite,
    deadline: Option<Duration>,
}

impl TwoPhase {
    /// Transactions below a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            dir: Place::new(client, path.into()),
            form: Form::default(),
            dead_site: DeadSite::default(),
            deadline: Some(DEADLINE),
        }
    }

    /// Who counts the votes of the transactions that are begun here: a [coordinator](Form::Coordinator) unless set.
    #[must_use]
    pub fn form(self, form: Form) -> Self {
        Self { form, ..self }
    }

    /// What becomes of the transactions that are begun here when a site dies that has not voted: [abort](DeadSite::Abort)
    /// unless set.
    #[must_use]
    pub fn dead_site(self, dead_site: DeadSite) -> Self {
        Self { dead_site, ..self }
    }

    /// How long the votes of a transaction that is begun here are waited for. After that, whoever counts votes to abort in the place of
    /// the missing. 30 seconds unless set.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        Self {
            deadline: Some(deadline),
            ..self
        }
    }

    /// Waits for votes without end. A site that never votes then blocks a transaction until somebody
    /// [aborts](Coordinator::abort) it.
    #[must_use]
    pub fn no_deadline(self) -> Self {
        Self {
            deadline: None,
            ..self
        }
    }

    /// Who may touch the nodes. Everybody unless set.
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
    /// Dropped before it returns, it may have begun or not. One that nobody knows of is aborted by whoever counts after its deadline;
    /// [`in_doubt`](Self::in_doubt) finds it.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`]. Only after [`OutcomeUnknown`](StateError::OutcomeUnknown) it may have begun.
    pub async fn begin<S: Into<String>>(
        &self,
        sites: impl IntoIterator<Item = S>,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Coordinator, TransactionError> {
        let id = AcquisitionId::new().to_string();
        self.begin_as(id, sites, payload).await
    }

    /// As [`begin`](Self::begin), under an id of yours, such as the number of an order. An id must not be used again: a site that was paused
    /// since could take the new transaction for the old one.
    ///
    /// # Cancel safety
    ///
    /// As [`begin`](Self::begin).
    ///
    /// # Errors
    ///
    /// [`TransactionError::AlreadyBegun`] if there is one with this id; else as [`begin`](Self::begin).
    pub async fn begin_as<S: Into<String>>(
        &self,
        id: impl Into<String>,
        sites: impl IntoIterator<Item = S>,
        payload: impl Into<Vec<u8>>,
    ) -> Result<Coordinator, TransactionError> {
        let transaction = self.transaction(id);
        transaction.visit().await?;
        let sites: BTreeSet<String> = sites.into_iter().map(Into::into).collect();
        if sites.is_empty() || sites.len() > SITES_MAX {
            return Err(TransactionError::BadSites {
                path: transaction.path(),
                sites: sites.len(),
                sites_max: SITES_MAX,
            });
        }
        for site in &sites {
            check_name(transaction.place(), site)?;
        }
        let payload = payload.into();
        let terms = Terms::new(
            sites,
            self.form,
            self.dead_site,
            self.deadline,
            Who::here(self.client.session_id()),
        );
        cleaning::check_can_be_forgotten(transaction.place(), &terms)?;
        let made = self.make(&transaction, &terms, &payload);
        let enter = Presence::enter(&transaction, child::coordinator());
        // In this order, and together.
        let (made, presence) = tokio::join!(biased; made, enter);
        made?;
        let presence = match presence {
            // It came too early, before the directory was there.
            Err(TransactionError::NotFound { .. }) => {
                Presence::enter(&transaction, child::coordinator()).await?
            }
            presence => presence?,
        };
        let view = View::new(&transaction, &terms, &payload, presence.made_ms());
        Ok(Coordinator::new(view, presence, &terms))
    }

    /// Makes the node of a transaction, exactly once: if the reply to a create is lost, the transaction may be over and forgotten before
    /// the next try, and must not come back.
    async fn make(
        &self,
        transaction: &Transaction,
        terms: &Terms,
        payload: &[u8],
    ) -> Result<(), TransactionError> {
        let place = transaction.place();
        let data = terms.to_data(payload);
        let options = zk::CreateMode::Persistent.with_acl(place.access().acl());
        let made = place.once(data.len(), |writer, node| {
            writer.create(node.as_str(), &data, &options);
        });
        match made.await {
            Ok(_) => Ok(()),
            Err(NotWritten::Refused(zk::Error::NODE_EXISTS)) => {
                let path = transaction.path();
                Err(TransactionError::AlreadyBegun { path })
            }
            Err(NotWritten::Refused(error)) => Err(place.refused(error).into()),
            Err(NotWritten::Failed(error)) => Err(error.into()),
        }
    }

    /// A transaction that was begun, here or elsewhere. Nothing is sent until a verb is called.
    #[must_use]
    pub fn transaction(&self, id: impl Into<String>) -> Transaction {
        Transaction::new(&self.client, &self.dir, id.into())
    }

    /// All transactions that have not been forgotten, in the order of their ids.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`TransactionError`].
    pub async fn list(&self) -> Result<Vec<Status>, TransactionError> {
        let mut all = Vec::new();
        for ids in self.ids().await?.chunks(LOOKED_AT_TOGETHER) {
            let looks = ids.iter().map(|id| async move {
                match self.transaction(id).status().await {
                    Ok(status) => Ok(Some(status)),
                    // Forgotten meanwhile, or somebody else's.
                    Err(
                        TransactionError::NotFound { .. }
                        | TransactionError::State(StateError::Unreadable { .. }),
                    ) => Ok(None),
                    Err(error) => Err(error),
                }
            });
            all.extend(try_join_all(looks).await?.into_iter().flatten());
        }
        Ok(all)
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
    /// See [`TransactionError`].
    pub async fn in_doubt(&self) -> Result<Vec<Status>, TransactionError> {
        let mut all = self.list().await?;
        all.retain(|status| status.decision.is_none());
        Ok(all)
    }

    async fn ids(&self) -> Result<Vec<String>, TransactionError> {
        loop {
            let visit = self.dir.visit().await?;
            let (zk, node) = (visit.client.zk(), visit.node.as_str());
            // Made before the first await: both travel together. Some may have begun through a server that is ahead of ours.
            let (synced, listed) = (zk.sync(node), zk.children(node));
            let listed = match synced.await {
                Ok(()) => listed.await,
                Err(error) => Err(error),
            };
            match listed {
                Ok(mut ids) => {
                    ids.retain(|id| is_id(id));
                    ids.sort_unstable();
                    return Ok(ids);
                }
                Err(zk::Error::NO_NODE) => return Ok(Vec::new()),
                Err(error) => self.dir.again(&visit, error).await?,
            }
        }
    }
}

fn is_id(name: &str) -> bool {
    !name.starts_with(RECEIPT)
}

/// Whether the data of a node is that of a transaction.
pub(crate) fn is_transaction(data: &[u8]) -> bool {
    Terms::from_data(data).is_some()
}
