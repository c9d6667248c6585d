//! Sessions with the servers: one open session, from its first connection to its end, and what is counted and cleaned up in it.
//!
//! # Ephemeral nodes of a session
//!
//! When a session ends, the servers remove its ephemeral nodes in one transaction that lists all their paths. A transaction that is larger
//! than a frame cannot be read again, and stops an ensemble (ZOOKEEPER-4306). So the paths are counted here, and a request that would
//! exceed the limit is refused before it is sent.
//!
//! # Member names of a session
//!
//! The servers know which session created a node, but not which member within the session. So a session records which member owns which
//! path: each path has one owner, and a node of this session at the path belongs to that owner.

pub(crate) mod cleaner;
pub(crate) mod client;
pub(crate) mod liveness;
pub(crate) mod recipe_options;
pub(crate) mod retry;
pub(crate) mod runtime;
pub(crate) mod slots;
pub(crate) mod telemetry;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::process::Native;
use tokio::sync::watch;

use crate::node::data::Who;
use crate::node::{Access, NodePath};
use crate::session::cleaner::Cleaner;
use crate::session::client::Connect;
use crate::session::liveness::{Liveness, ServerKind, run_heartbeat};
use crate::session::runtime::SessionRuntime;
use crate::session::slots::{NoSlot, Slot, Slots};
use crate::session::telemetry::Traffic;

pub(crate) use bellwether_client::Moment;

/// An open session. Clones share it; it is closed when the last clone is gone.
///
/// Guards, claims and places in line belong to one session, and end with it.
#[derive(Clone)]
pub(crate) struct Session(Arc<Native<Inner>>);

struct Inner {
    /// Rooted at the servers' root, so that a missing chroot can be made.
    zk: zk::Client,
    chroot: Option<NodePath>,
    cleaner: Cleaner,
    liveness: Liveness,
    ephemeral_quota: EphemeralQuota,
    member_names: MemberNames,
    slots: Slots,
    runtime: SessionRuntime,
    options: Connect,
    traffic: Traffic,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.traffic.report(&self.zk);
    }
}

/// Knows a session without keeping it open.
#[derive(Clone, Debug)]
pub(crate) struct WeakSession(Weak<Native<Inner>>);

impl WeakSession {
    pub(crate) fn upgrade(&self) -> Option<Session> {
        self.0.upgrade().map(Session)
    }
}

impl Session {
    /// Takes over a session, whose handle is rooted at the servers' root.
    pub(crate) fn start(
        zk: zk::Client,
        kind: ServerKind,
        chroot: Option<NodePath>,
        options: Connect,
    ) -> Self {
        let runtime = SessionRuntime::of(&zk);
        let session = Self(Arc::new(Native::new(Inner {
            cleaner: Cleaner::start(&runtime, zk.clone()),
            liveness: Liveness::new(kind, zk.clone()),
            ephemeral_quota: EphemeralQuota::default(),
            member_names: MemberNames::default(),
            slots: Slots::default(),
            zk,
            chroot,
            runtime: runtime.clone(),
            options,
            traffic: Traffic::default(),
        })));
        runtime.spawn_detached(run_heartbeat(session.downgrade(), runtime.clone()));
        telemetry::session_opened();
        session
    }

    /// The session timeout that the servers granted.
    pub(crate) fn session_timeout(&self) -> Duration {
        self.0.zk.session_timeout()
    }

    /// The id of the session, as the servers' own tools show it.
    pub(crate) fn session_id(&self) -> i64 {
        self.0.zk.session_id()
    }

    /// Returns whether both are the same session.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns whether the session has ended, as far as this process knows.
    pub(crate) fn is_ended(&self) -> bool {
        self.0.zk.state().is_ended()
    }

    /// Returns whether this is a forked child of the process that has the session. Then it has ended here.
    pub(crate) fn is_forked(&self) -> bool {
        self.0.runtime.is_forked()
    }

    /// Resolves when the session has ended. Cancel safe.
    pub(crate) async fn ended(&self) {
        self.0.zk.ended().await;
    }

