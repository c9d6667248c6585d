//! One sequential ephemeral node in a line, and the wait for its turn.
//!
//! A contender watches only the nearest node that blocks it, so a hand-over wakes one contender: no thundering herd. The server
//! processes the requests of one session in order, so a list sent right behind the create shows the new node.

mod turn;
mod view;

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::future::join3;

use crate::hold::Hold;
use crate::hold::crash_mark::{self, CrashMark};
use crate::hold::crash_record::Previous;
use crate::hold::own_node::OwnWatch;
use crate::hold::own_node::{Naming, OwnNode};
use crate::hold::parting::Marking;
use crate::line::failure::Failure;
use crate::line::name::{Kind, Layout, Name};
use crate::line::neighbours::{Berth, Entrance, Neighbours};
use crate::node::access::Access;
use crate::node::acquisition::AcquisitionId;
use crate::node::node_data::DATA_BYTES_MAX;
use crate::node::path::NodePath;
use crate::node::who::Who;
use crate::request::latecomer::Latecomer;
use crate::request::litter::Litter;
use crate::request::receipt::{OnceError, Receipts, Written};
use crate::request::retry::{Tries, until_answered};
use crate::request::synced_read::linearizable_in;
use crate::session::heart::Pulse;
use crate::session::meters::Wait;
use crate::session::open_session::Session;
use crate::session::sabotage::Sabotage;

use self::view::Line;
pub(crate) use self::view::{Rule, Sight};

/// The server numbers children with a signed 32-bit counter that sticks or wraps at its end (`PrepRequestProcessor`,
/// ZOOKEEPER-4706). A new contender above this number is refused, so that the line stays in order.
pub(crate) const SEQUENCE_MAX: i32 = i32::MAX - 1_000_000;

/// A name has some fifty bytes, and Apache's clients read no list beyond 1 MiB unless configured.
pub(crate) const LINE_MAX: usize = 10_000;

/// How a contender enters a line.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) rule: Rule,
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
    /// Receipts with which the node is created exactly once, in recipes that count nodes. In a line, the node of a create that arrives late
    /// only delays others until it is deleted.
    pub(crate) once: Option<Receipts>,
}

/// The longest name of a contender.
const NAME_BYTES_MAX: usize = 64;

/// A place in a line. On drop the janitor deletes the node.
#[derive(Debug)]
pub(crate) struct Contender {
    session: Session,
    dir: NodePath,
    entry: Entry,
    /// The name of the node without its sequence number. No other node has it.
    prefix: String,
    node: Node,
    /// The line as last listed, if it was.
    line: Option<Line>,
    /// The data of the directory at that time, in recipes with a limit.
    directory: Option<(Bytes, zk::Stat)>,
    own_watch: Option<OwnWatch>,
    /// The place of the node among the contenders of this session. The node keeps it too.
    berth: Option<Arc<Berth>>,
    marking: Option<Marking>,
    /// Whether only one create was sent.
    is_first_try: bool,
    /// The number of the connection that sent the first create without a reply, if there was one.
    in_doubt_since: Option<u64>,
    /// The number of the connection that sent the last list.
    connections: u64,
    wait: Wait,
    _pulse: Pulse,
}

#[derive(Debug)]
enum Node {
    /// There is no node.
    None,
    /// A create was sent, and its reply is outstanding or lost.
    InDoubt,
    At(Name, OwnNode),
}

impl Contender {
    /// Creates the node at the end of the line, and the directory if it is missing.
    pub(crate) async fn enter(
        session: &Session,
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
        let ephemerals = session.ephemerals();
        if !ephemerals.has_room(dir.as_str().len() + NAME_BYTES_MAX) {
            return Err(Failure::TooManyEphemerals {
                bytes: ephemerals.bytes(),
            });
        }
        let mut this = Self {
            _pulse: Pulse::new(session),
            connections: session.zk().connections(),
            prefix: entry
                .layout
                .prefix(entry.kind, session.session_id(), AcquisitionId::new()),
            node: Node::None,
            line: None,
            directory: None,
            own_watch: None,
            berth: None,
            marking: None,
            is_first_try: true,
            in_doubt_since: None,
            wait: Wait::begin(),
            session: session.clone(),
            dir,
            entry,
        };
        let mut tries = Tries::limited();
        match this.entry.once.clone() {
            Some(receipts) => this.create_once(&payload, &receipts, &mut tries).await?,
            None => {
                while !this.create(&payload, &mut tries).await? {
                    this.is_first_try = false;
                }
            }
        }
        this.check_depth().await?;
        Ok(this)
    }

