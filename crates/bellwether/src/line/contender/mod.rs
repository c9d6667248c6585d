//! One sequential ephemeral node in a line, and the wait for its turn.
//!
//! A contender watches only the nearest node that blocks it, so a hand-over wakes one contender: no thundering herd. The server
//! processes the requests of one session in order, so a list sent right behind the create shows the new node.

mod create;
mod turn;
mod view;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;

use crate::hold::Hold;
use crate::hold::crash_mark::{self, CrashMark};
use crate::hold::crash_record::Previous;
use crate::hold::ephemeral_node::{EphemeralNode, OwnWatch};
use crate::hold::parting::Marking;
use crate::line::contender::view::{Children, LineView};
use crate::line::failure::Failure;
use crate::line::name::{Kind, Layout, Name};
use crate::node::data::{DATA_BYTES_MAX, Who};
use crate::node::{Access, NodePath, OperationId};
use crate::request::receipts::Receipts;
use crate::session::Session;
use crate::session::cleaner::{Latecomer, Leftover};
use crate::session::liveness::KeepAlive;
use crate::session::retry::Retry;
use crate::session::slots::Slot;
use crate::session::telemetry::WaitTimer;

pub(crate) use self::view::Mode;

/// The server numbers children with a signed 32-bit counter that sticks or wraps at its end (`PrepRequestProcessor`,
/// ZOOKEEPER-4706). A new contender above this number is refused, so that the line stays in order.
pub(crate) const SEQUENCE_MAX: i32 = i32::MAX - 1_000_000;

/// A name has some fifty bytes, and Apache's clients read no list beyond 1 MiB unless configured.
pub(crate) const LINE_MAX: usize = 10_000;

/// How a contender enters a line.
#[derive(Debug)]
pub(crate) struct JoinRequest {
    pub(crate) mode: Mode,
    pub(crate) kind: Kind,
    pub(crate) layout: Layout,
    pub(crate) who: Who,
    pub(crate) access: Access,
    /// Whether the line is in a directory of the same recipe, which may be missing too.
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
    /// Whether only one create was sent.
    is_first_try: bool,
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
            return Err(Failure::TooLarge {
                bytes: payload.len(),
                bytes_max: DATA_BYTES_MAX,
            });
        }
        let ephemerals = session.ephemeral_quota();
        if !ephemerals.has_room(dir.as_str().len() + NAME_BYTES_MAX) {
            return Err(Failure::TooManyEphemerals {
                bytes: ephemerals.bytes(),
            });
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
            depth if depth >= self.entry.line_max => Err(Failure::LineFull { depth }),
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

    /// Whether the first create succeeded. Then requests sent behind it were answered after it.
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

    /// Whether a node blocked this contender at the last list.
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
            previous = crash_mark::look(self.session.zk(), &self.dir).await?;
        } else if marked && let NodeState::At(_, node) = &self.node {
            let marking = self.marking.insert(Marking::of(&self.dir));
            let who = Some(self.entry.who.clone());
            let set = CrashMark::set(node, who, &self.entry.access, marking).await;
            let (set, found) = match set {
                Err(zk::Error::NO_NODE) => return Err(Failure::Removed),
                set => set?,
            };
            (mark, previous) = (Some(set), found);
        }
        if matches!(previous, Previous::Crashed(_)) && !lock_delay.is_zero() {
            // If the caller gives up during the wait, the mark reports that crash again.
            self.session.runtime().sleep(lock_delay).await;
            self.list().await?;
            self.prove_alive().await?;
        }
        self.marking = None;
        let Some(node) = self.take_node() else {
            return Err(Failure::Removed);
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

    /// Whether a contender was behind the node at the last list.
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
    pub(crate) fn look(&mut self, children: Vec<String>) -> Result<(), Failure> {
        let NodeState::At(own, _) = &self.node else {
            return Err(Failure::Removed);
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
            false => Err(Failure::Removed),
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
