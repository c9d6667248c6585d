//! Several values that change together.

use std::collections::BTreeMap;

use bellwether_client as zk;
use futures_util::StreamExt;

use crate::error::StateError;
use crate::node::{Access, NodePath, PathError};
use crate::request::receipts::RECEIPT;
use crate::request::{Follow, Load, NotWritten, OpenNode, PersistentNode, Seen, Watch, set_at};
use crate::session::client::Client;
use crate::session::telemetry::call;

/// The child that changes with every update: a reader that finds the same version before and after has read a consistent folder.
const READY: &str = "ready";

/// The values of a folder, by name.
pub type Entries = BTreeMap<String, Vec<u8>>;

/// A folder of values that is read and written as a whole.
///
/// # What it guarantees
///
/// An update is atomic and takes effect exactly once, on the values that it was computed from. A reader sees the folder before an update or
/// after it, never in between (snapshot isolation).
///
/// # What it does not
///
/// These guarantees hold among clients that write through this recipe: a single value that another program sets may be seen beside older
/// ones. One update has to fit into one request: one megabyte, including paths and access lists. Children whose names begin with `receipt-`
/// are not values.
///
/// # Node layout
///
/// The path is a persistent node, each value a persistent child. The child `ready` is set in the same transaction as every update. It is
/// the "ready" node of ZooKeeper's documents, but is not deleted during an update, since a transaction makes that unnecessary. Beside the
/// folder are ephemeral nodes `receipt-…`.
///
/// # Fairness
///
/// None: of two concurrent updates, one is computed again on the result of the other.
///
/// # Session loss
///
/// The next call uses a new session; a watch continues by itself, and reports it.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, ConfigFolder};
/// # use bellwether::error::StateError;
/// # async fn run(client: &Client) -> Result<(), StateError> {
/// let database = ConfigFolder::new(client, "/app/database");
/// database
///     .update(|entries| {
///         entries.insert("host".into(), "db2".into());
///         entries.insert("port".into(), "5433".into());
///     })
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct ConfigFolder {
    node: PersistentNode,
}

/// The folder as it was at one moment.
struct FolderSnapshot {
    entries: Entries,
    state: FolderState,
}

/// Which nodes were there.
#[derive(Clone, Copy)]
enum FolderState {
    /// Not even the folder.
    Missing,
    /// A folder that this recipe has not written yet.
    Unready,
    /// The version of the node that every update sets.
    Ready(i32),
}

