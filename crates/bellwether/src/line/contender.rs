//! One sequential ephemeral node in a line, and the wait for its turn.
//!
//! A contender watches only the nearest node that blocks it, so a hand-over wakes one contender: no thundering herd. The server
//! processes the requests of one session in order, so a list sent right behind the create shows the new node.

use std::future::pending;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::{join, join4};

use crate::error::{ErrorKind, Failure};
use crate::hold::Hold;
use crate::hold::crash_mark::{self, CrashMark, Marking, Previous};
use crate::hold::ephemeral_node::{EphemeralNode, Naming, OwnWatch};
use crate::line::name::{Children, Kind, Layout, LineView, Name};
use crate::node::data::{DATA_BYTES_MAX, Who};
use crate::node::{Access, NodePath, OperationId};
use crate::request::receipts::{OnceError, Receipts, Written};
use crate::session::Session;
use crate::session::cleaner::{Latecomer, Leftover};
use crate::session::liveness::KeepAlive;
use crate::session::retry::{Happened, NodeEvent, Retry, read_linearizable, until_answered};
use crate::session::slots::Slot;
use crate::session::telemetry::WaitTimer;

pub(crate) use crate::line::name::Mode;

/// The server numbers children with a signed 32-bit counter that sticks or wraps at its end (`PrepRequestProcessor`,
/// ZOOKEEPER-4706). A new contender above this number is refused, so that the line stays in order.
pub(crate) const SEQUENCE_MAX: i32 = i32::MAX - 1_000_000;

/// A name has some fifty bytes, and Apache's clients read no list beyond 1 MiB unless configured.
pub(crate) const LINE_MAX: usize = 10_000;

/// The way in which a contender enters a line.
#[derive(Debug)]
pub(crate) struct JoinRequest {
    pub(crate) mode: Mode,
    pub(crate) kind: Kind,
    pub(crate) layout: Layout,
    pub(crate) who: Who,
    pub(crate) access: Access,
    /// True if the line is in a directory of the same recipe, which may be missing too.
    pub(crate) is_inner: bool,
    /// The largest length of the line, this contender included.
    pub(crate) line_max: usize,
    /// The number of permits to write into a new directory, in recipes with a limit. They read the limit with every list.
    pub(crate) first_limit: Option<u32>,
    /// Receipts with which the node is created exactly once, in recipes in which a second one would let others pass. In a line, the node of
    /// a create that arrives late only delays others until it is deleted.
    pub(crate) once: Option<Receipts>,
}

/// The longest name of a contender.
const NAME_BYTES_MAX: usize = 64;

/// A place in a line. On drop the cleaner deletes the node.
#[derive(Debug)]
pub(crate) struct Contender {
    session: Session,
    dir: NodePath,
    entry: JoinRequest,
    /// The name of the node without its sequence number. No other node has it.
    prefix: String,
    node: NodeState,
    /// The line as last listed, if it was.
    line: Option<LineView>,
    /// The data of the directory at that time, in recipes with a limit.
    directory: Option<(Bytes, zk::Stat)>,
    own_watch: Option<OwnWatch>,
    /// Among the tasks of this session, in recipes that limit how many of them have a node.
    slot: Option<Slot>,
    marking: Option<Marking>,
    /// True if only one create was sent.
    is_first_try: bool,
    /// True if the last create found no directory.
    is_directory_missing: bool,
    /// The number of the connection that sent the first create without a reply, if there was one.
    in_doubt_since: Option<u64>,
    /// The number of the connection that sent the last list.
    connections: u64,
    wait: WaitTimer,
    _keep_alive: KeepAlive,
}

#[derive(Debug)]
enum NodeState {
    /// There is no node.
    None,
    /// A create was sent, and its reply is outstanding or lost.
    InDoubt,
    At(Name, EphemeralNode),
}

