//! Group membership: which processes are alive, with their data.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_client as zk;
use futures_util::stream::{StreamExt, unfold};
use tokio::sync::watch;

use crate::cache::{Cache, CacheChanges, CacheEvent, LiveTree};
use crate::error::{ConnectError, Error, ErrorKind, Failure};
use crate::events::Events;
use crate::node::{Access, OperationId};
use crate::request::receipts::RECEIPT;
use crate::request::{PersistentNode, Seen, Watch};
use crate::session::client::{Client, SessionId};
use crate::session::telemetry::call;
use crate::state::live::Live;
use crate::state::member_keeper::{MemberKeeper, Report, Wish};

/// The members of a group and their data, by name.
pub type Roster = BTreeMap<String, Vec<u8>>;

/// A group whose members come and go.
///
/// # What it guarantees
///
/// A member is listed while its session lives. It is restored by itself, with its latest data, when its session has ended and a new one
/// could be opened, or when another client has deleted its node. A member that has [left](Membership::leave) leaves no node behind; if its session had ended
/// shortly before, its node stays until the servers have expired that session.
///
/// # What it does not
///
/// A member that died is listed until its session has expired. A member that was disconnected for longer than its session timeout is
/// missing for a while.
///
/// # Node layout
///
/// The path is a container, each member an ephemeral child with the data that it gave.
///
/// # Fairness
///
/// All members are equal. A name belongs to the member that created it first.
///
/// # Session loss
///
/// A membership continues in the next session, and reports that in [`Membership::states`]. So does a [watch](Self::watch).
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Group};
/// # use bellwether::Error;
/// # async fn run(client: &Client) -> Result<(), Error> {
/// let workers = Group::new(client, "/workers");
/// let membership = workers.join("idle").await?;
/// membership.update("busy").await?;
/// for (name, data) in workers.members().await? {
///     println!("{name}: {}", String::from_utf8_lossy(&data));
/// }
/// membership.leave().await;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    group: PersistentNode,
}

impl Group {
    /// A group at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            group: PersistentNode::new(client, path.into()),
        }
    }

    pub(crate) fn at(group: PersistentNode) -> Self {
        Self { group }
    }

    /// Sets which clients may use the nodes. The list of the [client](crate::Connect::acl) unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            group: self.group.with_access(Access::new(acl)),
        }
    }

    /// Joins under a unique name. One round trip if the group has members.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves again, in the background.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `Refused`.
    pub async fn join(&self, data: impl Into<Vec<u8>>) -> Result<Membership, Error> {
        let name = format!("member-{}", OperationId::new());
        self.join_as(name, data).await
    }

    /// Joins under the given name.
    ///
    /// # Cancel safety
    ///
    /// As [`join`](Self::join).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::NameTaken`] if there is a member of that name, or a member of this session that is away and will be restored; else as
    /// [`join`](Self::join).
    pub async fn join_as(
        &self,
        name: impl Into<String>,
        data: impl Into<Vec<u8>>,
    ) -> Result<Membership, Error> {
        call!("group.join", self.path())
            .run(async {
                let name = name.into();
                self.group.check_child(&name)?;
                Membership::begin(self.group.clone(), name, data.into()).await
            })
            .await
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.group.path()
    }

    /// The current members: two round trips.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `Refused`.
    pub async fn members(&self) -> Result<Roster, Error> {
        call!("group.members", self.path())
            .run(self.read_members())
            .await
    }

    async fn read_members(&self) -> Result<Roster, Failure> {
        loop {
            let opened = self.group.open().await?;
            let zk = opened.session.zk();
            let listed = async {
                let names = match zk.children(opened.path.as_str()).await {
                    Err(zk::Error::NO_NODE) => Vec::new(),
                    names => names?,
                };
                let mut reads = Vec::new();
                for name in names.into_iter().filter(|name| is_member(name)) {
                    let read = zk.get(&opened.path.child(&name));
                    reads.push((name, read));
                }
                let mut members = Roster::new();
                for (name, read) in reads {
                    match read.await {
                        Ok((data, _)) => drop(members.insert(name, data.to_vec())),
                        // It left meanwhile.
                        Err(zk::Error::NO_NODE) => {}
                        Err(error) => return Err(error),
                    }
                }
                Ok(members)
            };
            match listed.await {
                Ok(members) => return Ok(members),
                Err(error) => self.group.again(&opened, error).await?,
            }
        }
    }

    /// All members, kept up to date in the background. See [`Live`].
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `NoSession`, `Refused`.
    pub async fn live(&self) -> Result<Live<Roster>, Error> {
        call!("group.live", self.path())
            .run(async {
                let group = self.clone();
                Live::watching("group.live", &self.group, move || group.watch()).await
            })
            .await
    }

    /// A stream of all members: the current ones first, then after each join, leave or change of data. See [`Watch`].
    pub fn watch(&self) -> Watch<Roster> {
        let watching = RosterWatch {
            cache: Cache::at(self.group.clone()),
            tree: None,
            shown: None,
            ended: false,
        };
        Watch::new(
            "group.watch",
            self.path(),
            watching.cache.freshness(),
            unfold(watching, |mut watching| async {
                let seen = watching.next().await?;
                Some((seen, watching))
            }),
        )
    }
}

fn is_member(name: &str) -> bool {
    !name.starts_with(RECEIPT)
}

/// Makes rosters from the events of a cache.
struct RosterWatch {
    cache: Cache,
    tree: Option<(LiveTree, CacheChanges)>,
    shown: Option<Roster>,
    ended: bool,
}

