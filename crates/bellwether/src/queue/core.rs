//! The engine under queues and tasks: the directories of items, claims and waiting consumers.
//!
//! | directory | children |
//! |---|---|
//! | `items` | the items, persistent; the version of a node counts its claims |
//! | `claims` | one ephemeral node for each item that is claimed, of the same name |
//! | `line` | the consumers that wait because there is nothing to take |
//! | `returned` | one node for each item that was given back: why, and before when it is not to be taken again |
//! | `dead` | items that were given up |
//! | `done` | tasks that were done |
//! | `receipts` | of puts, and of the ends of claims: see `receipts.rs` |
//!
//! A claim writes the item at the version that was read and creates its node in `claims`, in one multi. So if two consumers claim an item
//! at once, one fails, and a consumer with an older claim finds another version when it settles the claim.
//!
//! In queues where a later item may have to be taken earlier, a producer that puts and a consumer that gives back also write the node
//! `items` itself, and a claim from a list that was not just read checks that the version of `items` is still that of the list. A counter
//! in the stat of the directory would not do, since a multi cannot check it; and the directory is not created anew, with versions from
//! zero, while any item of the list is left.

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bellwether_client as zk;
use futures_util::future::join;

use crate::error::{ErrorKind, Failure, OtherUse};
use crate::line::contender::SEQUENCE_MAX;
use crate::node::data::{RecipeMark, RecordedOrder, Who};
use crate::node::{Access, NodePath, PathError, WRITE_OVERHEAD_BYTES};
use crate::queue::claimed_item::Backoff;
use crate::queue::item_cache::ItemCache;
use crate::queue::order::{Item, ItemId, Rule};
use crate::request::receipts::{OnceError, Receipts};
use crate::session::client::Client;
use crate::session::recipe_options::Identity;
use crate::session::retry::{Retry, until_answered};
use crate::session::{Session, lock};

/// The number of deliveries before an item becomes a dead letter, unless set.
const ATTEMPTS_MAX: u32 = 5;

/// A queue or a set of tasks on the servers. Clones share what they know about it.
#[derive(Clone, Debug)]
pub(crate) struct QueueCore {
    client: Client,
    in_session: InSession,
    /// The state that clones share.
    latest: Arc<Mutex<InSession>>,
    /// The path, as the user wrote it.
    path: String,
    root: Result<NodePath, PathError>,
    rule: Rule,
    pub(crate) access: Access,
    pub(crate) identity: Identity,
    pub(crate) attempts_max: u32,
    pub(crate) backoff: Backoff,
    pub(crate) depth_max: usize,
    pub(crate) item_bytes_max: usize,
    pub(crate) credit: Arc<Credit>,
}

/// The state that belongs to one session.
#[derive(Clone, Debug)]
struct InSession {
    session: Session,
    cache: Arc<ItemCache>,
    receipts: Option<Receipts>,
}

/// Counts of items and claims, by the stats of their directories.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// The number of items that were put since their directory was created.
    pub(crate) puts: i64,
    /// The number of claims that ended without an acknowledgement.
    pub(crate) returns: i64,
    pub(crate) depth: usize,
    pub(crate) claimed: usize,
}

impl QueueCore {
    pub(crate) fn new(client: &Client, path: String, rule: Rule) -> Self {
        let root = NodePath::parse(&path).map(|path| client.resolve(&path));
        let in_session = InSession {
            session: client.current(),
            cache: Arc::default(),
            receipts: None,
        };
        Self {
            client: client.clone(),
            path,
            root,
            rule,
            access: client.access().clone(),
            identity: Identity::default(),
            attempts_max: ATTEMPTS_MAX,
            backoff: Backoff::default(),
            depth_max: DEPTH_MAX,
            item_bytes_max: ITEM_BYTES_MAX,
            credit: Arc::default(),
            latest: Arc::new(Mutex::new(in_session.clone())),
            in_session,
        }
        .with_receipts()
    }

    /// The same place in the current session. Every verb calls this first.
    pub(crate) async fn now(&self) -> Result<Self, Failure> {
        if let Err(error) = &self.root {
            return Err((*error).into());
        }
        let session = self.client.session().await?;
        let mut latest = self.latest();
        if !latest.session.is(&session) {
            *latest = self.in_session(session);
        }
        Ok(Self {
            in_session: latest.clone(),
            ..self.clone()
        })
    }

    /// The same place, without cached knowledge.
    pub(crate) fn fresh(&self) -> Self {
        Self {
            in_session: self.in_session(self.session().clone()),
            ..self.clone()
        }
    }

