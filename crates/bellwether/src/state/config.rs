//! Shared configuration: one value, or several that change together, which many clients read and few write.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::StreamExt;

use crate::error::{Error, ErrorKind, Failure};
use crate::node::data::Payload;
use crate::node::{Access, NodePath, PathError, Version};
use crate::request::receipts::RECEIPT;
use crate::request::{Follow, Load, NotWritten, OpenNode, PersistentNode, Seen, Watch, set_at};
use crate::session::client::Client;
use crate::session::telemetry::call;
use crate::state::live::{Live, Source, Update};

/// A value in a node: bytes, text, or any type of serde's in [`Json`](crate::Json).
///
/// For several values that belong together see [`ConfigFolder`].
///
/// # What it guarantees
///
/// An acknowledged write took effect exactly once, and never overwrites a later one, even if the connection was lost in between. A
/// [watch](Self::watch) shows the latest value in the end, reports a deletion, and never goes back.
///
/// # What it does not
///
/// A watch may skip values that changed quickly. [`get`](Self::get) returns what the connected server knows, which may lag behind. A node
/// that is deleted and created again counts its versions from zero, so a [`compare_and_set`](Self::compare_and_set) with an old version may
/// succeed wrongly: where that matters, set an empty value instead of deleting.
///
/// # Node layout
///
/// The path is a persistent node with the value. Beside it are ephemeral nodes `receipt-…`, one for each concurrent write of a client.
///
/// # Fairness
///
/// None: the last write wins, or with [`compare_and_set`](Self::compare_and_set) the first.
///
/// # Session loss
///
/// The next call uses a new session; a watch continues by itself, and reports it.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Config, Json};
/// # use bellwether::Error;
/// # use bellwether::state::Seen;
/// use futures_util::StreamExt;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Limits {
///     requests_max: u32,
/// }
///
/// # async fn run(client: &Client) -> Result<(), Error> {
/// let limits = Config::<Json<Limits>>::new(client, "/app/limits");
/// limits.set(&Json(Limits { requests_max: 100 })).await?;
/// let mut changes = limits.watch();
/// while let Some(change) = changes.next().await {
///     match change? {
///         Seen::Value(entry) => println!("at most {} now", entry.value.0.requests_max),
///         Seen::Absent => println!("no limit"),
///         _ => {}
///     }
/// }
/// # Ok(()) }
/// ```
pub struct Config<T = Vec<u8>> {
    node: PersistentNode,
    holds: PhantomData<fn(T) -> T>,
}

/// A value and its version.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry<T> {
    /// The value.
    pub value: T,
    /// The version that [`Config::compare_and_set`] expects.
    pub version: Version,
}

