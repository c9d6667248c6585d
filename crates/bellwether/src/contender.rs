//! One sequential ephemeral node in a line, and the wait for its turn.
//!
//! Each contender watches the last one in its way and nobody else, so a hand-over wakes one. What it relies on: one
//! session's requests are processed in order, so a list sent right behind the create shows the new node.

use std::future::{pending, ready};
use std::mem;
use std::time::Duration;

use zookeeper_client as zk;

use crate::access::Access;
use crate::client::Client;
use crate::clock::Moment;
use crate::crash_mark::{CrashMark, Marking, Parting, Previous};
use crate::error::{Outcome, outcome};
use crate::heart::{Answered, Pulse};
use crate::hold::Hold;
use crate::janitor::Litter;
use crate::name::{AcquisitionId, Kind, Name, Prefix, contenders};
use crate::node_event::NodeEvent;
use crate::own_node::{Naming, OwnNode, Removal};
use crate::path::NodePath;
use crate::sabotage::Sabotage;
use crate::who::Who;

/// How often one step is tried over broken connections and vanished directories before it gives up.
pub(crate) const TRIES_MAX: usize = 20;

/// The server numbers children with a signed 32-bit counter that sticks or wraps at its end (`PrepRequestProcessor`,
/// ZOOKEEPER-4706); no new contender this close to it, so that those who are in the line stay in order.
pub(crate) const SEQUENCE_MAX: i32 = i32::MAX - 1_000_000;

/// A name is some fifty bytes, and a server sends no list beyond 1 MiB to a client of default settings.
pub(crate) const LINE_MAX: usize = 10_000;

/// What a node may say about who made it. Everybody who asks for the holder reads it.
const DATA_BYTES_MAX: usize = 64 << 10;

/// How long a contender deep in the line waits before it watches its own node too. It would learn of a removal from its
/// next list anyway; this is for those who wait long.
const OWN_WATCH_AFTER: Duration = Duration::from_secs(1);

/// What a contender brings.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) rule: Rule,
    pub(crate) kind: Kind,
    pub(crate) who: Who,
    pub(crate) access: Access,
    /// How many may stand in the line before this one.
    pub(crate) line_max: usize,
}

/// Which of the nodes before a contender stand in its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    pub(crate) blocks: fn(Kind) -> bool,
    /// Whether a node that blocks by its kind has given way, by its data.
    pub(crate) gave_way: fn(&[u8]) -> bool,
}

impl Rule {
    /// Whoever stands before.
    pub(crate) const EXCLUSIVE: Self = Self {
        blocks: |_| true,
        gave_way: |_| false,
    };
}

/// No name of a contender is longer.
const NAME_BYTES_MAX: usize = 64;