    /// The same place with new receipts, which have the current access list, and without cached knowledge. Called after the list was changed.
    pub(crate) fn with_receipts(self) -> Self {
        let in_session = self.in_session(self.session().clone());
        Self {
            latest: Arc::new(Mutex::new(in_session.clone())),
            in_session,
            ..self
        }
    }

    fn in_session(&self, session: Session) -> InSession {
        let receipts = self.root.as_ref().ok().map(|_| {
            let dir = self.dir("receipts");
            Receipts::new(&session, dir, self.access.clone())
        });
        InSession {
            session,
            cache: Arc::default(),
            receipts,
        }
    }

    fn latest(&self) -> MutexGuard<'_, InSession> {
        lock(&self.latest)
    }

    /// The identity of the consumer.
    pub(crate) fn who(&self) -> Who {
        self.identity.who(self.session())
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn session(&self) -> &Session {
        &self.in_session.session
    }

    /// Returns the state of the items as this handle knows it in this session.
    pub(crate) fn cache(&self) -> &Arc<ItemCache> {
        &self.in_session.cache
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn rule(&self) -> Rule {
        self.rule
    }

    pub(crate) fn receipts(&self) -> &Receipts {
        let receipts = self.in_session.receipts.as_ref();
        receipts.expect("the path was checked")
    }

    /// A directory of this place.
    pub(crate) fn dir(&self, name: &str) -> NodePath {
        let root = self.root.as_ref().expect("the path was checked");
        root.below(name)
    }

    pub(crate) fn item_path(&self, item: &Item) -> String {
        self.dir("items").child(item.name())
    }

    pub(crate) fn claim_path(&self, item: &Item) -> String {
        self.dir("claims").child(item.name())
    }

    /// Creates the missing ones of these directories as containers, so that the servers remove them when they are empty.
    pub(crate) async fn make(&self, dirs: &[NodePath]) -> Result<(), Failure> {
        self.make_in_order(dirs, None).await
    }

    /// Does the same as [`make`](Self::make). A new queue gets the order of this handle; what is put decides, not what is taken.
    pub(crate) async fn make_to_put(&self, dirs: &[NodePath]) -> Result<(), Failure> {
        self.make_in_order(dirs, self.rule.recorded).await
    }

    async fn make_in_order(
        &self,
        dirs: &[NodePath],
        order: Option<RecordedOrder>,
    ) -> Result<(), Failure> {
        self.mark(order).await?;
        // Parents would be created without the access list of this place.
        for dir in dirs {
            let mut retry = Retry::limited();
            // Idempotent. Its parent may be removed meanwhile.
            while let Err(error) = self.session().make_directory(dir, &self.access).await {
                retry.again_after(Err(error))?;
            }
        }
        Ok(())
    }

    /// Creates the recipe's directory with its mark, and with the order of a new queue, or marks a directory that was created without a mark.
    async fn mark(&self, order: Option<RecordedOrder>) -> Result<(), Failure> {
        let root = self.root.as_ref().expect("the path was checked");
        let mark = match self.rule.named {
            true => RecipeMark::Tasks,
            false => RecipeMark::Queue,
        };
        let zk = self.session().zk();
        let marked = async {
            let data = mark.to_data(order);
            let made = self
                .session()
                .make_marked_directory(root, &data, &self.access);
            made.await?;
            let (found, stat) = zk.get(root.as_str()).await?;
            if found.is_empty() {
                let data = mark.to_data(None);
                zk.set(root.as_str(), &data, Some(stat.version)).await?;
            }
            Ok(RecipeMark::order_of(&found))
        };
        match marked.await {
            Ok(Some(found)) if order.is_some_and(|order| order != found) => {
                Err(ErrorKind::InUse(OtherUse::Order(found)).into())
            }
            Err(zk::Error::SessionEnded(zk::SessionEnd::Expired)) => {
                Err(ErrorKind::SessionEnded.into())
            }
            // Another client may have set the mark, or the access list may forbid it.
            Ok(_) | Err(_) => Ok(()),
        }
    }

    /// Does the same as [`read_counts`](Self::read_counts), for a put, which is refused if the queue has another order. An empty queue without an order,
    /// as one that only consumers have used, gets that of this handle; one with items was made before orders were recorded, and may have
    /// any.
    pub(crate) async fn read_counts_in_order(&self) -> Result<Counts, Failure> {
        let root = self.root.as_ref().expect("the path was checked");
        let zk = self.session().zk();
        let mut retry = Retry::limited();
        loop {
            // Both are sent in one packet.
            let read = until_answered(|| zk.get(root.as_str()));
            let (counts, mark) = join(self.read_counts(), read).await;
            let counts = counts?;
            // There may be no node yet, or the access list may forbid to read it.
            let (Ok((data, stat)), Some(order)) = (mark, self.rule.recorded) else {
                return Ok(counts);
            };
            match RecipeMark::order_of(&data) {
                Some(found) if found != order => {
                    return Err(ErrorKind::InUse(OtherUse::Order(found)).into());
                }
                None if counts.depth == 0 && is_unordered(&data) => {}
                _ => return Ok(counts),
            }
            let data = RecipeMark::Queue.to_data(Some(order));
            match zk.set(root.as_str(), &data, Some(stat.version)).await {
                // Another client may have recorded another order.
                Err(zk::Error::BAD_VERSION) => retry.again_after(Ok(()))?,
                // A later put records it.
                _ => return Ok(counts),
            }
        }
    }

    /// The directories that hold claimable things.
    pub(crate) fn watched_dirs(&self) -> [NodePath; 2] {
        [self.dir("items"), self.dir("claims")]
    }

    /// Looks at the stats of the directories, in one round trip.
    pub(crate) async fn read_counts(&self) -> Result<Counts, Failure> {
        let looked = until_answered(|| async {
            let dirs = self.watched_dirs();
            let zk = self.session().zk();
            // Made before the first await: they are sent in one packet.
            let stats: Vec<_> = dirs.iter().map(|dir| zk.exists(dir.as_str())).collect();
            let mut found = Vec::new();
            for stat in stats {
                found.push(stat.await?);
            }
            Ok(Counts::of(&found))
        });
        Ok(looked.await?)
    }

    /// Added to every write that puts items or gives them back, so that older lists can no longer be claimed from.
    pub(crate) fn outdate_lists(&self, writer: &mut zk::Multi<'_>) {
        if self.rule.overtakes {
            self.outdate_ranked_lists(writer);
        }
    }

    /// Does the same as [`outdate_lists`](Self::outdate_lists), for an item with a rank, whatever the order of this handle.
    pub(crate) fn outdate_ranked_lists(&self, writer: &mut zk::Multi<'_>) {
        writer.set(self.dir("items").as_str(), b"", None);
    }

    /// The version of all lists that are read after it, in queues where that matters.
    pub(crate) fn list_version(&self) -> impl Future<Output = Result<i32, zk::Error>> + use<'_> {
        let items = self.dir("items");
        let stat = self
            .rule
            .overtakes
            .then(|| self.session().zk().exists(items.as_str()));
        async {
            match stat {
                // Every put makes it greater than zero.
                Some(stat) => Ok(stat.await?.map_or(0, |stat| stat.version)),
                None => Ok(0),
            }
        }
    }

    /// Lists items and claims, in one round trip, for [`ItemCache`].
    pub(crate) async fn refill(&self) -> Result<(), Failure> {
        self.cache().begin_refill();
        let listed = until_answered(|| async {
            let dirs = self.watched_dirs();
            let zk = self.session().zk();
            let version = self.list_version();
            let lists: Vec<_> = dirs
                .iter()
                .map(|dir| zk.children_stat(dir.as_str()))
                .collect();
            let version = version.await?;
            let mut found = Vec::new();
            for list in lists {
                found.push(match list.await {
                    Ok((children, stat)) => Some((children, stat)),
                    Err(zk::Error::NO_NODE) => None,
                    Err(error) => return Err(error),
                });
            }
            Ok((version, found))
        });
        let (version, lists) = listed.await?;
        self.stock(version, lists)
    }

    /// Hands lists of items and claims to [`ItemCache`]. Fails if there are items of another order.
    pub(crate) fn stock(
        &self,
        version: i32,
        lists: Vec<Option<(Vec<String>, zk::Stat)>>,
    ) -> Result<(), Failure> {
        match self.cache().stock(self.rule, version, lists) {
            Some(other) => Err(ErrorKind::InUse(OtherUse::Order(other)).into()),
            None => Ok(()),
        }
    }
}