    /// Fails if too many contenders are ahead.
    async fn check_depth(&mut self) -> Result<(), Failure> {
        let line_max = self.entry.line_max;
        // A contender that entered together with others of its session sent no list. Their list usually bounds the depth.
        let ahead_max = self.berth().and_then(Berth::ahead_max);
        if self.line.is_none() && ahead_max.is_none_or(|ahead| ahead >= line_max) {
            self.list().await?;
        }
        match self.lower().count() {
            depth if depth >= line_max => Err(Failure::LineFull { depth }),
            _ => Ok(()),
        }
    }

    /// Tries to create the node and to list the line, unless a neighbour lists it first. Returns false if the caller may try again. A node
    /// whose create got no answer is found by its name.
    async fn create(&mut self, payload: &[u8], tries: &mut Tries) -> Result<bool, Failure> {
        if matches!(self.node, Node::InDoubt) && self.find().await? {
            return Ok(true);
        }
        let session = self.session.clone();
        let zk = session.zk();
        let prefix = self.dir.child(&self.prefix);
        let options = zk::CreateMode::EphemeralSequential.with_acl(self.entry.access.acl());
        self.connections = session.zk().connections();
        self.node = Node::InDoubt;
        let neighbours = self.neighbours();
        let entrance = neighbours.as_ref().map(Neighbours::announce);
        let kind = self.entry.kind;
        let has_company = entrance.as_ref().is_some_and(|here| here.has_company(kind));
        // Pipelined: one packet, one round trip.
        let (create, directory, list) = zk.batch(|zk| {
            let create = zk.create(&prefix, payload, options);
            let directory = self.send_directory_read(zk);
            let list = (!has_company).then(|| zk.children(self.dir.as_str()));
            (create, directory, list)
        });
        match create.await {
            Ok(zk::Created { path, stat }) => {
                self.adopt(path, stat.czxid, entrance)?;
                if let Some(list) = list {
                    match list.await {
                        Ok(children) => {
                            self.directory = directory.await;
                            self.look(children)?;
                        }
                        Err(_) => self.list().await?,
                    }
                }
                Ok(true)
            }
            Err(zk::Error::NO_NODE) => {
                self.node = Node::None;
                tries.again_after(self.make_directory().await)?;
                Ok(false)
            }
            Err(error) => {
                let is_known = error != zk::Error::Unknown
                    || self.session.is_sabotaged(Sabotage::UnknownIsRefusal);
                if is_known {
                    self.node = Node::None;
                }
                if !is_known {
                    self.in_doubt_since.get_or_insert(self.connections);
                }
                tries.again(error)?;
                Ok(false)
            }
        }
    }