    /// Brings the server of this session up to what an earlier session of the same client may have seen. Within a session the servers
    /// ensure that.
    pub(crate) async fn catch_up(&self) {
        while let Err(error) = self.0.zk.sync("/").await
            && error.is_transient()
        {}
    }

    /// The plain client of this session, rooted at the chroot.
    pub(crate) fn raw(&self) -> zk::Client {
        match &self.0.chroot {
            Some(chroot) => self
                .0
                .zk
                .chroot(chroot.as_str())
                .expect("the chroot is a checked path"),
            None => self.0.zk.clone(),
        }
    }

    /// Ends the session now, even if clones and guards exist, and waits until the servers have acknowledged it. Nodes that were released or
    /// given up before are deleted first.
    pub(crate) async fn close(&self) {
        // Crash marks outlive the session: marks that have to be restored are restored before it ends.
        let swept = self.0.cleaner.swept();
        self.0.runtime.timeout(self.session_timeout(), swept).await;
        self.0.zk.close().await;
        self.report_traffic();
    }

    /// Adds what was sent since the last report to the metrics.
    pub(crate) fn report_traffic(&self) {
        self.0.traffic.report(&self.0.zk);
    }

    pub(crate) fn downgrade(&self) -> WeakSession {
        WeakSession(Arc::downgrade(&self.0))
    }

    /// Rooted at the servers' root: paths go through [`resolve`](Self::resolve).
    pub(crate) fn zk(&self) -> &zk::Client {
        &self.0.zk
    }

    pub(crate) fn cleaner(&self) -> &Cleaner {
        &self.0.cleaner
    }

    pub(crate) fn liveness(&self) -> &Liveness {
        &self.0.liveness
    }

    /// The identity of this session, as other users see it.
    pub(crate) fn who(&self) -> Who {
        self.0.options.who(self.session_id())
    }

    /// The access list of nodes that belong to no recipe with a list of its own.
    pub(crate) fn access(&self) -> &Access {
        self.0.options.access()
    }

    pub(crate) fn ephemeral_quota(&self) -> &EphemeralQuota {
        &self.0.ephemeral_quota
    }

    pub(crate) fn member_names(&self) -> &MemberNames {
        &self.0.member_names
    }

    /// Waits for a slot in a line, as a task of this session: see [`Slots::take`].
    pub(crate) async fn slot(
        &self,
        directory: &NodePath,
        who: &Who,
        line_max: usize,
    ) -> Result<Slot, NoSlot> {
        tokio::select! {
            biased;
            slot = self.0.slots.take(directory.as_str(), &who.owner, line_max) => slot,
            () = self.ended() => Err(NoSlot::SessionEnded),
        }
    }

    pub(crate) fn runtime(&self) -> &SessionRuntime {
        &self.0.runtime
    }

    /// The path as the servers know it, with the chroot in front.
    pub(crate) fn resolve(&self, path: &NodePath) -> NodePath {
        match &self.0.chroot {
            Some(chroot) => chroot.join(path),
            None => path.clone(),
        }
    }

    /// Creates a directory and its missing parents in one round trip, as containers, which the servers remove when they are empty. A
    /// missing chroot is created as a persistent node. `access` is for the directory itself, not for its parents. `NoNode` means that a
    /// container above was removed again before it was used; another try may succeed.
    pub(crate) async fn make_directory(
        &self,
        dir: &NodePath,
        access: &Access,
    ) -> Result<(), zk::Error> {
        let (own, container) = (dir.as_str().len(), zk::CreateMode::Container);
        self.make_lineage(dir, b"", container, (access, own)).await
    }

    /// Does the same as [`make_directory`](Self::make_directory), for a directory in a directory of the same recipe: `access` is for both.
    pub(crate) async fn make_inner_directory(
        &self,
        dir: &NodePath,
        access: &Access,
    ) -> Result<(), zk::Error> {
        let (own, container) = (dir.directory().as_str().len(), zk::CreateMode::Container);
        self.make_lineage(dir, b"", container, (access, own)).await
    }