impl Counts {
    /// The last list is that of the claims. A missing directory was never used, or was removed when it was empty.
    pub(crate) fn of(stats: &[Option<zk::Stat>]) -> Self {
        let Some((claims, items)) = stats.split_last() else {
            return Self::default();
        };
        let mut counts = Self::default();
        let mut ends = 0;
        for stat in items.iter().flatten() {
            let (creates, deletes) = child_changes(stat);
            counts.puts += creates;
            ends += deletes;
            counts.depth += usize::try_from(stat.num_children).unwrap_or(0);
        }
        if let Some(stat) = claims {
            let (_, deletes) = child_changes(stat);
            counts.returns = deletes - ends;
            counts.claimed = usize::try_from(stat.num_children).unwrap_or(0);
        }
        counts
    }
}

/// Returns whether the data of a directory is that of a queue without an order.
fn is_unordered(data: &[u8]) -> bool {
    data.is_empty() || RecipeMark::from_data(data) == Some(RecipeMark::Queue)
}

/// Returns the numbers of children that were ever created and deleted: `cversion` is the sum (Apache's `DataNode.copyStat`). It wraps in 32
/// bits, so this is right up to 2^31 creations, which are all that the servers can number.
fn child_changes(stat: &zk::Stat) -> (i64, i64) {
    let created_twice = stat.cversion.wrapping_add(stat.num_children);
    let created = i64::from(created_twice.cast_unsigned() / 2);
    (created, created - i64::from(stat.num_children))
}

