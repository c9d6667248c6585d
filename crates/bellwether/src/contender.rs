//! One sequential ephemeral node in a line, and the wait for its turn.
//!
//! Each contender watches the last one in its way and nobody else, so a hand-over wakes one. What it relies on: one
//! session's requests are processed in order, so a list sent right behind the create shows the new node.

mod line;
mod turn;

use std::mem;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;

use crate::access::Access;
use crate::catch_up::caught_up;
use crate::client::Client;
use crate::crash_mark::{self, CrashMark, Marking, Parting, Previous};
use crate::error::{Outcome, outcome};
use crate::heart::Pulse;
use crate::hold::Hold;
use crate::janitor::Litter;
use crate::name::{AcquisitionId, Kind, Layout, Name};
use crate::node_event::OwnWatch;
use crate::own_node::{Naming, OwnNode, Removal};
use crate::path::NodePath;
use crate::sabotage::Sabotage;
use crate::who::Who;

use self::line::Line;
pub(crate) use self::line::Rule;

/// How often one step is tried over broken connections and vanished directories before it gives up.
pub(crate) const TRIES_MAX: usize = 20;

/// The server numbers children with a signed 32-bit counter that sticks or wraps at its end (`PrepRequestProcessor`,
/// ZOOKEEPER-4706); no new contender this close to it, so that those who are in the line stay in order.
pub(crate) const SEQUENCE_MAX: i32 = i32::MAX - 1_000_000;

/// A name is some fifty bytes, and a server sends no list beyond 1 MiB to a client of default settings.
pub(crate) const LINE_MAX: usize = 10_000;

/// What a node may say about who made it. Everybody who asks for the holder reads it.
pub(crate) const DATA_BYTES_MAX: usize = 64 << 10;

/// What a contender brings.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) rule: Rule,
    pub(crate) kind: Kind,
    pub(crate) layout: Layout,
    pub(crate) who: Who,
    pub(crate) access: Access,
    /// How many may stand in the line before this one.
    pub(crate) line_max: usize,
    /// The limit for a directory that has none yet, where one counts. It is then read with every list.
    pub(crate) first_limit: Option<u32>,
}

/// No name of a contender is longer.
const NAME_BYTES_MAX: usize = 64;

/// A place in a line. Dropped, it is given up: the janitor removes the node.
#[derive(Debug)]
pub(crate) struct Contender {
    client: Client,
    dir: NodePath,
    entry: Entry,
    /// The name of the node up to the sequence, which no other node has.
    prefix: String,
    node: Node,
    line: Line,
    /// The data of the directory as of then, where it counts.
    directory: Option<(Bytes, zk::Stat)>,
    own_watch: Option<OwnWatch>,
    marking: Option<Marking>,
    /// How often the create was sent.
    tries: usize,
    /// How many connections there had been at the last list.
    connections: u64,
    _pulse: Pulse,
}

#[derive(Debug)]
enum Node {
    /// Not there.
    None,
    /// A create was sent, and its reply is outstanding or lost.
    InDoubt,
    At(Name, OwnNode),
}

/// Why a contender has no turn; the recipe adds the path.
#[derive(Debug)]
pub(crate) enum Failure {
    Removed,
    SessionEnded,
    SequenceUsedUp,
    LineFull { depth: usize },
    TooLarge { bytes: usize, bytes_max: usize },
    TooManyEphemerals { bytes: usize },
    Disconnected(zk::Error),
    Refused(zk::Error),
}

impl Contender {
    /// Creates the node at the end of the line, with the directory if that is missing.
    pub(crate) async fn enter(
        client: &Client,
        dir: NodePath,
        entry: Entry,
    ) -> Result<Self, Failure> {
        let payload = entry.who.to_data();
        if payload.len() > DATA_BYTES_MAX {
            return Err(Failure::TooLarge {
                bytes: payload.len(),
                bytes_max: DATA_BYTES_MAX,
            });
        }
        let ephemerals = client.ephemerals();
        if !ephemerals.has_room(dir.as_str().len() + NAME_BYTES_MAX) {
            return Err(Failure::TooManyEphemerals {
                bytes: ephemerals.bytes(),
            });
        }
        let mut this = Self {
            _pulse: Pulse::new(client),
            connections: client.zk().connections(),
            prefix: entry
                .layout
                .prefix(entry.kind, client.session_id(), AcquisitionId::new()),
            node: Node::None,
            line: Line::default(),
            directory: None,
            own_watch: None,
            marking: None,
            tries: 0,
            client: client.clone(),
            dir,
            entry,
        };
        let mut last = zk::Error::Unknown;
        for _ in 0..TRIES_MAX {
            this.tries += 1;
            match this.create(&payload).await {
                Ok(()) if this.line.lower.len() >= this.entry.line_max => {
                    return Err(Failure::LineFull {
                        depth: this.line.lower.len(),
                    });
                }
                Ok(()) => return Ok(this),
                Err(Failure::Disconnected(error)) => last = error,
                Err(failure) => return Err(failure),
            }
        }
        Err(Failure::Disconnected(last))
    }