    /// Does the same as [`make_directory`](Self::make_directory), with data of its own.
    pub(crate) async fn make_marked_directory(
        &self,
        dir: &NodePath,
        data: &[u8],
        access: &Access,
    ) -> Result<(), zk::Error> {
        let (own, container) = (dir.as_str().len(), zk::CreateMode::Container);
        self.make_lineage(dir, data, container, (access, own)).await
    }

    /// Does the same as [`make_directory`](Self::make_directory), but the directory itself is persistent, with data of its own.
    pub(crate) async fn make_kept_directory(
        &self,
        dir: &NodePath,
        data: &[u8],
        access: &Access,
    ) -> Result<(), zk::Error> {
        let (own, kept) = (dir.as_str().len(), zk::CreateMode::Persistent);
        self.make_lineage(dir, data, kept, (access, own)).await
    }

    /// `access` is for paths of at least `own` bytes: those of the recipe. The others are above it, and open.
    async fn make_lineage(
        &self,
        dir: &NodePath,
        data: &[u8],
        mode: zk::CreateMode,
        access: (&Access, usize),
    ) -> Result<(), zk::Error> {
        let own = (data, mode, access);
        let containers = zk::CreateMode::Container;
        match self.create_lineage(dir, own, containers).await {
            // Servers before 3.5 have no containers.
            Err(zk::Error::UNIMPLEMENTED) => {
                let kept = zk::CreateMode::Persistent;
                self.create_lineage(dir, (data, kept, access), kept).await
            }
            result => result,
        }
    }

    async fn create_lineage(
        &self,
        dir: &NodePath,
        (data, mode, (access, own)): (&[u8], zk::CreateMode, (&Access, usize)),
        above: zk::CreateMode,
    ) -> Result<(), zk::Error> {
        let kept = match &self.0.chroot {
            Some(chroot) => chroot.as_str().len(),
            None => 0,
        };
        let mut creates = Vec::new();
        for path in dir.lineage() {
            let (data, mode) = match path == dir.as_str() {
                true => (data, mode),
                false => (b"".as_slice(), above),
            };
            let acl = match path.len() >= own {
                true => access.acl(),
                false => vec![zk::Acl::open()],
            };
            let mode = match path.len() <= kept {
                true => zk::CreateMode::Persistent,
                false => mode,
            };
            let mut writer = self.0.zk.new_multi();
            writer.create(path, data, mode.with_acl(acl));
            if mode == zk::CreateMode::Container {
                // An empty container is removed only if it has had a child (Apache's `ContainerManager`). It has one from the start, so
                // that it is removed if we die before we use it.
                let first = format!("{path}/first");
                writer.create(&first, b"", zk::CreateMode::Persistent);
                writer.delete(&first, None);
            }
            // Requests leave when their futures are made, so these are sent in one packet.
            creates.push(writer.commit());
        }
        let mut last = Ok(());
        for created in creates {
            last = match (created.await.map_err(zk::Error::from), last) {
                (Ok(_) | Err(zk::Error::NODE_EXISTS), _) => Ok(()),
                (Err(zk::Error::UNIMPLEMENTED), _) => return Err(zk::Error::UNIMPLEMENTED),
                // It has no parent because an earlier create in the batch was refused.
                (Err(zk::Error::NO_NODE), Err(cause)) => Err(cause),
                (Err(error), _) => Err(error),
            };
        }
        // Only the last result counts: parents may exist where this client has no permission to create.
        last
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.0.zk.session_id())
            .field("chroot", &self.0.chroot)
            .finish_non_exhaustive()
    }
}

/// The limit for the paths of a session: a frame of one mebibyte, less a reserve for nodes whose removal is still under way.
const BYTES_MAX: usize = 900_000;

/// Each path is preceded by its length.
const PATH_OVERHEAD_BYTES: usize = 4;

/// The paths of a session's ephemeral nodes. Clones count together.
#[derive(Clone, Debug, Default)]
pub(crate) struct EphemeralQuota(Arc<AtomicUsize>);