/// The options of queues and tasks.
macro_rules! taker_options {
    () => {
        $crate::session::recipe_options::identity_options!(core.identity);

        /// Sets which clients may use the directories and nodes at this path. The list of the [client](crate::Connect::acl) unless set.
        /// Directories that have to be created above it stay open: create them first if they should not be.
        #[must_use]
        pub fn acl(self, acl: impl Into<Vec<$crate::zk::Acl>>) -> Self {
            let mut core = self.core;
            core.access = $crate::node::Access::new(acl);
            Self::of(core.with_receipts())
        }

        /// The path.
        #[must_use]
        pub fn path(&self) -> &str {
            self.core.path()
        }

        /// Exponential backoff: delays the next delivery of an item that is given back, by `first` after the first attempt, then by twice
        /// as long each time, up to `longest`. So a short outage of a dependency does not use up all attempts. No delay unless set; an item
        /// whose claim was dropped, or whose session ended, is delivered again at once.
        #[must_use]
        pub fn backoff(mut self, first: std::time::Duration, longest: std::time::Duration) -> Self {
            self.core.backoff = $crate::queue::claimed_item::Backoff { first, longest };
            self
        }
    };
}

pub(crate) use taker_options;

/// The number of items at which a put is refused, unless set. Their names take less than 50 bytes each, and clients of default settings
/// read no list beyond 1 MiB.
pub(crate) const DEPTH_MAX: usize = 10_000;

/// The largest item unless set: a claim writes it again, and a batch or a read-ahead holds several.
pub(crate) const ITEM_BYTES_MAX: usize = 64 << 10;

/// An item has to fit into one request together with the record of its end.
const BATCH_BYTES_MAX: usize = 900 << 10;

/// The index of the first write of an exactly-once multi: the receipt comes first.
const AFTER_RECEIPT: usize = 1;

/// The longest name of an item: rank, id and sequence.
const NAME_BYTES_MAX: usize = 50;

/// The number of puts that are made without a look at the depth: a tenth of the room that is left.
#[derive(Debug, Default)]
pub(crate) struct Credit(AtomicI64);

impl Credit {
    fn spend(&self, count: usize) -> bool {
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.0.fetch_sub(count, Ordering::Relaxed) >= count
    }

    fn set(&self, reserved: usize) {
        let credit = i64::try_from(reserved / 10).unwrap_or(i64::MAX);
        self.0.store(credit, Ordering::Relaxed);
    }
}

impl QueueCore {
    /// Puts items in one multi: all or none, and once.
    pub(crate) async fn put(&self, items: Vec<(i64, Vec<u8>)>) -> Result<Vec<ItemId>, Failure> {
        if items.is_empty() {
            return Ok(Vec::new());
        }
        self.check_room(&items).await?;
        let dir = self.dir("items");
        let mut ids = Vec::new();
        let mut creates = Vec::new();
        for (rank, data) in items {
            let id = ItemId::new();
            creates.push((dir.child(Item::prefix(self.rule(), rank, &id)), data));
            ids.push(id);
        }
        self.write_once(&[dir, self.dir("receipts")], |writer| {
            let options = zk::CreateMode::PersistentSequential.with_acl(self.access.acl());
            for (prefix, data) in &creates {
                writer.create(prefix, data, &options);
            }
            self.outdate_lists(writer)
        })
        .await?;
        if self.rule().overtakes {
            self.cache().outdate();
        }
        Ok(ids)
    }