impl Contender {
    /// Creates the node at the end of the line, and the directory if it is missing.
    pub(crate) async fn enter(
        session: &Session,
        dir: NodePath,
        entry: JoinRequest,
    ) -> Result<Self, Failure> {
        let payload = entry.who.to_data();
        if payload.len() > DATA_BYTES_MAX {
            return Err(ErrorKind::TooLarge {
                bytes: payload.len(),
                bytes_max: DATA_BYTES_MAX,
            }
            .into());
        }
        let ephemerals = session.ephemeral_quota();
        if !ephemerals.has_room(dir.as_str().len() + NAME_BYTES_MAX) {
            return Err(ErrorKind::TooManyEphemerals {
                bytes: ephemerals.bytes(),
            }
            .into());
        }
        let mut this = Self {
            _keep_alive: KeepAlive::new(session),
            connections: session.zk().connections(),
            prefix: entry
                .layout
                .prefix(entry.kind, session.session_id(), OperationId::new()),
            node: NodeState::None,
            line: None,
            directory: None,
            own_watch: None,
            slot: None,
            marking: None,
            is_first_try: true,
            is_directory_missing: false,
            in_doubt_since: None,
            wait: WaitTimer::begin(),
            session: session.clone(),
            dir,
            entry,
        };
        let mut retry = Retry::limited();
        match this.entry.once.clone() {
            Some(receipts) => this.create_once(&payload, &receipts, &mut retry).await?,
            None => {
                while !this.create(&payload, &mut retry).await? {
                    this.is_first_try = false;
                }
            }
        }
        this.check_depth()?;
        Ok(this)
    }

    /// Fails if too many contenders are ahead.
    fn check_depth(&self) -> Result<(), Failure> {
        match self.lower().count() {
            depth if depth >= self.entry.line_max => Err(ErrorKind::Full { depth }.into()),
            _ => Ok(()),
        }
    }

    /// Keeps a slot, for which the contender has waited before it joined the line.
    pub(crate) fn keep_slot(&mut self, slot: Slot) {
        self.wait = slot.wait_so_far();
        self.slot = Some(slot);
    }

    /// Records the created node.
    fn place(&mut self, name: Name, mut node: EphemeralNode) {
        if let Some(connection) = self.in_doubt_since {
            // Now, since a semaphore counts them as long as this contender holds; and again when its node is deleted.
            let others = self.acquisition(Some(name.as_str().to_owned()));
            self.session.cleaner().remove_late(others, connection);
            let latecomer = Latecomer::new(&self.session, self.acquisition(None), connection);
            node.accompany(Arc::new(latecomer));
        }
        self.node = NodeState::At(name, node);
    }

    /// All nodes of this contender, or all but one.
    fn acquisition(&self, except: Option<String>) -> Leftover {
        Leftover::Acquisition {
            dir: self.dir.clone(),
            prefix: self.prefix.clone(),
            except,
        }
    }

    /// Returns whether the first create succeeded. Then requests sent behind it were answered after it.
    pub(crate) fn is_first_try(&self) -> bool {
        self.is_first_try
    }

    /// The nodes ahead at the last list, in no order. Empty before the first list.
    pub(crate) fn lower(&self) -> impl Iterator<Item = &Name> {
        self.line.iter().flat_map(LineView::lower)
    }

    /// The contenders in other layouts whose nodes were older at the last list, by their names. Any node may have such a name.
    pub(crate) fn strangers(&self) -> impl Iterator<Item = &Name> {
        self.line.iter().flat_map(LineView::strangers)
    }

    /// The wait since it asked for its place.
    pub(crate) fn wait_so_far(&self) -> WaitTimer {
        self.wait
    }

    /// Returns whether a node blocked this contender at the last list.
    pub(crate) fn is_blocked(&self) -> bool {
        let line = self.line.as_ref();
        line.is_none_or(|line| line.blocker(self.entry.mode).is_some())
    }

    /// Ignores an earlier node of the same owner.
    pub(crate) fn tolerate(&mut self, name: &str) {
        if let Some(line) = &mut self.line {
            line.tolerate(name);
        }
    }