impl RosterWatch {
    async fn next(&mut self) -> Option<Result<Seen<Roster>, Failure>> {
        if self.ended {
            return None;
        }
        loop {
            let Some((tree, changes)) = &mut self.tree else {
                match self.cache.open_in_time().await {
                    Ok(tree) => {
                        let changes = tree.changes();
                        self.tree = Some((tree, changes));
                        continue;
                    }
                    Err(error) => {
                        self.ended = true;
                        return Some(Err(error));
                    }
                }
            };
            let members = members_in(tree, self.cache.path());
            if self.shown.as_ref() != Some(&members) {
                self.shown = Some(members.clone());
                return Some(Ok(Seen::Value(members)));
            }
            // The events only wake; the next snapshot shows the changes.
            match changes.next().await {
                Some(CacheEvent::Renewed) => return Some(Ok(Seen::Renewed)),
                Some(_) => {}
                None => {
                    self.ended = true;
                    return tree.take_end().map(Err);
                }
            }
        }
    }
}

fn members_in(tree: &LiveTree, group: &str) -> Roster {
    let nodes = tree.snapshot();
    let members = nodes.into_iter().filter_map(|(path, node)| {
        let name = path.strip_prefix(group)?.strip_prefix('/')?;
        let is_member = is_member(name) && !name.contains('/');
        is_member.then(|| (name.to_owned(), data_of(node)))
    });
    members.collect()
}

fn data_of(node: Arc<crate::cache::CachedNode>) -> Vec<u8> {
    node.data.clone()
}

/// Membership in a [`Group`], or a name in [`Names`](crate::Names). When it is lost, it is restored by itself.
///
/// End it with [`leave`](Self::leave), which waits for the servers. A dropped membership ends in the background.
#[derive(Debug)]
#[must_use = "the membership ends when this is dropped"]
pub struct Membership {
    name: String,
    path: String,
    /// The limit of the data in one request.
    bytes_max: usize,
    wishes: watch::Sender<Wish>,
    report: watch::Receiver<Report>,
}

/// The visibility of a member to other clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MembershipState {
    /// Listed, in the session with this id.
    Present(SessionId),
    /// Not listed: its session has ended, or its node was deleted. It will be restored.
    Away,
    /// Another member has taken the name meanwhile. This member will be restored when the other has left.
    Displaced,
}

impl Membership {
    pub(crate) async fn begin(
        node: PersistentNode,
        name: String,
        data: Vec<u8>,
    ) -> Result<Self, Failure> {
        let opened = node.open().await?;
        let path = format!("{}/{name}", node.path());
        let bytes_max = node.bytes_max(&opened, 1).saturating_sub(name.len());
        check_size(&path, &data, bytes_max)?;
        let runtime = opened.session.runtime().clone();
        let (wishes, wish) = watch::channel(Wish {
            data,
            number: 0,
            leave: false,
        });
        let (reports, report) = watch::channel(Report {
            state: MembershipState::Away,
            fulfilled: 0,
        });
        let closed = node.failed(ConnectError::Closed);
        let has_joined = MemberKeeper::start(&runtime, node, name.clone(), wish, reports);
        // Dropped while it waits, this leaves again.
        let membership = Self {
            name,
            path,
            bytes_max,
            wishes,
            report,
        };
        match has_joined.await {
            Ok(joined) => joined.map(|()| membership),
            // The task is gone only with its runtime.
            Err(_) => Err(closed),
        }
    }

    /// The name of the member.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether other clients see it now, as far as this process knows.
    #[must_use]
    pub fn state(&self) -> MembershipState {
        self.report.borrow().state
    }

    /// A stream of the states, the current one first. Quick changes may be skipped, but never the last one.
    pub fn states(&self) -> Events<MembershipState> {
        let mut report = self.report.clone();
        report.mark_changed();
        Events::from_stream(unfold((report, None), |(mut report, last)| async move {
            loop {
                report.changed().await.ok()?;
                let state = report.borrow_and_update().state;
                if last != Some(state) {
                    return Some((state, (report, Some(state))));
                }
            }
        }))
    }

    /// Changes the data, and waits until other clients can see it: one round trip while it is present.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future only ends the wait: the data will be changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if it does not fit into one request, [`ErrorKind::NoSession`] if the client is closed, or the runtime of
    /// its session has ended.
    pub async fn update(&self, data: impl Into<Vec<u8>>) -> Result<(), Error> {
        call!("group.update", &self.path)
            .run(async {
                let data = data.into();
                check_size(&self.path, &data, self.bytes_max)?;
                let mut number = 0;
                self.wishes.send_modify(|wish| {
                    wish.data = data;
                    wish.number += 1;
                    number = wish.number;
                });
                let mut report = self.report.clone();
                let fulfilled = report.wait_for(|report| report.fulfilled >= number).await;
                match fulfilled {
                    Ok(_) => Ok(()),
                    // The task is gone only with its runtime.
                    Err(_) => Err(ConnectError::Closed.into()),
                }
            })
            .await
    }

    /// Leaves, and waits until the servers have acknowledged it, or the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background.
    pub async fn leave(self) {
        call!("group.leave", &self.path)
            .wait(async move {
                self.wishes.send_modify(|wish| wish.leave = true);
                // The task has ended when it has nothing more to tell.
                let mut report = self.report.clone();
                while report.changed().await.is_ok() {}
            })
            .await;
    }
}

/// Servers close the connection on a request that is too large, and would do so at each retry.
fn check_size(path: &str, data: &[u8], bytes_max: usize) -> Result<(), Failure> {
    match data.len() <= bytes_max {
        true => Ok(()),
        false => {
            let bytes = data.len();
            let kind = ErrorKind::TooLarge { bytes, bytes_max };
            Err(Failure::elsewhere(path, kind))
        }
    }
}