impl ConfigFolder {
    /// A folder at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            node: PersistentNode::new(client, path.into()),
        }
    }

    /// Which clients may use the nodes. The list of the [client](crate::Connect::acl) unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            node: self.node.with_access(Access::new(acl)),
        }
    }

    /// All values, as they were at one moment: two round trips, and two more for each update that came between.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// See [`StateError`].
    pub async fn get(&self) -> Result<Entries, StateError> {
        call!("config_folder.get", self.path())
            .run(async { Ok(self.read().await?.entries) })
            .await
    }

    /// Changes the values exactly once, in one transaction, and returns the new values. When another client was quicker, `edit` is called
    /// again on the values that it wrote.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been made or not, once at most.
    ///
    /// # Errors
    ///
    /// See [`StateError`]. Only after [`OutcomeUnknown`](StateError::OutcomeUnknown) it may have been made.
    pub async fn update(&self, edit: impl Fn(&mut Entries)) -> Result<Entries, StateError> {
        call!("config_folder.update", self.path())
            .run(self.update_untraced(edit))
            .await
    }

    async fn update_untraced(&self, edit: impl Fn(&mut Entries)) -> Result<Entries, StateError> {
        loop {
            let before = self.read().await?;
            let mut after = before.entries.clone();
            edit(&mut after);
            let load = self.check(&before.entries, &after)?;
            let written = self.node.once(load, |writer, folder| {
                self.fill(writer, folder, &before, &after)
            });
            match written.await {
                Ok(_) => return Ok(after),
                Err(NotWritten::Refused(
                    zk::Error::BAD_VERSION | zk::Error::NODE_EXISTS | zk::Error::NO_NODE,
                )) => {}
                Err(NotWritten::Refused(source)) => return Err(self.node.refused(source)),
                Err(NotWritten::Failed(error)) => return Err(error),
            }
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.node.path()
    }

    /// The folder as it changes: the current state first. See [`Watch`]. It is [absent](Seen::Absent) until the first
    /// [`update`](Self::update).
    pub fn watch(&self) -> Watch<Entries> {
        let folder = self.clone();
        let ready = self.node.beneath(READY);
        let follow = Follow::new(ready);
        Watch::new(
            follow.freshness(),
            follow.stream().then(move |seen| {
                let folder = folder.clone();
                async move {
                    match seen? {
                        Seen::Value(_) => folder.get_in_time().await.map(Seen::Value),
                        Seen::Absent => Ok(Seen::Absent),
                        Seen::Renewed => Ok(Seen::Renewed),
                    }
                }
            }),
        )
    }

    async fn read(&self) -> Result<FolderSnapshot, StateError> {
        loop {
            let opened = self.node.open().await?;
            if let Some(snapshot) = self.try_read(&opened).await? {
                return Ok(snapshot);
            }
        }
    }

    /// As [`get`](Self::get), but waits until a session can be opened: a change that has been seen must be told.
    async fn get_in_time(&self) -> Result<Entries, StateError> {
        loop {
            let opened = self.node.open_in_time().await?;
            if let Some(snapshot) = self.try_read(&opened).await? {
                return Ok(snapshot.entries);
            }
        }
    }

    /// `None` if the caller has to try again: an update came between, or the answer was lost.
    async fn try_read(&self, opened: &OpenNode) -> Result<Option<FolderSnapshot>, StateError> {
        match snapshot(opened).await {
            Ok(snapshot) => Ok(snapshot),
            Err(error) => self.node.again(opened, error).await.map(|()| None),
        }
    }

    /// How much an update has to carry, if its names can be used.
    fn check(&self, before: &Entries, after: &Entries) -> Result<Load, StateError> {
        /// The folder, the node that every update sets, and a check of it.
        const OWN_WRITES: usize = 3;
        let mut load = Load {
            writes: OWN_WRITES,
            bytes: 0,
        };
        let mut add = |bytes: usize| {
            load.writes += 1;
            load.bytes += bytes;
        };
        for (name, data) in after {
            let source = match NodePath::parse(&format!("/{name}")) {
                Ok(_) if !is_value(name) || name.contains('/') => PathError::Reserved,
                Ok(_) => {
                    if before.get(name) != Some(data) {
                        add(data.len() + name.len());
                    }
                    continue;
                }
                Err(source) => source,
            };
            return Err(StateError::BadPath {
                path: format!("{}/{name}", self.node.path()),
                source,
            });
        }
        for name in before.keys().filter(|name| !after.contains_key(*name)) {
            add(name.len());
        }
        Ok(load)
    }

    fn fill(
        &self,
        writer: &mut zk::Multi<'_>,
        folder: &NodePath,
        before: &FolderSnapshot,
        after: &Entries,
    ) {
        let options = zk::CreateMode::Persistent.with_acl(self.node.access().acl());
        let ready = folder.child(READY);
        match before.state {
            FolderState::Missing => {
                writer.create(folder.as_str(), b"", &options);
                writer.create(&ready, b"", &options);
            }
            FolderState::Unready => writer.create(&ready, b"", &options),
            FolderState::Ready(version) => set_at(writer, &ready, b"", version),
        }
        for (name, data) in after {
            match before.entries.get(name) {
                Some(old) if old == data => {}
                Some(_) => writer.set(&folder.child(name), data, None),
                None => writer.create(&folder.child(name), data, &options),
            }
        }
        for name in before.entries.keys() {
            if !after.contains_key(name) {
                writer.delete(&folder.child(name), None);
            }
        }
    }
}

/// Whether a child is a value, and has no meaning of its own.
fn is_value(name: &str) -> bool {
    // Receipts belong to clients that write single values by other recipes.
    name != READY && !name.starts_with(RECEIPT)
}

/// Reads the folder; `None` if it changed meanwhile.
async fn snapshot(opened: &OpenNode) -> Result<Option<FolderSnapshot>, zk::Error> {
    let zk = opened.session.zk();
    let ready = opened.path.child(READY);
    // The reads are answered in the order in which they are sent. If an update came between the two reads of `ready`, they differ; if not,
    // everything between is consistent.
    let first = zk.exists(&ready);
    let names = zk.children(opened.path.as_str());
    let (first, names) = (first.await, names.await);
    let first = first?;
    let names = match names {
        Ok(names) => names,
        Err(zk::Error::NO_NODE) => {
            return Ok(Some(FolderSnapshot {
                entries: Entries::new(),
                state: FolderState::Missing,
            }));
        }
        Err(error) => return Err(error),
    };
    let mut reads = Vec::new();
    for name in names.into_iter().filter(|name| is_value(name)) {
        let read = zk.get(&opened.path.child(&name));
        reads.push((name, read));
    }
    let last = zk.exists(&ready);
    let mut entries = Some(Entries::new());
    for (name, read) in reads {
        match read.await {
            Ok((data, _)) => {
                if let Some(entries) = &mut entries {
                    entries.insert(name, data.to_vec());
                }
            }
            Err(zk::Error::NO_NODE) => entries = None,
            Err(error) => return Err(error),
        }
    }
    let last = last.await?;
    if first.map(|stat| stat.mzxid) != last.map(|stat| stat.mzxid) {
        return Ok(None);
    }
    Ok(entries.map(|entries| FolderSnapshot {
        entries,
        state: first.map_or(FolderState::Unready, |stat| {
            FolderState::Ready(stat.version)
        }),
    }))
}