    /// Turns the node, whose turn it is, into a hold; with a crash mark if `marked`. A reader sets no mark, but reports an existing one.
    /// After a crash of the previous holder it waits for `lock_delay` first.
    pub(crate) async fn hold(
        mut self,
        path: &str,
        marked: bool,
        lock_delay: Duration,
    ) -> Result<Hold, Failure> {
        let mut mark = None;
        let mut previous = Previous::Unknown;
        // Curator counts every child of the directory as a contender.
        let marked = marked && self.entry.layout == Layout::Bellwether;
        if marked && self.entry.kind == Kind::Read {
            previous = crash_mark::read_previous(self.session.zk(), &self.dir).await?;
        } else if marked && let NodeState::At(_, node) = &self.node {
            let marking = self.marking.insert(Marking::of(&self.dir));
            let who = Some(self.entry.who.clone());
            let set = CrashMark::set(node, who, &self.entry.access, marking).await;
            let (set, found) = match set {
                Err(zk::Error::NO_NODE) => return Err(ErrorKind::Removed.into()),
                set => set?,
            };
            (mark, previous) = (Some(set), found);
        }
        if matches!(previous, Previous::Crashed(_)) && !lock_delay.is_zero() {
            // If the caller gives up during the wait, the mark reports that crash again.
            self.session.runtime().sleep(lock_delay).await;
            self.list().await?;
        }
        // The process may have been paused since its turn came.
        self.prove_alive().await?;
        self.marking = None;
        let Some(node) = self.take_node() else {
            return Err(ErrorKind::Removed.into());
        };
        let own_watch = self.own_watch.take();
        let slot = self.slot.take();
        Ok(Hold::start(path, node, own_watch, mark, previous, slot))
    }

    /// Sends no delete: the node is known to be gone.
    pub(crate) fn forget(mut self) {
        if let Some(node) = self.take_node() {
            node.forget();
        }
    }

    /// The node, which outlives this place, and what has to be removed after it.
    fn take_node(&mut self) -> Option<EphemeralNode> {
        match mem::replace(&mut self.node, NodeState::None) {
            NodeState::At(_, node) => {
                self.in_doubt_since = None;
                Some(node)
            }
            other => {
                self.node = other;
                None
            }
        }
    }

    pub(crate) fn name(&self) -> Option<&Name> {
        match &self.node {
            NodeState::At(name, _) => Some(name),
            NodeState::None | NodeState::InDoubt => None,
        }
    }

    /// The nearest node ahead at the last list.
    pub(crate) fn nearest(&self) -> Option<&Name> {
        self.line.as_ref()?.nearest()
    }

    /// Returns whether a contender was behind the node at the last list.
    pub(crate) fn is_followed(&self) -> bool {
        self.line.as_ref().is_some_and(LineView::is_followed)
    }

    /// The data of the directory at the last list.
    pub(crate) fn directory(&self) -> Option<&(Bytes, zk::Stat)> {
        self.directory.as_ref()
    }

    pub(crate) fn who(&self) -> &Who {
        &self.entry.who
    }

