//! An open session.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::log;
use tracing::warn;

use crate::access::Access;
use crate::borne::Borne;
use crate::connect::Connect;
use crate::ephemerals::Ephemerals;
use crate::error::ConnectError;
use crate::heart::{Engine, Heart, Mistakes, beat_on};
use crate::home::Home;
use crate::janitor::Janitor;
use crate::path::NodePath;
use crate::sabotage::Sabotage;
use crate::successor::Successor;
use crate::who::Who;

/// How long to wait between two attempts to open the next session: at first, and at most.
const SUCCESSOR_PAUSE_MIN: Duration = Duration::from_millis(100);
const SUCCESSOR_PAUSE_MAX: Duration = Duration::from_secs(5);

/// An open session. Clones share it; it is closed when the last clone and the last guard are gone.
///
/// A client is one session. When that has ended, [`successor`](Self::successor) is the next one.
#[derive(Clone)]
pub struct Client(Arc<Session>);

struct Session {
    /// Rooted at the servers' root, so that a missing chroot can be made.
    zk: zk::Client,
    chroot: Option<NodePath>,
    janitor: Janitor,
    heart: Heart,
    ephemerals: Ephemerals,
    borne: Borne,
    home: Home,
    options: Connect,
    successor: Successor,
}

/// Knows a session without keeping it open.
#[derive(Clone, Debug)]
pub(crate) struct WeakClient(Weak<Session>);

impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<Client> {
        self.0.upgrade().map(Client)
    }
}

impl Client {
    /// Takes over a session, whose handle is rooted at the servers' root.
    pub(crate) fn start(
        zk: zk::Client,
        engine: Engine,
        chroot: Option<NodePath>,
        options: Connect,
    ) -> Self {
        let home = Home::of(&zk);
        let engine = match options.is_sabotaged(Sabotage::TrustReads) {
            true => Engine::Single,
            false => engine,
        };
        let client = Self(Arc::new(Session {
            janitor: Janitor::start(&home, zk.clone()),
            heart: Heart::new(engine, zk.clone(), Mistakes::of(&options, &zk)),
            ephemerals: Ephemerals::default(),
            borne: Borne::default(),
            zk,
            chroot,
            home: home.clone(),
            options,
            successor: Successor::default(),
        }));
        home.spawn(beat_on(client.downgrade(), home.clone()));
        client
    }

    /// The session timeout that the servers granted.
    #[must_use]
    pub fn session_timeout(&self) -> Duration {
        self.0.zk.session_timeout()
    }

    /// Whether the servers are an ensemble, as far as they tell: then an answer of one of them proves less, and holds are lost after
    /// shorter outages.
    #[must_use]
    pub fn is_ensemble(&self) -> bool {
        self.heart().engine() == Engine::Ensemble
    }

    /// How long the servers may be paused, or without a leader, and a hold of this session is not lost: three quarters of the
    /// session timeout on a single server, half of it in an ensemble.
    #[must_use]
    pub fn outage_max(&self) -> Duration {
        self.heart().outage_max()
    }

    /// The id of the session, as the servers' own tools show it.
    #[must_use]
    pub fn session_id(&self) -> i64 {
        self.0.zk.session_id()
    }