impl<T: Payload + Send + 'static> Config<T> {
    /// A value at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            node: PersistentNode::new(client, path.into()),
            holds: PhantomData,
        }
    }

    pub(crate) fn at(node: PersistentNode) -> Self {
        Self {
            node,
            holds: PhantomData,
        }
    }

    /// Sets which clients may use the nodes. The list of the [client](crate::Connect::acl) unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            node: self.node.with_access(Access::new(acl)),
            ..self
        }
    }

    /// The value now; `None` if there is none. One round trip.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NoSession`, `Refused`.
    pub async fn get(&self) -> Result<Option<Entry<T>>, Error> {
        call!("config.get", self.path())
            .find(async {
                let content = self.node.read().await?;
                content
                    .map(|content| decode(&self.node, content))
                    .transpose()
            })
            .await
    }

    /// Sets the value exactly once, unconditionally: one round trip if there was a value.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been made or not, once at most.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `NotEncodable`, `TooManyEphemerals`, `NoSession`, `OutcomeUnknown`,
    /// `Refused`. Only after `OutcomeUnknown` it may have been made.
    pub async fn set(&self, value: &T) -> Result<(), Error> {
        call!("config.set", self.path())
            .run(async {
                let data = self.encode(value)?;
                loop {
                    match self
                        .write(&data, |writer, node| writer.set(node, &data, None))
                        .await
                    {
                        Ok(()) => return Ok(()),
                        Err(NotWritten::Refused(zk::Error::NO_NODE)) => {}
                        Err(error) => return Err(self.node.not_written(error)),
                    }
                    match self.create_data(&data).await {
                        Ok(()) => return Ok(()),
                        // Another client created it meanwhile; this write is later, and wins.
                        Err(NotWritten::Refused(zk::Error::NODE_EXISTS)) => {}
                        Err(error) => return Err(self.node.not_written(error)),
                    }
                }
            })
            .await
    }

    /// Creates the value exactly once if there is none, and returns whether it did.
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub async fn create(&self, value: &T) -> Result<bool, Error> {
        call!("config.create", self.path())
            .ask(async {
                let data = self.encode(value)?;
                match self.create_data(&data).await {
                    Ok(()) => Ok(true),
                    Err(NotWritten::Refused(zk::Error::NODE_EXISTS)) => Ok(false),
                    Err(error) => Err(self.node.not_written(error)),
                }
            })
            .await
    }

    /// Compare-and-set: sets the value exactly once if its version is still `version`. Returns the new version, or `None` if another client
    /// has changed or deleted the value.
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub async fn compare_and_set(
        &self,
        version: Version,
        value: &T,
    ) -> Result<Option<Version>, Error> {
        call!("config.compare_and_set", self.path())
            .find(async {
                let data = self.encode(value)?;
                match self
                    .write(&data, |writer, node| {
                        set_at(writer, node, &data, version.number())
                    })
                    .await
                {
                    Ok(()) => Ok(Some(version.next())),
                    Err(NotWritten::Refused(zk::Error::BAD_VERSION | zk::Error::NO_NODE)) => {
                        Ok(None)
                    }
                    Err(error) => Err(self.node.not_written(error)),
                }
            })
            .await
    }

    /// Deletes the value, exactly once, and returns whether there was one.
    ///
    /// # Cancel safety
    ///
    /// As [`set`](Self::set).
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set).
    pub async fn delete(&self) -> Result<bool, Error> {
        call!("config.delete", self.path())
            .ask(async {
                match self
                    .write(&[], |writer, node| writer.delete(node, None))
                    .await
                {
                    Ok(()) => Ok(true),
                    Err(NotWritten::Refused(zk::Error::NO_NODE)) => Ok(false),
                    Err(error) => Err(self.node.not_written(error)),
                }
            })
            .await
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.node.path()
    }

    /// The value as it changes: the current one first. See [`Watch`].
    ///
    /// Data that cannot be decoded is an error in the stream, which continues.
    pub fn watch(&self) -> Watch<Entry<T>> {
        let node = self.node.clone();
        let follow = Follow::new(self.node.clone());
        Watch::new(
            "config.watch",
            self.path(),
            follow.freshness(),
            follow.stream().map(move |seen| match seen? {
                Seen::Value(content) => decode(&node, content).map(Seen::Value),
                Seen::Absent => Ok(Seen::Absent),
                Seen::Renewed => Ok(Seen::Renewed),
            }),
        )
    }

    /// The value, kept up to date in the background; `None` while there is none. See [`Live`].
    ///
    /// ```no_run
    /// # use bellwether::{Client, Config, Json};
    /// # #[derive(serde::Serialize, serde::Deserialize)] struct Limits { requests_max: u32 }
    /// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let limits = Config::<Json<Limits>>::new(client, "/limits").live().await?;
    /// // In each handler of a request:
    /// let requests_max = match limits.get().as_ref() {
    ///     Some(entry) => entry.value.0.requests_max,
    ///     None => 100,
    /// };
    /// # Ok(()) }
    /// ```
    ///
    /// Data that cannot be decoded leaves the last value, which is then stale. A warning is logged.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NoSession`, `Refused`.
    pub async fn live(&self) -> Result<Live<Option<Entry<T>>>, Error>
    where
        T: Sync,
    {
        let node = self.node.clone();
        let follow = move || {
            let decoding = node.clone();
            let seen = Follow::new(node.clone()).stream();
            let news = seen.map(move |seen| {
                Ok(match seen? {
                    // Versions start at zero when a node is deleted and created again.
                    Seen::Value(content) => {
                        Update::Now(content.1.mzxid, Some(decode(&decoding, content)?))
                    }
                    Seen::Absent => Update::Now(0, None),
                    Seen::Renewed => Update::Renewed,
                })
            });
            news.boxed()
        };
        let source = Source {
            node: self.node.clone(),
            follow: Box::new(follow),
            is_same: |(one, _), (other, _)| one == other,
        };
        call!("config.live", self.path())
            .run(Live::start("config.live", source))
            .await
    }

    async fn create_data(&self, data: &[u8]) -> Result<(), NotWritten> {
        let options = zk::CreateMode::Persistent.with_acl(self.node.access().acl());
        self.write(data, |writer, node| writer.create(node, data, &options))
            .await
    }

    async fn write(
        &self,
        data: &[u8],
        fill: impl Fn(&mut zk::Multi<'_>, &str),
    ) -> Result<(), NotWritten> {
        let fill =
            |writer: &mut zk::Multi<'_>, node: &crate::node::NodePath| fill(writer, node.as_str());
        self.node.once(data.len(), fill).await.map(drop)
    }

    fn encode(&self, value: &T) -> Result<Vec<u8>, Failure> {
        value.to_bytes().map_err(|error| {
            let kind = ErrorKind::NotEncodable(error.into());
            self.node.failed(kind)
        })
    }
}