    /// Creates the node exactly once, and lists the line.
    async fn create_once(
        &mut self,
        payload: &[u8],
        receipts: &Receipts,
        tries: &mut Tries,
    ) -> Result<(), Failure> {
        let session = self.session.clone();
        let zk = session.zk();
        let (prefix, dir) = (self.dir.child(&self.prefix), self.dir.clone());
        let options = zk::CreateMode::EphemeralSequential.with_acl(self.entry.access.acl());
        let mut operation = receipts.operation()?;
        loop {
            self.connections = zk.connections();
            self.node = Node::InDoubt;
            // Its stat has the zxid that the answer to a create does not show. All writes of a multi have one zxid.
            let receipt = operation.is_first().then(|| operation.path().to_owned());
            // Polled in this order, so they are sent in this order.
            let (written, receipt, list) = join3(
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
                        return Err(Failure::Removed);
                    };
                    self.adopt(path.clone(), czxid, None)?;
                    return self.look(children);
                }
                (Ok(_), ..) => {
                    self.is_first_try = false;
                    return match self.find().await? {
                        true => Ok(()),
                        false => Err(Failure::Removed),
                    };
                }
                (Err(OnceError::Refused(error)), ..) => {
                    self.is_first_try = false;
                    self.node = Node::None;
                    match zk::Error::from(error) {
                        zk::Error::NO_NODE => tries.again_after(self.make_directory().await)?,
                        error => return Err(error.into()),
                    }
                }
                (Err(error), ..) => return Err(error.into()),
            }
        }
    }

    /// Takes over a node that was created, unless the numbers of its line are used up.
    fn adopt(
        &mut self,
        path: String,
        czxid: i64,
        entrance: Option<Entrance>,
    ) -> Result<(), Failure> {
        let name = path.rsplit_once('/').map(|(_, name)| name.to_owned());
        let name = name.and_then(|name| self.entry.layout.parse(name));
        // Dropped here, the node is removed again.
        let node = OwnNode::new(&self.session, path, czxid, Naming::Unique);
        self.node = Node::None;
        match name {
            Some(name) if (0..SEQUENCE_MAX).contains(&name.sequence()) => {
                self.place(name, node, entrance);
                Ok(())
            }
            _ => Err(Failure::SequenceUsedUp),
        }
    }

    /// The contenders of this session in the same line, if one of them can wait for another.
    ///
    /// Only exclusive contenders can: when one of them has its turn, no node is ahead of it. In the layouts of other libraries a node may
    /// later sort ahead of others.
    fn neighbours(&self) -> Option<Arc<Neighbours>> {
        let is_exclusive = matches!(
            self.entry.kind,
            Kind::Lock | Kind::Write | Kind::Candidate | Kind::Consumer
        );
        let is_sabotaged = self.session.is_sabotaged(Sabotage::SkipRelist)
            || self.session.is_sabotaged(Sabotage::SortByWholeName);
        let wait = is_exclusive && self.entry.layout == Layout::Bellwether && !is_sabotaged;
        wait.then(|| Neighbours::of(&self.session, &self.dir))
    }

    /// Records the created node and its place among the contenders of this session.
    fn place(&mut self, name: Name, mut node: OwnNode, entrance: Option<Entrance>) {
        let kind = self.entry.kind;
        self.berth = entrance.map(|entrance| Arc::new(entrance.take(kind, name.sequence())));
        if let Some(berth) = &self.berth {
            node.accompany(berth.clone());
        }
        if let Some(connection) = self.stragglers_since() {
            node.accompany(Arc::new(self.latecomer(connection)));
        }
        self.node = Node::At(name, node);
    }

    /// The number of the connection since which earlier creates may make nodes, if there are any.
    fn stragglers_since(&self) -> Option<u64> {
        match self.session.is_sabotaged(Sabotage::LeaveStragglers) {
            true => None,
            false => self.in_doubt_since,
        }
    }

    fn latecomer(&self, connection: u64) -> Latecomer {
        let litter = Litter::Acquisition {
            dir: self.dir.clone(),
            prefix: self.prefix.clone(),
        };
        Latecomer::new(&self.session, litter, connection)
    }

    fn berth(&self) -> Option<&Berth> {
        self.berth.as_deref()
    }

    async fn make_directory(&self) -> Result<(), zk::Error> {
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

    /// Whether the first create succeeded. Then requests sent behind it were answered after it.
    pub(crate) fn is_first_try(&self) -> bool {
        self.is_first_try
    }

    /// The nodes ahead at the last list, in no order. Empty before the first list.
    pub(crate) fn lower(&self) -> impl Iterator<Item = &Name> {
        self.line.iter().flat_map(Line::lower)
    }

    /// Lists the line, unless that was done when the node was created.
    pub(crate) async fn look_once(&mut self) -> Result<(), Failure> {
        match self.line {
            Some(_) => Ok(()),
            None => self.list().await,
        }
    }

    /// The wait since it asked for its place.
    pub(crate) fn wait_so_far(&self) -> Wait {
        self.wait
    }

    /// Whether a node blocked this contender at the last list.
    pub(crate) fn is_blocked(&self) -> bool {
        let line = self.line.as_ref();
        line.is_none_or(|line| line.blocker(self.entry.rule).is_some())
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
        } else if marked && let Node::At(_, node) = &self.node {
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
            self.session.home().sleep(lock_delay).await;
            self.list().await?;
            self.prove_alive().await?;
        }
        self.marking = None;
        let Some(node) = self.take_node() else {
            return Err(Failure::Removed);
        };
        let own_watch = self.own_watch.take();
        Ok(Hold::start(path, node, own_watch, mark, previous))
    }

    /// Sends no delete: the node is known to be gone.
    pub(crate) fn forget(mut self) {
        if let Some(node) = self.take_node() {
            node.forget();
        }
    }

    /// The node, which outlives this place, and what has to be removed after it.
    fn take_node(&mut self) -> Option<OwnNode> {
        match mem::replace(&mut self.node, Node::None) {
            Node::At(_, node) => {
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
            Node::At(name, _) => Some(name),
            Node::None | Node::InDoubt => None,
        }
    }

    /// The nearest node ahead at the last list.
    pub(crate) fn nearest(&self) -> Option<&Name> {
        self.line.as_ref()?.nearest()
    }

    /// Whether a contender was behind the node at the last list.
    pub(crate) fn is_followed(&self) -> bool {
        self.line.as_ref().is_some_and(Line::is_followed)
    }

    /// How many other nodes the directory had at the last list, contenders or not.
    pub(crate) fn siblings(&self) -> usize {
        self.line.as_ref().map_or(0, Line::siblings)
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

    /// Looks for the node of a create whose reply was lost. The server that answers now may be another, and lag behind.
    async fn find(&mut self) -> Result<bool, Failure> {
        let session = self.session.clone();
        self.connections = session.zk().connections();
        let (zk, dir) = (session.zk(), self.dir.as_str());
        let list = || linearizable_in(&session, dir, || zk.children(dir));
        let children = match until_answered(list).await {
            Ok(children) => children,
            Err(zk::Error::NO_NODE) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let names = self.entry.layout.contenders(children.clone());
        let adopts_any = session.is_sabotaged(Sabotage::AdoptAnyOwner);
        let own: Vec<Name> = names
            .filter(|name| adopts_any || name.as_str().starts_with(&self.prefix))
            .collect();
        let mut found = None;
        // Every try that took effect has left a node, and each of them counts in the line. One is adopted, the others are deleted.
        for name in own {
            if adopts_any && found.is_some() {
                break;
            }
            let path = self.dir.child(&name);
            match until_answered(|| zk.get(&path)).await {
                // A node of another session is not this contender's: it disappears with that session.
                Ok((_, stat)) if adopts_any || stat.ephemeral_owner == session.session_id() => {
                    let node = OwnNode::new(&session, path, stat.czxid, Naming::Unique);
                    // Dropped, the other node is deleted by the janitor.
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
        let entrance = self.neighbours().as_ref().map(Neighbours::announce);
        self.place(name, node, entrance);
        self.look(children)?;
        Ok(true)
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

    /// Records the listed line, also for the neighbours.
    pub(crate) fn look(&mut self, children: Vec<String>) -> Result<(), Failure> {
        let nodes = children.len();
        let names = self.entry.layout.contenders(children).collect();
        let sight = Arc::new(Sight::new(names, nodes));
        if let Some(berth) = self.berth() {
            berth.neighbours().share(&sight);
        }
        match self.see(sight) {
            true => Ok(()),
            false => Err(Failure::Removed),
        }
    }

    /// Adopts a listed line. Returns `false` if the own node was not in it.
    fn see(&mut self, sight: Arc<Sight>) -> bool {
        let Node::At(own, _) = &self.node else {
            return false;
        };
        if self.stragglers_since().is_some() {
            // Ahead of the own node, it would block the contender itself.
            for other in sight.others_of(own, &self.prefix) {
                let path = self.dir.child(other);
                self.session.janitor().remove(Litter::Own(path));
            }
        }
        match &mut self.line {
            Some(line) => line.renew(sight),
            None => {
                let by_text = self.session.is_sabotaged(Sabotage::SortByWholeName);
                self.line = Line::beside(own, sight, by_text);
                self.line.is_some()
            }
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        match (
            mem::replace(&mut self.node, Node::None),
            self.marking.take(),
        ) {
            (Node::InDoubt, _) => {
                let connection = self.in_doubt_since.unwrap_or(self.connections);
                drop(self.latecomer(connection));
            }
            // The last create was refused, and not those before it.
            (Node::None, _) => {
                drop(self.stragglers_since().map(|since| self.latecomer(since)));
            }
            (Node::At(_, node), Some(marking)) => node.undo(marking),
            // A known node is deleted by its own drop.
            (Node::At(..), None) => {}
        }
    }
}