    /// One try to create the node and to see what stands before it. `Disconnected` if another may help.
    async fn create(&mut self, payload: &[u8]) -> Result<(), Failure> {
        if matches!(self.node, Node::InDoubt) && self.find().await? {
            return Ok(());
        }
        let client = self.client.clone();
        let zk = client.zk();
        let prefix = self.dir.child(&self.prefix);
        let options = zk::CreateMode::EphemeralSequential.with_acl(self.entry.access.acl());
        self.connections = client.zk().connections();
        self.node = Node::InDoubt;
        // Made together, they leave together: one packet, one round trip.
        let (create, directory, list) = zk.batch(|zk| {
            let create = zk.create(&prefix, payload, options);
            let directory = self.send_directory_read(zk);
            (create, directory, zk.children(self.dir.as_str()))
        });
        match create.await {
            Ok(zk::Created { path, stat }) => {
                let name = path.rsplit_once('/').map(|(_, name)| name.to_owned());
                let name = name.and_then(|name| self.entry.layout.parse(name));
                let node = OwnNode::new(&client, path, stat.czxid, Naming::Unique);
                // Dropped here, the node is removed again.
                let name = name.ok_or(Failure::SequenceUsedUp)?;
                if !(0..SEQUENCE_MAX).contains(&name.sequence()) {
                    self.node = Node::None;
                    return Err(Failure::SequenceUsedUp);
                }
                self.node = Node::At(name, node);
                match list.await {
                    Ok(children) => {
                        self.directory = directory.await;
                        self.look(children)
                    }
                    Err(_) => self.list().await,
                }
            }
            Err(zk::Error::NO_NODE) => {
                self.node = Node::None;
                // Containers are removed when empty, so it may vanish again before the next try, or while it is made.
                match self.make_directory().await {
                    Ok(()) | Err(zk::Error::NO_NODE) => {
                        Err(Failure::Disconnected(zk::Error::NO_NODE))
                    }
                    Err(error) => Err(error.into()),
                }
            }
            Err(error) => {
                if outcome(&error) != Outcome::Unknown {
                    self.node = Node::None;
                }
                Err(error.into())
            }
        }
    }

    async fn make_directory(&self) -> Result<(), zk::Error> {
        let (dir, access) = (&self.dir, &self.entry.access);
        match self.entry.first_limit {
            // kazoo looks for the directory once, and does not make it again when the servers have removed it.
            None if self.entry.layout == Layout::Kazoo => {
                self.client.make_kept_directory(dir, b"", access).await
            }
            None => self.client.make_directory(dir, access).await,
            Some(limit) => {
                let limit = limit.to_string();
                self.client
                    .make_kept_directory(dir, limit.as_bytes(), access)
                    .await
            }
        }
    }

    /// Whether the first create succeeded, so that what was sent behind it was answered after it.
    pub(crate) fn is_first_try(&self) -> bool {
        self.tries == 1
    }

    /// What stood before the own node when it was last looked at, in no order.
    pub(crate) fn lower(&self) -> &[Name] {
        &self.line.lower
    }

    /// Gives the place up, and waits until the server has acknowledged that.
    pub(crate) async fn give_up(mut self) -> Result<(), Failure> {
        let Node::At(_, node) = mem::replace(&mut self.node, Node::None) else {
            return Ok(());
        };
        match node.remove(&Parting::Plain).await {
            Removal::Done | Removal::WasGone => Ok(()),
            Removal::SessionEnded => Err(Failure::SessionEnded),
            Removal::Refused(error) => Err(Failure::Refused(error)),
        }
    }

    /// Whether something stands in the way as of the last look.
    pub(crate) fn is_blocked(&self) -> bool {
        self.line.blocker(self.entry.rule).is_some()
    }

    /// Lets a node before this one pass for nobody: one of the same owner.
    pub(crate) fn pass(&mut self, name: &str) {
        self.line.pass(name);
    }