fn decode<T: Payload>(
    node: &PersistentNode,
    content: (Bytes, zk::Stat),
) -> Result<Entry<T>, Failure> {
    let (data, stat) = content;
    match T::from_bytes(data.to_vec()) {
        Ok(value) => Ok(Entry {
            value,
            version: stat.version.into(),
        }),
        Err(error) => Err(node.unreadable(error)),
    }
}

impl<T> Clone for Config<T> {
    fn clone(&self) -> Self {
        Self {
            node: self.node.clone(),
            holds: PhantomData,
        }
    }
}

impl<T> fmt::Debug for Config<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("path", &self.node.path())
            .finish_non_exhaustive()
    }
}

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
/// # use bellwether::Error;
/// # async fn run(client: &Client) -> Result<(), Error> {
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

/// The nodes that were there.
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

    /// Sets which clients may use the nodes. The list of the [client](crate::Connect::acl) unless set.
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
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NoSession`, `Refused`.
    pub async fn get(&self) -> Result<Entries, Error> {
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
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `OutcomeUnknown`, `Refused`. Only after
    /// `OutcomeUnknown` it may have been made.
    pub async fn update(&self, edit: impl Fn(&mut Entries)) -> Result<Entries, Error> {
        call!("config_folder.update", self.path())
            .run(async {
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
                        Err(error) => return Err(self.node.not_written(error)),
                    }
                }
            })
            .await
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
            "config_folder.watch",
            self.path(),
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

    async fn read(&self) -> Result<FolderSnapshot, Failure> {
        loop {
            let opened = self.node.open().await?;
            if let Some(snapshot) = self.try_read(&opened).await? {
                return Ok(snapshot);
            }
        }
    }

    /// Does the same as [`get`](Self::get), but waits until a session can be opened: a change that has been seen must be told.
    async fn get_in_time(&self) -> Result<Entries, Failure> {
        loop {
            let opened = self.node.open_in_time().await?;
            if let Some(snapshot) = self.try_read(&opened).await? {
                return Ok(snapshot.entries);
            }
        }
    }

    /// `None` if the caller has to try again: an update came between, or the answer was lost.
    async fn try_read(&self, opened: &OpenNode) -> Result<Option<FolderSnapshot>, Failure> {
        match snapshot(opened).await {
            Ok(snapshot) => Ok(snapshot),
            Err(error) => self.node.again(opened, error).await.map(|()| None),
        }
    }

    /// Returns the load of an update, if its names can be used.
    fn check(&self, before: &Entries, after: &Entries) -> Result<Load, Failure> {
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
            let path = format!("{}/{name}", self.node.path());
            return Err(Failure::elsewhere(path, ErrorKind::BadPath(source)));
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

/// Returns whether a child is a value, and has no meaning of its own.
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