    /// Whether the session has ended, as far as this end knows.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        self.0.zk.state().is_ended()
    }

    /// Resolves when the session has ended.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if the session has ended meanwhile.
    pub async fn ended(&self) {
        self.0.zk.ended().await;
    }

    /// The session that follows this one: itself while it lives; after its end a new one with the same options, opened
    /// once and shared by all who ask.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up the attempt, unless others wait for it too; the next call makes another.
    ///
    /// # Errors
    ///
    /// As [`connect`](crate::connect), for all who waited for the same attempt. Ask again later.
    pub async fn successor(&self) -> Result<Self, ConnectError> {
        let mut client = self.clone();
        while client.is_ended() {
            let session = &client.0;
            let next = session.successor.open(&session.options).await?;
            client = next;
        }
        Ok(client)
    }

    /// As [`successor`](Self::successor), but goes on trying until there is one: for what goes on by itself.
    pub(crate) async fn successor_in_time(&self) -> Self {
        let mut pause = SUCCESSOR_PAUSE_MIN;
        loop {
            match self.successor().await {
                Ok(client) => return client,
                Err(error) => {
                    log::emit(move || warn!(%error, ?pause, "no session; will try again"));
                }
            }
            self.home().sleep(pause).await;
            pause = (2 * pause).min(SUCCESSOR_PAUSE_MAX);
        }
    }

    /// The plain client of this session, rooted at the chroot, for what no recipe covers.
    #[must_use]
    pub fn raw(&self) -> zk::Client {
        match &self.0.chroot {
            Some(chroot) => self
                .0
                .zk
                .chroot(chroot.as_str())
                .expect("the chroot is a checked path"),
            None => self.0.zk.clone(),
        }
    }

    /// Ends the session now, whatever clones, recipes and guards exist, and waits until the servers have acknowledged it. What is held
    /// through it is lost.
    ///
    /// What was released or given up before is cleaned up first. When no server can be reached, it returns once the
    /// servers cannot have kept the session. The last [`successor`](Self::successor) is closed too.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the wait; the session may stay open then.
    pub async fn close(&self) {
        let mut last = self;
        while let Some(next) = last.0.successor.get() {
            last = next;
        }
        let session = &last.0;
        // Crash marks outlive the session: those that were to be taken back are, before it ends.
        let swept = session.janitor.swept();
        session.home.timeout(self.session_timeout(), swept).await;
        session.zk.close().await;
    }

    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient(Arc::downgrade(&self.0))
    }

    /// Rooted at the servers' root: paths go through [`resolve`](Self::resolve).
    pub(crate) fn zk(&self) -> &zk::Client {
        &self.0.zk
    }

    pub(crate) fn janitor(&self) -> &Janitor {
        &self.0.janitor
    }

    pub(crate) fn heart(&self) -> &Heart {
        &self.0.heart
    }

    /// Who this session says that it is.
    pub(crate) fn who(&self) -> Who {
        let mut who = Who::here(self.session_id());
        who.pid = self.0.options.presented_process();
        who
    }

    pub(crate) fn ephemerals(&self) -> &Ephemerals {
        &self.0.ephemerals
    }

    pub(crate) fn borne(&self) -> &Borne {
        &self.0.borne
    }

    pub(crate) fn home(&self) -> &Home {
        &self.0.home
    }

    /// Whether a mistake is to be made on purpose. Never without the feature.
    pub(crate) fn is_sabotaged(&self, what: Sabotage) -> bool {
        self.0.options.is_sabotaged(what)
    }

    /// The path as the servers know it, with the chroot in front.
    pub(crate) fn resolve(&self, path: &NodePath) -> NodePath {
        match &self.0.chroot {
            Some(chroot) => chroot.join(path),
            None => path.clone(),
        }
    }

    /// Makes a directory and what is missing above it, in one round trip: containers, which the servers remove when
    /// they have been emptied. The chroot is somebody's fixed place and made to stay. `access` is for the directory
    /// itself: above it others have theirs. `NoNode` means that a container above was removed again before it was used, and
    /// that another try may do better.
    pub(crate) async fn make_directory(
        &self,
        dir: &NodePath,
        access: &Access,
    ) -> Result<(), zk::Error> {
        let container = zk::CreateMode::Container;
        self.make_lineage(dir, b"", container, access).await
    }

    /// As [`make_directory`](Self::make_directory), with data of its own, and open to everybody as what stands above is.
    pub(crate) async fn make_marked_directory(
        &self,
        dir: &NodePath,
        data: &[u8],
    ) -> Result<(), zk::Error> {
        let container = zk::CreateMode::Container;
        self.make_lineage(dir, data, container, &Access::default())
            .await
    }

    /// As [`make_directory`](Self::make_directory), but the directory itself is made to stay, with data of its own.
    pub(crate) async fn make_kept_directory(
        &self,
        dir: &NodePath,
        data: &[u8],
        access: &Access,
    ) -> Result<(), zk::Error> {
        let kept = zk::CreateMode::Persistent;
        self.make_lineage(dir, data, kept, access).await
    }

    async fn make_lineage(
        &self,
        dir: &NodePath,
        data: &[u8],
        mode: zk::CreateMode,
        access: &Access,
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
        (data, mode, access): (&[u8], zk::CreateMode, &Access),
        above: zk::CreateMode,
    ) -> Result<(), zk::Error> {
        let kept = match &self.0.chroot {
            Some(chroot) => chroot.as_str().len(),
            None => 0,
        };
        let mut creates = Vec::new();
        for path in dir.lineage() {
            let (data, mode, acl) = match path == dir.as_str() {
                true => (data, mode, access.acl()),
                false => (b"".as_slice(), above, vec![zk::Acl::open()]),
            };
            let mode = match path.len() <= kept {
                true => zk::CreateMode::Persistent,
                false => mode,
            };
            let mut writer = self.0.zk.new_multi();
            writer.create(path, data, mode.with_acl(acl));
            if mode == zk::CreateMode::Container {
                // An empty container is removed only if it has had a child (Apache's `ContainerManager`). It has one from the
                // start, so that nothing is left if we die before we use it.
                let first = format!("{path}/first");
                writer.create(&first, b"", zk::CreateMode::Persistent);
                writer.delete(&first, None);
            }
            // Requests leave when their futures are made, so these travel together.
            creates.push(writer.commit());
        }
        let mut last = Ok(());
        for created in creates {
            last = match (created.await.map_err(zk::Error::from), last) {
                (Ok(_) | Err(zk::Error::NODE_EXISTS), _) => Ok(()),
                (Err(zk::Error::UNIMPLEMENTED), _) => return Err(zk::Error::UNIMPLEMENTED),
                // It has no parent because of what was refused before.
                (Err(zk::Error::NO_NODE), Err(cause)) => Err(cause),
                (Err(error), _) => Err(error),
            };
        }
        // Only the last one counts: above it, nodes may exist where this client may not create any.
        last
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("session", &self.0.zk.session_id())
            .field("chroot", &self.0.chroot)
            .finish_non_exhaustive()
    }
}
