//! Who is there.

mod membership;

use std::collections::BTreeMap;
use std::sync::Arc;

use bellwether_client as zk;
use futures_util::stream::{StreamExt, unfold};

use crate::access::Access;
use crate::cache::{Cache, CacheChanges, CacheEvent, LiveTree};
use crate::client::Client;
use crate::name::AcquisitionId;
use crate::path::{NodePath, PathError};
use crate::receipt::RECEIPT;
use crate::state::{Seen, Site, StateError, Watch};

pub use membership::{Membership, MembershipState};

/// The members of a group and their data, by name.
pub type Roster = BTreeMap<String, Vec<u8>>;

/// A group whose members come and go.
///
/// # What it guarantees
///
/// A member is listed while its session lives, and comes back by itself with its latest data when its session has ended and
/// another could be opened, or when another hand has deleted its node. One that has [left](Membership::leave) leaves nothing.
///
/// # What it does not
///
/// A member that died is listed until its session has expired. One that was cut off for longer than its session timeout is
/// missing for a while.
///
/// # Node layout
///
/// The path is a container, each member an ephemeral child with the data that it gave.
///
/// # Fairness
///
/// All members are alike. A name belongs to whoever made it first.
///
/// # Session loss
///
/// A membership goes on with the next session, and says so: [`Membership::states`]. So does a [watch](Self::watch).
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Group, StateError};
/// # async fn run(client: &Client) -> Result<(), StateError> {
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
    site: Site,
}

impl Group {
    /// A group at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            site: Site::new(client, path.into()),
        }
    }

    pub(crate) fn at(site: Site) -> Self {
        Self { site }
    }

    /// Who may touch the nodes. Everybody unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            site: self.site.with_access(Access::new(acl)),
        }
    }

    /// Joins under a name that nobody else has. One round trip where the group has members.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves again, in the background.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn join(&self, data: impl Into<Vec<u8>>) -> Result<Membership, StateError> {
        let name = format!("member-{}", AcquisitionId::new());
        self.join_as(name, data).await
    }

    /// Joins under a name of one's own.
    ///
    /// # Cancel safety
    ///
    /// As [`join`](Self::join).
    ///
    /// # Errors
    ///
    /// [`StateError::NameTaken`] if there is a member of that name, or one of this session that is away and will be back; else as
    /// [`join`](Self::join).
    pub async fn join_as(
        &self,
        name: impl Into<String>,
        data: impl Into<Vec<u8>>,
    ) -> Result<Membership, StateError> {
        let name = name.into();
        check_name(&self.site, &name)?;
        Membership::begin(self.site.clone(), name, data.into()).await
    }

    /// Who is there now: two round trips.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn members(&self) -> Result<Roster, StateError> {
        loop {
            let visit = self.site.visit().await?;
            let zk = visit.client.zk();
            let listed = async {
                let names = match zk.children(visit.node.as_str()).await {
                    Err(zk::Error::NO_NODE) => Vec::new(),
                    names => names?,
                };
                let mut reads = Vec::new();
                for name in names.into_iter().filter(|name| is_member(name)) {
                    let read = zk.get(&visit.node.child(&name));
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
                Err(error) => self.site.again(&visit, error).await?,
            }
        }
    }

    /// All members, each time that somebody comes, goes or changes its data: those of now first. See [`Watch`].
    pub fn watch(&self) -> Watch<Roster> {
        let watching = Watching {
            site: self.site.clone(),
            tree: None,
            shown: None,
            ended: false,
        };
        Watch::new(unfold(watching, |mut watching| async {
            let seen = watching.next().await?;
            Some((seen, watching))
        }))
    }
}

/// Refuses what names no child, or has a meaning of its own.
pub(crate) fn check_name(site: &Site, name: &str) -> Result<(), StateError> {
    let source = match NodePath::parse(&format!("/{name}")) {
        Ok(_) if is_member(name) && !name.contains('/') => return Ok(()),
        Ok(_) => PathError::Reserved,
        Err(source) => source,
    };
    Err(StateError::BadPath {
        path: format!("{}/{name}", site.path()),
        source,
    })
}

fn is_member(name: &str) -> bool {
    !name.starts_with(RECEIPT)
}

/// Makes lists of members of what a cache tells.
struct Watching {
    site: Site,
    tree: Option<(LiveTree, CacheChanges)>,
    shown: Option<Roster>,
    ended: bool,
}

impl Watching {
    async fn next(&mut self) -> Option<Result<Seen<Roster>, StateError>> {
        if self.ended {
            return None;
        }
        loop {
            let Some((tree, changes)) = &mut self.tree else {
                match Cache::at(self.site.clone()).open_in_time().await {
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
            let members = members_in(tree, self.site.path());
            if self.shown.as_ref() != Some(&members) {
                self.shown = Some(members.clone());
                return Some(Ok(Seen::Value(members)));
            }
            // Whatever happened, the next look shows it; the changes only wake.
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