/// A place in a line. Dropped, it is given up: the janitor removes the node.
#[derive(Debug)]
pub(crate) struct Contender {
    client: Client,
    dir: NodePath,
    entry: Entry,
    id: AcquisitionId,
    node: Node,
    /// What stood before the node when it was last looked at. It only becomes less.
    lower: Vec<Name>,
    /// Those of the lower ones that have given way since.
    passed: Vec<Name>,
    own_watch: Option<NodeEvent>,
    marking: Option<Marking>,
    /// How often the create was sent.
    tries: usize,
    /// Tells of a reconnect since the last list.
    states: zk::StateWatcher,
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
            states: client.zk().state_watcher(),
            id: AcquisitionId::new(),
            node: Node::None,
            lower: Vec::new(),
            passed: Vec::new(),
            own_watch: None,
            marking: None,
            tries: 0,
            client: client.clone(),
            dir,
            entry,
        };
        let mut last = zk::Error::ConnectionLoss;
        for _ in 0..TRIES_MAX {
            this.tries += 1;
            match this.create(&payload).await {
                Ok(()) if this.lower.len() >= this.entry.line_max => {
                    return Err(Failure::LineFull {
                        depth: this.lower.len(),
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
        let prefix = self.dir.child(Prefix {
            kind: self.entry.kind,
            session: client.session_id(),
            id: self.id,
        });
        let options = zk::CreateMode::EphemeralSequential.with_acls(self.entry.access.acls());
        self.states.state();
        let sent = Moment::now();
        // Both futures are made before the first await: one round trip.
        self.node = Node::InDoubt;
        let create = zk.create(&prefix, payload, &options);
        let list = zk.list_children(self.dir.as_str());
        match create.await {
            Ok((stat, sequence)) => {
                client.heart().answered(sent, Answered::Write);
                let path = format!("{prefix}{sequence}");
                let name = path.rsplit_once('/').map(|(_, name)| name.to_owned());
                let name = name.and_then(Name::parse);
                let node = OwnNode::new(&client, path, stat.czxid, Naming::Unique);
                // Dropped here, the node is removed again.
                let name = name.ok_or(Failure::SequenceUsedUp)?;
                if !(0..SEQUENCE_MAX).contains(&name.sequence()) {
                    self.node = Node::None;
                    return Err(Failure::SequenceUsedUp);
                }
                self.node = Node::At(name, node);
                match list.await {
                    Ok(children) => self.look(children),
                    Err(_) => self.list().await,
                }
            }
            Err(zk::Error::NoNode) => {
                self.node = Node::None;
                // Containers are removed when empty, so it may vanish again before the next try, or while it is made.
                match client.make_directory(&self.dir, &self.entry.access).await {
                    Ok(()) | Err(zk::Error::NoNode) => {
                        Err(Failure::Disconnected(zk::Error::NoNode))
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

    /// Waits until nothing stands in the way of this node, and the session is known to be alive.
    pub(crate) async fn turn(&mut self) -> Result<(), Failure> {
        let client = self.client.clone();
        while let Some((blocker, alone)) = self.blocker() {
            // getData and not exists: on a node that has vanished it leaves no watch behind.
            let theirs = client.zk().get_and_watch_data(&self.dir.child(&blocker));
            if alone {
                // The watch on the own node rides along: without it, the last deletion alone would prove nothing.
                self.watch_own().await?;
            }
            match theirs.await {
                Ok((data, _, _)) if (self.entry.rule.gave_way)(&data) => self.passed.push(blocker),
                Ok((_, _, watch)) => match self.wait(NodeEvent::of(watch)).await? {
                    // The lower nodes only become fewer: if the last list showed this one alone, nothing is left. A
                    // waiter deeper in line cannot tell a holder's end from a waiter's, and lists. So does one whose
                    // connection broke since then.
                    zk::EventType::NodeDeleted if alone && self.would_have_heard().await => {
                        self.passed.push(blocker);
                    }
                    zk::EventType::NodeDeleted
                        if self.client.is_sabotaged(Sabotage::SkipRelist) =>
                    {
                        self.lower.clear();
                    }
                    zk::EventType::NodeDeleted => self.list().await?,
                    _ => {}
                },
                Err(zk::Error::NoNode) => self.list().await?,
                Err(error) if outcome(&error) == Outcome::Unknown => self.list().await?,
                Err(error) => return Err(error.into()),
            }
        }
        self.prove_alive().await
    }

    /// Waits until the session is known to be alive: a hold that began would else be over already.
    pub(crate) async fn prove_alive(&self) -> Result<(), Failure> {
        let heart = self.client.heart();
        while !heart.is_alive() {
            match heart.beat(self.client.zk()).await {
                Err(error) if outcome(&error) != Outcome::Unknown => return Err(error.into()),
                Err(_) | Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Whether the first create succeeded, so that what was sent behind it was answered after it.
    pub(crate) fn is_first_try(&self) -> bool {
        self.tries == 1
    }

    /// What stood before the own node when it was last looked at, in no order.
    pub(crate) fn lower(&self) -> &[Name] {
        &self.lower
    }

    /// Whether an end of the own node by another hand would have been told since the last look.
    pub(crate) async fn would_have_heard(&mut self) -> bool {
        self.own_watch.is_some() && !self.reconnected().await
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
        self.blocker().is_some()
    }

    /// Makes the node whose turn it is a hold, with a crash mark if one is wanted.
    pub(crate) async fn hold(mut self, path: &str, marked: bool) -> Result<Hold, Failure> {
        let mut mark = None;
        let mut previous = Previous::Unknown;
        if marked && let Node::At(_, node) = &self.node {
            let marking = self.marking.insert(Marking::of(&self.dir));
            let who = Some(self.entry.who.clone());
            let set = CrashMark::set(node, who, &self.entry.access, marking).await;
            let (set, found) = match set {
                Err(Failure::Refused(zk::Error::NoNode)) => return Err(Failure::Removed),
                set => set?,
            };
            (mark, previous) = (Some(set), found);
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

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn dir(&self) -> &NodePath {
        &self.dir
    }

    /// The nearest lower node that stands in the way, and whether it is the only one; `None` when it is our turn.
    fn blocker(&self) -> Option<(Name, bool)> {
        let mut blockers = self
            .lower
            .iter()
            .filter(|name| (self.entry.rule.blocks)(name.kind()) && !self.passed.contains(name));
        let mut nearest = blockers.next()?;
        let mut alone = true;
        for name in blockers {
            alone = false;
            if nearest.is_before(name) {
                nearest = name;
            }
        }
        Some((nearest.clone(), alone))
    }

    /// Waits for a change of the watched node, and meanwhile for a deletion of our own.
    pub(crate) async fn wait(&mut self, mut theirs: NodeEvent) -> Result<zk::EventType, Failure> {
        let client = self.client.clone();
        let mut own_watch_due = Box::pin(client.home().sleep(OWN_WATCH_AFTER));
        loop {
            let is_watched = self.own_watch.is_some();
            let own = async {
                match &mut self.own_watch {
                    Some(event) => event.await,
                    None => pending().await,
                }
            };
            let own = tokio::select! {
                biased;
                event = own => Some(event),
                event = &mut theirs => {
                    return match event {
                        zk::EventType::Session => Err(Failure::SessionEnded),
                        event => Ok(event),
                    };
                }
                () = &mut own_watch_due, if !is_watched => None,
            };
            match own {
                Some(zk::EventType::NodeDeleted) => return Err(Failure::Removed),
                Some(zk::EventType::Session) => return Err(Failure::SessionEnded),
                // Somebody wrote to it, or it is time to watch it.
                Some(_) | None => {
                    self.own_watch = None;
                    self.watch_own().await?;
                    own_watch_due = Box::pin(client.home().sleep(OWN_WATCH_AFTER));
                }
            }
        }
    }

    /// Watches the own node, if the connection lets us.
    pub(crate) async fn watch_own(&mut self) -> Result<(), Failure> {
        let Node::At(_, node) = &self.node else {
            return Err(Failure::Removed);
        };
        if self.own_watch.is_none() {
            match self.client.zk().get_and_watch_data(node.path()).await {
                Ok((_, _, watch)) => self.own_watch = Some(NodeEvent::of(watch)),
                Err(zk::Error::NoNode) => return Err(Failure::Removed),
                Err(error) if outcome(&error) == Outcome::Unknown => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Looks for the node of a create whose reply was lost.
    async fn find(&mut self) -> Result<bool, Failure> {
        let client = self.client.clone();
        self.states.state();
        let children = match client.zk().list_children(self.dir.as_str()).await {
            Ok(children) => children,
            Err(zk::Error::NoNode) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let Some(name) = contenders(children.clone()).find(|name| name.id() == self.id) else {
            return Ok(false);
        };
        let path = self.dir.child(&name);
        match client.zk().get_data(&path).await {
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
            Ok(_) | Err(zk::Error::NoNode) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Looks again at what stands before the own node.
    pub(crate) async fn list(&mut self) -> Result<(), Failure> {
        let mut last = zk::Error::ConnectionLoss;
        for _ in 0..TRIES_MAX {
            self.states.state();
            let sent = Moment::now();
            match self.client.zk().list_children(self.dir.as_str()).await {
                Ok(children) => {
                    self.client.heart().answered(sent, Answered::Read);
                    return self.look(children);
                }
                Err(zk::Error::NoNode) => return Err(Failure::Removed),
                Err(error) if outcome(&error) == Outcome::Unknown => last = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }

    /// Notes what stands before the own node.
    pub(crate) fn look(&mut self, children: Vec<String>) -> Result<(), Failure> {
        let Node::At(own, _) = &self.node else {
            return Err(Failure::Removed);
        };
        let by_text = self.client.is_sabotaged(Sabotage::SortByWholeName);
        let mut seen = false;
        self.lower.clear();
        for name in contenders(children) {
            if name == *own {
                seen = true;
            } else if name.is_before(own) && !by_text || name.as_str() < own.as_str() && by_text {
                self.lower.push(name);
            }
        }
        if seen { Ok(()) } else { Err(Failure::Removed) }
    }

    /// Whether the connection was lost since the last list.
    async fn reconnected(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.states.changed() => true,
            () = ready(()) => false,
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let litter = match (
            mem::replace(&mut self.node, Node::None),
            self.marking.take(),
        ) {
            (Node::None, _) => return,
            (Node::InDoubt, _) => Litter::Acquisition {
                dir: self.dir.clone(),
                id: self.id,
            },
            // The node goes by its own drop.
            (Node::At(..), None) => return,
            (Node::At(_, node), Some(marking)) => match node.forget() {
                Some(node) => Litter::Marked { node, marking },
                None => return,
            },
        };
        self.client.janitor().remove(litter);
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