    /// Makes the node whose turn it is a hold, with a crash mark if one is wanted. One who shares leaves none, but tells of
    /// the one that is there. Whoever follows a crash waits for `lock_delay` first.
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
            previous = crash_mark::look(self.client.zk(), &self.dir).await?;
        } else if marked && let Node::At(_, node) = &self.node {
            let marking = self.marking.insert(Marking::of(&self.dir));
            let who = Some(self.entry.who.clone());
            let set = CrashMark::set(node, who, &self.entry.access, marking).await;
            let (set, found) = match set {
                Err(Failure::Refused(zk::Error::NO_NODE)) => return Err(Failure::Removed),
                set => set?,
            };
            (mark, previous) = (Some(set), found);
        }
        if matches!(previous, Previous::Crashed(_)) && !lock_delay.is_zero() {
            // Given up meanwhile, the mark tells of that crash again.
            self.client.home().sleep(lock_delay).await;
            self.list().await?;
            self.prove_alive().await?;
        }
        self.marking = None;
        let Node::At(_, node) = mem::replace(&mut self.node, Node::None) else {
            return Err(Failure::Removed);
        };
        let own_watch = self.own_watch.take();
        Ok(Hold::start(path, node, own_watch, mark, previous))
    }

    /// Leaves without a word: the node is known to be gone.
    pub(crate) fn forget(mut self) {
        if let Node::At(_, node) = mem::replace(&mut self.node, Node::None) {
            node.forget();
        }
    }

    pub(crate) fn name(&self) -> Option<&Name> {
        match &self.node {
            Node::At(name, _) => Some(name),
            Node::None | Node::InDoubt => None,
        }
    }

    /// The last one that stood before the node when it was last looked at.
    pub(crate) fn nearest(&self) -> Option<&Name> {
        self.line.nearest()
    }

    /// Whether anybody stood behind the node then.
    pub(crate) fn is_followed(&self) -> bool {
        self.line.is_followed
    }

    /// How many other nodes there were in the directory then, contenders or not.
    pub(crate) fn siblings(&self) -> usize {
        self.line.siblings
    }

    /// The data of the directory, as of the last look.
    pub(crate) fn directory(&self) -> Option<&(Bytes, zk::Stat)> {
        self.directory.as_ref()
    }

    pub(crate) fn who(&self) -> &Who {
        &self.entry.who
    }

    pub(crate) fn layout(&self) -> Layout {
        self.entry.layout
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn dir(&self) -> &NodePath {
        &self.dir
    }

    /// Looks for the node of a create whose reply was lost. The server that answers now may be another, and lag behind.
    async fn find(&mut self) -> Result<bool, Failure> {
        let client = self.client.clone();
        self.connections = client.zk().connections();
        let (zk, dir) = (client.zk(), self.dir.as_str());
        let children = match caught_up(zk, dir, || zk.children(dir)).await {
            Ok(children) => children,
            Err(zk::Error::NO_NODE) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut names = self.entry.layout.contenders(children.clone());
        let Some(name) = names.find(|name| name.as_str().starts_with(&self.prefix)) else {
            return Ok(false);
        };
        drop(names);
        let path = self.dir.child(&name);
        match client.zk().get(&path).await {
            // A node of another session is nobody's place: it goes when that session ends.
            Ok((_, stat))
                if stat.ephemeral_owner == client.session_id()
                    || client.is_sabotaged(Sabotage::AdoptAnyOwner) =>
            {
                self.node = Node::At(
                    name,
                    OwnNode::new(&client, path, stat.czxid, Naming::Unique),
                );
                self.look(children)?;
                Ok(true)
            }
            Ok(_) | Err(zk::Error::NO_NODE) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends for the data of the directory if it counts; always ahead of the list, so that whoever acted by an older limit is in
    /// that list. A read that fails tells nothing; the next look tries again.
    fn send_directory_read(
        &self,
        zk: &zk::Client,
    ) -> impl Future<Output = Option<(Bytes, zk::Stat)>> + use<> {
        let read = self.entry.first_limit.map(|_| zk.get(self.dir.as_str()));
        async { read?.await.ok() }
    }

    /// Notes what stands beside the own node.
    pub(crate) fn look(&mut self, children: Vec<String>) -> Result<(), Failure> {
        let Node::At(own, _) = &self.node else {
            return Err(Failure::Removed);
        };
        let by_text = self.client.is_sabotaged(Sabotage::SortByWholeName);
        let is_before = |name: &Name, own: &Name| match by_text {
            true => name.as_str() < own.as_str(),
            false => name.is_before(own),
        };
        let siblings = children.len().saturating_sub(1);
        let contenders = self.entry.layout.contenders(children);
        match self.line.look(own, siblings, contenders, is_before) {
            true => Ok(()),
            false => Err(Failure::Removed),
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        match (
            mem::replace(&mut self.node, Node::None),
            self.marking.take(),
        ) {
            (Node::InDoubt, _) => self.client.janitor().remove(Litter::Acquisition {
                dir: self.dir.clone(),
                prefix: mem::take(&mut self.prefix),
            }),
            (Node::At(_, node), Some(marking)) => node.undo(marking),
            // A node that is there goes by its own drop.
            (Node::None, _) | (Node::At(..), None) => {}
        }
    }
}

impl From<zk::Error> for Failure {
    fn from(error: zk::Error) -> Self {
        match outcome(&error) {
            Outcome::Unknown => Self::Disconnected(error),
            Outcome::SessionEnded => Self::SessionEnded,
            Outcome::Refused => Self::Refused(error),
        }
    }
}