impl EphemeralQuota {
    /// The bytes in use now.
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Returns whether one more path fits. Callers that ask at the same moment do not see each other; the limit has room for them.
    pub(crate) fn has_room(&self, path_bytes: usize) -> bool {
        self.bytes() + path_bytes + PATH_OVERHEAD_BYTES <= BYTES_MAX
    }

    /// Room for a path of `path_bytes` bytes; `None` if there is none.
    pub(crate) fn reserve(&self, path_bytes: usize) -> Option<Reserved> {
        let bytes = path_bytes + PATH_OVERHEAD_BYTES;
        let fits = |taken: usize| {
            let taken = taken.checked_add(bytes)?;
            (taken <= BYTES_MAX).then_some(taken)
        };
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let reserved = self.0.fetch_update(set, fetch, fits);
        reserved.is_ok().then(|| self.reserved(bytes))
    }

    /// The room of a path that exists already.
    pub(crate) fn take(&self, path_bytes: usize) -> Reserved {
        let bytes = path_bytes + PATH_OVERHEAD_BYTES;
        self.0.fetch_add(bytes, Ordering::Relaxed);
        self.reserved(bytes)
    }

    fn reserved(&self, bytes: usize) -> Reserved {
        Reserved {
            ephemerals: self.clone(),
            bytes,
        }
    }
}

/// Room for the path of one ephemeral node, until this is dropped. It does not keep the session open.
#[derive(Debug)]
pub(crate) struct Reserved {
    ephemerals: EphemeralQuota,
    bytes: usize,
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.ephemerals.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The paths that members of one session own or want to restore.
#[derive(Debug, Default)]
pub(crate) struct MemberNames(watch::Sender<BTreeSet<String>>);

impl MemberNames {
    fn insert(&self, path: &str) -> bool {
        self.0
            .send_if_modified(|paths| paths.insert(path.to_owned()))
    }

    fn remove(&self, path: &str) {
        self.0.send_modify(|paths| drop(paths.take(path)));
    }

    /// Returns whether a member of this session owns the path.
    pub(crate) fn contains(&self, path: &str) -> bool {
        self.0.borrow().contains(path)
    }

    /// Waits until no member of this session owns the path.
    async fn freed(&self, path: &str) {
        let mut paths = self.0.subscribe();
        // The sender is in the session, which outlives this.
        let _ = paths.wait_for(|paths| !paths.contains(path)).await;
    }
}

/// The right to one path, until this is dropped.
#[derive(Debug)]
pub(crate) struct NameReservation {
    session: Session,
    path: String,
}

impl NameReservation {
    /// `None` if another member of this session has it.
    pub(crate) fn take(session: &Session, path: &str) -> Option<Self> {
        session.member_names().insert(path).then(|| Self {
            session: session.clone(),
            path: path.to_owned(),
        })
    }

    /// Waits until no other member of this session has it.
    pub(crate) async fn wait(session: &Session, path: &str) -> Self {
        loop {
            if let Some(reservation) = Self::take(session, path) {
                return reservation;
            }
            session.member_names().freed(path).await;
        }
    }
}

impl Drop for NameReservation {
    fn drop(&mut self) {
        self.session.member_names().remove(&self.path);
    }
}

/// Locks a mutex. A panic under it leaves the data whole: sections are short, and each makes one change.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_until_the_limit_and_again_when_it_is_free() {
        let paths = EphemeralQuota::default();
        let most = paths.take(BYTES_MAX - 20 - PATH_OVERHEAD_BYTES);
        assert!(paths.reserve(17).is_none());
        let rest = paths.reserve(16).unwrap();
        assert_eq!(paths.bytes(), BYTES_MAX);
        assert!(!paths.has_room(1));
        assert!(paths.reserve(1).is_none());
        drop(rest);
        assert!(paths.has_room(16));
        assert!(!paths.has_room(17));
        drop(most);
        assert_eq!(paths.bytes(), 0);
    }
}