    pub(crate) fn layout(&self) -> Layout {
        self.entry.layout
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    pub(crate) fn dir(&self) -> &NodePath {
        &self.dir
    }

    /// Reads the data of the directory in recipes with a limit. The read precedes the list, so that the list has all contenders that acted
    /// by an older limit. A failed read changes nothing; the next list reads again.
    fn send_directory_read(
        &self,
        zk: &zk::Client,
    ) -> impl Future<Output = Option<(Bytes, zk::Stat)>> + use<> {
        let read = self.entry.first_limit.map(|_| zk.get(self.dir.as_str()));
        async { read?.await.ok() }
    }

    /// Records the listed line.
    pub(crate) fn update(&mut self, children: Vec<String>) -> Result<(), Failure> {
        let NodeState::At(own, _) = &self.node else {
            return Err(ErrorKind::Removed.into());
        };
        let (names, strangers) = self.entry.layout.sort_out(children);
        let listed = Children { names, strangers };
        let is_there = match &mut self.line {
            Some(line) => line.renew(listed),
            None => {
                self.line = LineView::beside(own, listed);
                self.line.is_some()
            }
        };
        if self.in_doubt_since.is_some() {
            // Ahead of the own node, it would block the contender itself.
            for other in self
                .line
                .iter()
                .flat_map(|line| line.others_of(&self.prefix))
            {
                let path = self.dir.child(other);
                self.session.cleaner().remove(Leftover::Own(path));
            }
        }
        match is_there {
            true => Ok(()),
            false => Err(ErrorKind::Removed.into()),
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let cleaner = self.session.cleaner();
        match (
            mem::replace(&mut self.node, NodeState::None),
            self.marking.take(),
        ) {
            (NodeState::InDoubt, _) => {
                let connection = self.in_doubt_since.unwrap_or(self.connections);
                cleaner.remove_late(self.acquisition(None), connection);
            }
            // The last create was refused, and not those before it.
            (NodeState::None, _) => {
                if let Some(connection) = self.in_doubt_since {
                    cleaner.remove_late(self.acquisition(None), connection);
                }
            }
            (NodeState::At(_, node), Some(marking)) => node.undo(marking),
            // A known node is deleted by its own drop.
            (NodeState::At(..), None) => {}
        }
    }
}

/// The time for which a contender deep in the line waits before it also watches its own node. Its next list would show a removal anyway,
/// but may be far off.
const OWN_WATCH_AFTER: Duration = Duration::from_secs(1);

/// A watched read of the own node.
type OwnRead = zk::Reply<(Bytes, zk::Stat, zk::Watch)>;

impl Contender {
    /// Waits until no node blocks this one and the session is known to be alive.
    pub(crate) async fn turn(&mut self) -> Result<(), Failure> {
        let session = self.session.clone();
        while let Some((blocker, alone)) = self.blocker() {
            let (theirs, own) = session.zk().batch(|zk| {
                // getData instead of exists: on a deleted node it leaves no watch behind.
                let theirs = zk.get_watched(&self.dir.child(&blocker));
                // A watch on the own node is sent with it: without one, the deletion of the blocker alone would not prove the turn.
                (theirs, alone.then(|| self.send_own_watch()))
            });
            if let Some(Some(own)) = own.transpose()? {
                self.own_watched(own.await)?;
            }
            match theirs.await {
                Ok((data, _, _)) if (self.entry.mode.gave_way)(&data) => {
                    self.tolerate(blocker.as_str());
                }
                Ok((_, _, watch)) => {
                    if self.wait(NodeEvent::of(watch)).await? == Happened::Deleted {
                        self.is_gone(&blocker, alone).await?;
                    }
                }
                Err(zk::Error::NO_NODE) => {
                    self.hear_of_own().await?;
                    self.is_gone(&blocker, alone).await?;
                }
                Err(error) if error.is_transient() => self.list().await?,
                Err(error) => return Err(error.into()),
            }
        }
        self.prove_alive().await
    }

    fn blocker(&self) -> Option<(Name, bool)> {
        self.line.as_ref()?.blocker(self.entry.mode)
    }

    /// Checks the watch on the own node. The server sends an event before the reply to a later request, so without an event the node
    /// existed when that request was processed.
    async fn hear_of_own(&mut self) -> Result<(), Failure> {
        let told = match &mut self.own_watch {
            Some(watch) => (&mut watch.event).now_or_never(),
            None => None,
        };
        match told {
            Some(Happened::Deleted) => Err(self.why_deleted().await),
            Some(Happened::SessionEnded) => Err(ErrorKind::SessionEnded.into()),
            Some(_) => {
                self.own_watch = None;
                Ok(())
            }
            None => Ok(()),
        }
    }

    /// Returns the reason why the own node was deleted. A session that expires gets the events of its own nodes too: its server fires
    /// watches before it closes the connection (`FinalRequestProcessor`). An answer proves that the session has outlived its node.
    async fn why_deleted(&self) -> Failure {
        loop {
            match self.session.zk().exists("/").await {
                // A refusal is an answer too.
                Ok(_) | Err(zk::Error::Refused(_)) => return ErrorKind::Removed.into(),
                Err(error) if error.is_transient() => {}
                Err(error) => return error.into(),
            }
        }
    }

    /// Continues after the blocker was deleted.
    ///
    /// The nodes ahead only become fewer: if the last list showed the blocker alone, none is left. A waiter deeper in line lists again,
    /// because the blocker may have been a waiter that gave up. So does a waiter whose connection broke since the last list.
    async fn is_gone(&mut self, blocker: &Name, alone: bool) -> Result<(), Failure> {
        let only_shrinks = self.entry.layout.only_shrinks(blocker);
        let is_sure = alone && only_shrinks && self.would_have_heard();
        match &mut self.line {
            Some(line) if is_sure => line.pass(blocker),
            _ => self.list().await?,
        }
        Ok(())
    }

    /// Waits until the session is known to be alive. Otherwise a new hold could be lost already.
    pub(crate) async fn prove_alive(&self) -> Result<(), Failure> {
        let session = &self.session;
        Ok(session.liveness().prove().await?)
    }

    /// Returns whether a watch would have reported a deletion of the own node since the last list.
    pub(crate) fn would_have_heard(&self) -> bool {
        self.own_watch.is_some() && !self.reconnected()
    }

    /// Waits for a change of the watched node. Fails if the own node is deleted meanwhile.
    pub(crate) async fn wait(&mut self, theirs: NodeEvent) -> Result<Happened, Failure> {
        match self.wait_for(theirs).await? {
            Happened::SessionEnded => Err(ErrorKind::SessionEnded.into()),
            event => Ok(event),
        }
    }

    /// Waits for a future. Fails if the own node is deleted meanwhile.
    async fn wait_for<T>(&mut self, other: impl Future<Output = T>) -> Result<T, Failure> {
        self.wait.is_for_another = true;
        let session = self.session.clone();
        let mut other = pin!(other);
        let mut own_watch_due = Box::pin(session.runtime().sleep(OWN_WATCH_AFTER));
        loop {
            let is_watched = self.own_watch.is_some();
            let own = async {
                match &mut self.own_watch {
                    Some(watch) => (&mut watch.event).await,
                    None => pending().await,
                }
            };
            let own = tokio::select! {
                biased;
                event = own => Some(event),
                value = &mut other => return Ok(value),
                () = &mut own_watch_due, if !is_watched => None,
            };
            match own {
                Some(Happened::Deleted) => return Err(self.why_deleted().await),
                Some(Happened::SessionEnded) => return Err(ErrorKind::SessionEnded.into()),
                // A client wrote to the node, or it is time to watch it.
                Some(_) | None => {
                    self.own_watch = None;
                    self.watch_own().await?;
                    own_watch_due = Box::pin(session.runtime().sleep(OWN_WATCH_AFTER));
                }
            }
        }
    }

    /// Watches the own node, if the connection allows it.
    pub(crate) async fn watch_own(&mut self) -> Result<(), Failure> {
        match self.send_own_watch()? {
            Some(sent) => self.own_watched(sent.await),
            None => Ok(()),
        }
    }

    /// Sends a watched read of the own node; `None` if it is watched already.
    fn send_own_watch(&self) -> Result<Option<OwnRead>, Failure> {
        let NodeState::At(_, node) = &self.node else {
            return Err(ErrorKind::Removed.into());
        };
        Ok(match self.own_watch {
            Some(_) => None,
            None => Some(self.session.zk().get_watched(node.path())),
        })
    }

    fn own_watched(&mut self, read: <OwnRead as Future>::Output) -> Result<(), Failure> {
        match read {
            Ok((data, _, watch)) => self.own_watch = Some(OwnWatch::of(&data, watch)),
            Err(zk::Error::NO_NODE) => return Err(ErrorKind::Removed.into()),
            Err(error) if error.is_transient() => {}
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Lists the line again.
    pub(crate) async fn list(&mut self) -> Result<(), Failure> {
        let session = self.session.clone();
        let mut retry = Retry::limited();
        loop {
            self.connections = session.zk().connections();
            let (directory, list) = session.zk().batch(|zk| {
                let directory = self.send_directory_read(zk);
                (directory, zk.children(self.dir.as_str()))
            });
            match list.await {
                Ok(children) => {
                    self.directory = directory.await;
                    return self.update(children);
                }
                Err(zk::Error::NO_NODE) => return Err(ErrorKind::Removed.into()),
                Err(error) => retry.again(error)?,
            }
        }
    }

    /// Does the same as [`list`](Self::list), for a contender that has to wait: with watches on the line and on the data of the directory.
    /// An existing watch on the data is kept, and the data is not read again.
    pub(crate) async fn watch_line(
        &mut self,
        directory_watch: Option<NodeEvent>,
    ) -> Result<(NodeEvent, NodeEvent), Failure> {
        self.wait.is_for_another = true;
        let session = self.session.clone();
        let mut directory_watch = directory_watch;
        let mut retry = Retry::limited();
        loop {
            let directory = match directory_watch {
                None => Some(session.zk().get_watched(self.dir.as_str())),
                Some(_) => None,
            };
            let list = session.zk().children_watched(self.dir.as_str());
            let looked = async {
                let (children, line) = list.await?;
                if let Some(directory) = directory {
                    let (data, stat, watch) = directory.await?;
                    self.directory = Some((data, stat));
                    directory_watch = Some(NodeEvent::of(watch));
                }
                Ok((children, NodeEvent::of(line)))
            };
            match looked.await {
                Ok((children, line)) => {
                    self.update(children)?;
                    // The server sends an event before the reply to a later request: if the kept watch has none by now, the known data
                    // was still current when the list was made.
                    directory_watch = directory_watch.and_then(NodeEvent::unless_told);
                    if let Some(directory) = directory_watch {
                        return Ok((line, directory));
                    }
                }
                Err(zk::Error::NO_NODE) => return Err(ErrorKind::Removed.into()),
                Err(error) => retry.again(error)?,
            }
        }
    }

    /// Returns whether the connection broke since the last list.
    fn reconnected(&self) -> bool {
        self.connections != self.session.zk().connections()
    }
}

impl Contender {
    /// Tries to create the node and to list the line. Returns false if the caller may try again. A node whose create got no answer is found
    /// by its name.
    pub(super) async fn create(
        &mut self,
        payload: &[u8],
        retry: &mut Retry,
    ) -> Result<bool, Failure> {
        if matches!(self.node, NodeState::InDoubt) && self.find().await? {
            return Ok(true);
        }
        let session = self.session.clone();
        let zk = session.zk();
        let prefix = self.dir.child(&self.prefix);
        let options = zk::CreateMode::EphemeralSequential.with_acl(self.entry.access.acl());
        self.connections = session.zk().connections();
        self.node = NodeState::InDoubt;
        let this = &*self;
        // Pipelined: one packet, one round trip. Polled in this order, so they are sent in this order.
        let (made, (created, directory, list)) = join(this.make_missing_directory(), async {
            let (create, directory, list) = zk.batch(|zk| {
                let create = zk.create(&prefix, payload, options);
                let directory = this.send_directory_read(zk);
                (create, directory, zk.children(this.dir.as_str()))
            });
            (create.await, directory, list)
        })
        .await;
        match created {
            Ok(zk::Created { path, stat }) => {
                self.adopt(path, stat.czxid)?;
                match list.await {
                    Ok(children) => {
                        self.directory = directory.await;
                        self.update(children)?;
                    }
                    Err(_) => self.list().await?,
                }
                Ok(true)
            }
            Err(zk::Error::NO_NODE) => {
                self.node = NodeState::None;
                self.is_directory_missing = true;
                retry.again_after(made)?;
                Ok(false)
            }
            Err(error) => {
                if error == zk::Error::Unknown {
                    self.in_doubt_since.get_or_insert(self.connections);
                } else {
                    self.node = NodeState::None;
                }
                retry.again(error)?;
                Ok(false)
            }
        }
    }

    /// Creates the node exactly once, and lists the line.
    pub(super) async fn create_once(
        &mut self,
        payload: &[u8],
        receipts: &Receipts,
        retry: &mut Retry,
    ) -> Result<(), Failure> {
        let session = self.session.clone();
        let zk = session.zk();
        let (prefix, dir) = (self.dir.child(&self.prefix), self.dir.clone());
        let options = zk::CreateMode::EphemeralSequential.with_acl(self.entry.access.acl());
        let mut operation = receipts.operation()?;
        loop {
            self.connections = zk.connections();
            self.node = NodeState::InDoubt;
            // Its stat has the zxid that the answer to a create does not show. All writes of a multi have one zxid.
            let receipt = operation.is_first().then(|| operation.path().to_owned());
            // Polled in this order, so they are sent in this order.
            let (made, written, receipt, list) = join4(
                self.make_missing_directory(),
                operation.send(|writer| writer.create(&prefix, payload, &options)),
                async { zk.exists(receipt.as_ref()?).await.ok()? },
                async { zk.children(dir.as_str()).await },
            )
            .await;
            let czxid = operation.zxid().or(receipt.map(|stat| stat.mzxid));
            let is_in_order = self.connections == zk.connections();
            match (written, czxid, list) {
                (Ok(Written::Answered(results)), Some(czxid), Ok(children)) if is_in_order => {
                    let Some(zk::MultiResult::Created { path }) = results.first() else {
                        return Err(ErrorKind::Removed.into());
                    };
                    self.adopt(path.clone(), czxid)?;
                    return self.update(children);
                }
                (Ok(_), ..) => {
                    self.is_first_try = false;
                    return match self.find().await? {
                        true => Ok(()),
                        false => Err(ErrorKind::Removed.into()),
                    };
                }
                (Err(OnceError::Refused(error)), ..) => {
                    self.is_first_try = false;
                    // Without its directory the receipt could not be created, and an earlier try may find a new directory.
                    if operation.is_in_doubt() {
                        self.in_doubt_since.get_or_insert(self.connections);
                    } else {
                        self.node = NodeState::None;
                    }
                    match zk::Error::from(error) {
                        zk::Error::NO_NODE => {
                            self.is_directory_missing = true;
                            retry.again_after(made)?;
                        }
                        error => return Err(error.into()),
                    }
                }
                // The cleaner deletes what a late create makes.
                (Err(OnceError::OutcomeUnknown(error)), ..) => return Err(error.into()),
                (Err(error), ..) => return Err(error.into()),
            }
        }
    }

    /// Takes over a node that was created, unless the numbers of its line are used up.
    fn adopt(&mut self, path: String, czxid: i64) -> Result<(), Failure> {
        let name = path.rsplit_once('/').map(|(_, name)| name.to_owned());
        let name = name.and_then(|name| self.entry.layout.parse(name));
        // Dropped here, the node is removed again.
        let node = EphemeralNode::new(&self.session, path, czxid, Naming::Unique);
        self.node = NodeState::None;
        match name {
            Some(name) if (0..SEQUENCE_MAX).contains(&name.sequence()) => {
                self.place(name, node);
                Ok(())
            }
            _ => Err(ErrorKind::SequenceUsedUp.into()),
        }
    }

    /// Makes the directory if a create has found it missing. What needs it is sent right behind, because the servers may remove an empty
    /// directory at any time.
    async fn make_missing_directory(&self) -> Result<(), zk::Error> {
        if !self.is_directory_missing {
            return Ok(());
        }
        let (dir, access) = (&self.dir, &self.entry.access);
        match self.entry.first_limit {
            // kazoo creates the directory once, and not again after the servers have removed it.
            None if self.entry.layout == Layout::Kazoo => {
                self.session.make_kept_directory(dir, b"", access).await
            }
            None if self.entry.is_inner => self.session.make_inner_directory(dir, access).await,
            None => self.session.make_directory(dir, access).await,
            Some(limit) => {
                let limit = limit.to_string();
                self.session
                    .make_kept_directory(dir, limit.as_bytes(), access)
                    .await
            }
        }
    }

    /// Looks for the node of a create whose reply was lost. The server that answers now may be another, and lag behind.
    async fn find(&mut self) -> Result<bool, Failure> {
        let session = self.session.clone();
        self.connections = session.zk().connections();
        let (zk, dir) = (session.zk(), self.dir.as_str());
        let list = || read_linearizable(zk, dir, || zk.children(dir));
        let children = match until_answered(list).await {
            Ok(children) => children,
            Err(zk::Error::NO_NODE) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let names = self.entry.layout.contenders(children.clone());
        let own: Vec<Name> = names
            .filter(|name| name.as_str().starts_with(&self.prefix))
            .collect();
        let mut found = None;
        // Every try that took effect has left a node, and each of them counts in the line. One is adopted, the others are deleted.
        for name in own {
            let path = self.dir.child(&name);
            match until_answered(|| zk.get(&path)).await {
                // A node of another session is not this contender's: it disappears with that session.
                Ok((_, stat)) if stat.ephemeral_owner == session.session_id() => {
                    let node = EphemeralNode::new(&session, path, stat.czxid, Naming::Unique);
                    // Dropped, the other node is deleted by the cleaner.
                    match &found {
                        Some((first, _)) if !name.is_before(first) => drop(node),
                        _ => found = Some((name, node)),
                    }
                }
                Ok(_) | Err(zk::Error::NO_NODE) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some((name, node)) = found else {
            return Ok(false);
        };
        self.place(name, node);
        self.update(children)?;
        Ok(true)
    }
}