    /// Makes writes exactly once, and first the directories that they need if those are missing.
    pub(crate) async fn write_once(
        &self,
        dirs: &[NodePath],
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<(), Failure> {
        self.write_unless_gone(dirs, None, fill).await.map(drop)
    }

    /// Does the same as [`write_once`](Self::write_once); `false` if the node that the first of the writes is about is not there.
    pub(crate) async fn write_once_if_there(
        &self,
        dirs: &[NodePath],
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<bool, Failure> {
        self.write_unless_gone(dirs, Some(AFTER_RECEIPT), fill)
            .await
    }

    /// `false` if the write of that index found no node.
    async fn write_unless_gone(
        &self,
        dirs: &[NodePath],
        index_of_gone: Option<usize>,
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<bool, Failure> {
        let mut retry = Retry::limited();
        let mut operation = self.receipts().operation()?;
        loop {
            match operation.send(&fill).await {
                Ok(_) => return Ok(true),
                Err(OnceError::Refused(zk::MultiError::Refused {
                    index,
                    code: zk::ErrorCode::NoNode,
                })) if index_of_gone == Some(index) => return Ok(false),
                // Refused as a whole, so nothing was written. Empty directories are removed by the servers, so they may vanish again
                // before the next try.
                Err(OnceError::Refused(error)) if zk::Error::from(error) == zk::Error::NO_NODE => {
                    self.make_to_put(dirs).await?;
                    retry.again_after(Ok(()))?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Refuses an item that is too large, or a put to a full queue. The depth is read now and then, and at every put when it is close to
    /// the limit; concurrent puts do not see each other, so they may exceed the limit by their number.
    pub(crate) async fn check_room(&self, items: &[(i64, Vec<u8>)]) -> Result<(), Failure> {
        let dir_bytes = self.dir("items").as_str().len();
        let create_bytes = dir_bytes + NAME_BYTES_MAX + WRITE_OVERHEAD_BYTES + self.access.bytes();
        let mut batch_bytes = 0;
        for (_, data) in items {
            if data.len() > self.item_bytes_max {
                return Err(ErrorKind::TooLarge {
                    bytes: data.len(),
                    bytes_max: self.item_bytes_max,
                }
                .into());
            }
            batch_bytes += data.len() + create_bytes;
        }
        check_bytes(batch_bytes)?;
        if self.credit.spend(items.len()) {
            return Ok(());
        }
        let counts = self.read_counts_in_order().await?;
        if counts.puts >= i64::from(SEQUENCE_MAX) {
            return Err(ErrorKind::SequenceUsedUp.into());
        }
        let after = counts.depth + items.len();
        if after > self.depth_max {
            self.credit.set(0);
            return Err(ErrorKind::Full {
                depth: counts.depth,
            }
            .into());
        }
        self.credit.set(self.depth_max - after);
        Ok(())
    }

    /// Refuses a task whose name is so long that the request would be too large.
    pub(crate) fn check_named(
        &self,
        name: &str,
        data: &[u8],
        writes: usize,
    ) -> Result<(), Failure> {
        let path_bytes = self.dir("items").child(name).len();
        check_bytes(data.len() + writes * (path_bytes + WRITE_OVERHEAD_BYTES + self.access.bytes()))
    }
}

fn check_bytes(bytes: usize) -> Result<(), Failure> {
    match bytes > BATCH_BYTES_MAX {
        true => Err(ErrorKind::TooLarge {
            bytes,
            bytes_max: BATCH_BYTES_MAX,
        }
        .into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(cversion: i32, num_children: i32) -> Option<zk::Stat> {
        Some(zk::Stat {
            czxid: 0,
            mzxid: 0,
            pzxid: 0,
            ctime: 0,
            mtime: 0,
            version: 0,
            cversion,
            aversion: 0,
            ephemeral_owner: 0,
            data_length: 0,
            num_children,
        })
    }

    #[test]
    fn tally_counts_puts_and_returns() {
        // Five items were put and two deleted; four claims were made, three have ended, one of them without its item.
        let counts = Counts::of(&[stat(7, 3), stat(7, 1)]);
        let expected = Counts {
            puts: 5,
            returns: 1,
            depth: 3,
            claimed: 1,
        };
        assert_eq!(counts, expected);
    }

    #[test]
    fn puts_are_counted_up_to_the_end_of_the_sequence() {
        for puts in [(1 << 30) - 1, 1 << 30, i32::MAX] {
            let cversion = puts.wrapping_mul(2).wrapping_sub(3);
            let counts = Counts::of(&[stat(cversion, 3), None]);
            assert_eq!((counts.puts, counts.depth), (i64::from(puts), 3));
        }
    }

    #[test]
    fn missing_directories_are_empty() {
        assert_eq!(Counts::of(&[None, None]), Counts::default());
    }
}
