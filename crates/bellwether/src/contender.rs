//! One sequential ephemeral node in a queue, and the wait for its turn.
//!
//! Each contender watches the one before it and nobody else, so a hand-over wakes one. What it relies on: one session's
//! requests are processed in order, so a list sent right behind the create shows the new node.

use std::collections::hash_map::RandomState;
use std::fmt;
use std::future::ready;
use std::hash::BuildHasher;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};

use zookeeper_client as zk;

use crate::error::{Outcome, ReleaseError, outcome};
use crate::janitor::Litter;
use crate::path::NodePath;
use crate::session::Client;

/// How often one step is tried over broken connections and vanished directories before it gives up.
const TRIES_MAX: usize = 20;

/// The server numbers children with a signed 32-bit counter that sticks or wraps at its end (`PrepRequestProcessor`,
/// ZOOKEEPER-4706); no new contender this close to it, so that those who are in the queue stay in order.
const SEQUENCE_MAX: i32 = i32::MAX - 1_000_000;

/// A place in a queue. Dropped, it is given up: the janitor removes the node.
#[derive(Debug)]
pub(crate) struct Contender {
    client: Client,
    dir: NodePath,
    id: u64,
    node: Node,
    /// Tells of a reconnect since the last list.
    states: zk::StateWatcher,
}

#[derive(Clone, Copy, Debug)]
enum Node {
    /// Not there.
    None,
    /// A create was sent, and its reply is outstanding or lost.
    InDoubt,
    At(Name, i64),
}

/// What stands before a contender, as of one list.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lower {
    /// The next one before us, who is to be watched; `None` when it is our turn.
    predecessor: Option<Name>,
    count: usize,
}

impl Lower {
    pub(crate) fn is_empty(self) -> bool {
        self.predecessor.is_none()
    }
}

/// Why a contender has no turn; the recipe adds the path.
#[derive(Debug)]
pub(crate) enum Failure {
    Removed,
    SessionEnded,
    SequenceUsedUp,
    Disconnected(zk::Error),
    Refused(zk::Error),
}

impl Contender {
    /// Creates the node at the end of the queue, with the directory if that is missing.
    pub(crate) async fn enter(
        client: &Client,
        dir: &NodePath,
        payload: &[u8],
    ) -> Result<(Self, Lower), Failure> {
        let mut this = Self {
            client: client.clone(),
            dir: dir.clone(),
            id: new_id(),
            node: Node::None,
            states: client.zk().state_watcher(),
        };
        let zk = client.zk();
        let prefix = dir.child(Prefix {
            session: session_bits(client),
            id: this.id,
        });
        let options = zk::CreateMode::EphemeralSequential.with_acls(zk::Acls::anyone_all());
        let mut last = zk::Error::ConnectionLoss;
        for _ in 0..TRIES_MAX {
            if matches!(this.node, Node::InDoubt) {
                match this.find().await {
                    Ok(Some(lower)) => return Ok((this, lower)),
                    Ok(None) => this.node = Node::None,
                    Err(error) if outcome(&error) == Outcome::Unknown => {
                        last = error;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            this.states.state();
            // Both futures are made before the first await: one round trip.
            this.node = Node::InDoubt;
            let create = zk.create(&prefix, payload, &options);
            let list = zk.list_children(dir.as_str());
            match create.await {
                Ok((stat, sequence)) => {
                    let Ok(sequence) = i32::try_from(sequence.into_i64()) else {
                        return Err(Failure::SequenceUsedUp);
                    };
                    let name = Name {
                        session: session_bits(client),
                        id: this.id,
                        sequence,
                    };
                    this.node = Node::At(name, stat.czxid);
                    if !(0..SEQUENCE_MAX).contains(&sequence) {
                        return Err(Failure::SequenceUsedUp);
                    }
                    let lower = match list.await {
                        Ok(names) => lower(&names, name).ok_or(Failure::Removed)?,
                        Err(_) => this.list(name).await?,
                    };
                    return Ok((this, lower));
                }
                Err(zk::Error::NoNode) => {
                    this.node = Node::None;
                    // Containers are removed when empty, so the directory may vanish again before the next create.
                    match client.make_directory(dir).await {
                        Err(error) if outcome(&error) != Outcome::Unknown => {
                            return Err(error.into());
                        }
                        Err(error) => last = error,
                        Ok(()) => last = zk::Error::NoNode,
                    }
                }
                Err(error) => match outcome(&error) {
                    Outcome::Unknown => last = error,
                    Outcome::SessionEnded => return Err(Failure::SessionEnded),
                    Outcome::Refused => {
                        this.node = Node::None;
                        return Err(Failure::Refused(error));
                    }
                },
            }
        }
        Err(last.into())
    }

    /// Waits until nothing stands before this node. Returns the watch on the own node if one is armed.
    pub(crate) async fn turn(&mut self, mut lower: Lower) -> Result<Option<NodeEvent>, Failure> {
        let client = self.client.clone();
        let zk = client.zk();
        let Node::At(name, _) = self.node else {
            return Err(Failure::Removed);
        };
        let own_path = self.dir.child(name);
        let mut own: Option<NodeEvent> = None;
        while let Some(predecessor) = lower.predecessor {
            let path = self.dir.child(predecessor);
            // getData and not exists: on a node that has vanished it leaves no watch behind.
            let theirs = zk.get_and_watch_data(&path);
            // The watch on the own node rides along.
            let own_event = match own.take() {
                Some(event) => Ok(event),
                None => zk
                    .get_and_watch_data(&own_path)
                    .await
                    .map(|(_, _, watch)| node_event(watch)),
            };
            let (mut own_event, theirs) = match (own_event, theirs.await) {
                (Err(zk::Error::NoNode), _) => return Err(Failure::Removed),
                (Ok(own_event), Ok((_, _, watch))) => (own_event, watch),
                (own_event, theirs) => {
                    for error in [own_event.as_ref().err(), theirs.as_ref().err()]
                        .into_iter()
                        .flatten()
                    {
                        if *error != zk::Error::NoNode && outcome(error) != Outcome::Unknown {
                            return Err(error.clone().into());
                        }
                    }
                    own = own_event.ok();
                    lower = self.list(name).await?;
                    continue;
                }
            };
            let event = tokio::select! {
                event = &mut own_event => match event.event_type {
                    zk::EventType::NodeDeleted => return Err(Failure::Removed),
                    zk::EventType::Session => return Err(Failure::SessionEnded),
                    // Somebody wrote to it. The next turn of the loop watches it anew.
                    _ => continue,
                },
                event = theirs.changed() => event,
            };
            own = Some(own_event);
            match event.event_type {
                zk::EventType::Session => return Err(Failure::SessionEnded),
                // The lower nodes only become fewer: if the last list showed this one alone, nothing is left. A
                // waiter deeper in line cannot tell a holder's end from a waiter's, and lists. So does one whose
                // connection broke since then.
                zk::EventType::NodeDeleted if lower.count == 1 && !self.state_changed().await => {
                    break;
                }
                zk::EventType::NodeDeleted => lower = self.list(name).await?,
                _ => {}
            }
        }
        Ok(own)
    }

    /// The zxid that created the node: it rises from contender to contender.
    pub(crate) fn token(&self) -> i64 {
        match self.node {
            Node::At(_, czxid) => czxid,
            Node::None | Node::InDoubt => {
                unreachable!("a contender has a node once it has entered")
            }
        }
    }

    /// The path of the node.
    pub(crate) fn path(&self) -> String {
        match self.node {
            Node::At(name, _) => self.dir.child(name),
            Node::None | Node::InDoubt => {
                unreachable!("a contender has a node once it has entered")
            }
        }
    }

    /// Deletes the node and waits for the acknowledgement.
    pub(crate) async fn leave(mut self, lock: &str) -> Result<(), ReleaseError> {
        let path = self.path();
        let mut in_doubt = false;
        loop {
            // Harmless twice: the name holds an id that no other acquisition has.
            let error = match self.client.zk().delete(&path, None).await {
                Ok(()) => break,
                // Our own earlier delete may have done it.
                Err(zk::Error::NoNode) if in_doubt => break,
                Err(error) => error,
            };
            match (outcome(&error), error) {
                (Outcome::Unknown, _) => in_doubt = true,
                (Outcome::SessionEnded, _) => {
                    self.node = Node::None;
                    return Err(ReleaseError::SessionEnded {
                        path: lock.to_owned(),
                    });
                }
                (_, zk::Error::NoNode) => {
                    self.node = Node::None;
                    return Err(ReleaseError::NotHeld {
                        path: lock.to_owned(),
                    });
                }
                (_, source) => {
                    return Err(ReleaseError::Refused {
                        path: lock.to_owned(),
                        source,
                    });
                }
            }
        }
        self.node = Node::None;
        Ok(())
    }

    /// Looks for the node of a create whose reply was lost.
    async fn find(&mut self) -> Result<Option<Lower>, zk::Error> {
        let zk = self.client.zk();
        self.states.state();
        let names = match zk.list_children(self.dir.as_str()).await {
            Ok(names) => names,
            Err(zk::Error::NoNode) => return Ok(None),
            Err(error) => return Err(error),
        };
        let Some(name) = contenders(&names).find(|name| name.id == self.id) else {
            return Ok(None);
        };
        match zk.get_data(&self.dir.child(name)).await {
            // A node of another session is nobody's place: it goes when that session ends.
            Ok((_, stat)) if stat.ephemeral_owner == self.client.session_id() => {
                self.node = Node::At(name, stat.czxid);
                Ok(lower(&names, name))
            }
            Ok(_) | Err(zk::Error::NoNode) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn list(&mut self, own: Name) -> Result<Lower, Failure> {
        let mut last = zk::Error::ConnectionLoss;
        for _ in 0..TRIES_MAX {
            self.states.state();
            match self.client.zk().list_children(self.dir.as_str()).await {
                Ok(names) => return lower(&names, own).ok_or(Failure::Removed),
                Err(zk::Error::NoNode) => return Err(Failure::Removed),
                Err(error) if outcome(&error) == Outcome::Unknown => last = error,
                Err(error) => return Err(error.into()),
            }
        }
        Err(last.into())
    }

    /// Whether the connection was lost since the last list.
    async fn state_changed(&mut self) -> bool {
        tokio::select! {
            biased;
            _ = self.states.changed() => true,
            () = ready(()) => false,
        }
    }
}

impl Drop for Contender {
    fn drop(&mut self) {
        let litter = match self.node {
            Node::None => return,
            Node::InDoubt => Litter::Acquisition {
                dir: self.dir.clone(),
                id: self.id,
            },
            Node::At(name, _) => Litter::Node(self.dir.child(name)),
        };
        self.client.janitor().remove(litter);
    }
}

/// An armed watch: resolves with the first change of a node, or the end of the session.
pub(crate) type NodeEvent = Pin<Box<dyn Future<Output = zk::WatchedEvent> + Send>>;

pub(crate) fn node_event(watch: zk::OneshotWatcher) -> NodeEvent {
    Box::pin(watch.changed())
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

/// The name of a contender's node: `lock-<session>-<id of the acquisition>-<sequence>`.
///
/// The id finds the node again after a lost reply; the session alone would not, as two tasks may share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name {
    session: u64,
    pub(crate) id: u64,
    sequence: i32,
}

impl Name {
    /// Reads a name; `None` for a name of another shape, which is none of our business.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix("lock-")?.splitn(3, '-');
        let session = u64::from_str_radix(parts.next()?, 16).ok()?;
        let id = u64::from_str_radix(parts.next()?, 16).ok()?;
        // The server writes ten digits, after a minus sign once the counter has wrapped.
        let sequence = parts.next()?;
        if sequence.len() < 10 {
            return None;
        }
        Some(Self {
            session,
            id,
            sequence: sequence.parse().ok()?,
        })
    }

    /// Whether this one was created before the other. The counter may wrap, so the difference decides.
    fn is_before(self, other: Self) -> bool {
        self.sequence.wrapping_sub(other.sequence) < 0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            session,
            id,
            sequence,
        } = *self;
        write!(f, "{}{sequence:010}", Prefix { session, id })
    }
}

/// A name without the sequence, which the server adds.
struct Prefix {
    session: u64,
    id: u64,
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lock-{:x}-{:016x}-", self.session, self.id)
    }
}

/// The contenders among the children of a directory.
pub(crate) fn contenders(names: &[String]) -> impl Iterator<Item = Name> {
    names.iter().filter_map(|name| Name::parse(name))
}

/// What stands before `own`; `None` if `own` itself is not there.
fn lower(names: &[String], own: Name) -> Option<Lower> {
    let mut seen = false;
    let mut lower = Lower {
        predecessor: None,
        count: 0,
    };
    for name in contenders(names) {
        if name == own {
            seen = true;
        } else if name.is_before(own) {
            lower.count += 1;
            if lower.predecessor.is_none_or(|best| best.is_before(name)) {
                lower.predecessor = Some(name);
            }
        }
    }
    seen.then_some(lower)
}

fn session_bits(client: &Client) -> u64 {
    client.session_id().cast_unsigned()
}

/// An id that no other acquisition has, in this process or another.
fn new_id() -> u64 {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    // The hasher's keys are random in each process, which is all the randomness this needs.
    RandomState::new().hash_one((COUNT.fetch_add(1, Ordering::Relaxed), std::process::id()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(session: u64, id: u64, sequence: i32) -> Name {
        Name {
            session,
            id,
            sequence,
        }
    }

    #[test]
    fn names_round_trip() {
        for sequence in [0, 7, i32::MAX, i32::MIN, -5] {
            let name = name(0x1000_0a5b_c3d0_0001, u64::MAX, sequence);
            assert_eq!(Name::parse(&name.to_string()), Some(name));
        }
        assert_eq!(
            name(0xab, 1, 12).to_string(),
            "lock-ab-0000000000000001-0000000012"
        );
    }

    #[test]
    fn foreign_names_are_ignored() {
        for foreign in [
            "held",
            "lock-",
            "lock-1-2",
            "lock-1-2-3",
            "_c_4f-lock-0000000001",
            "lock-x-2-0000000003",
        ] {
            assert_eq!(Name::parse(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn order_is_by_sequence_and_not_by_name() {
        let names = [name(9, 9, 1), name(1, 1, 3), name(5, 5, 2)].map(|name| name.to_string());
        let lower = lower(&names, name(1, 1, 3)).unwrap();
        assert_eq!((lower.predecessor, lower.count), (Some(name(5, 5, 2)), 2));
    }

    #[test]
    fn order_holds_where_the_counter_wraps() {
        let names = [name(1, 1, i32::MIN), name(2, 2, i32::MAX)].map(|name| name.to_string());
        assert!(lower(&names, name(2, 2, i32::MAX)).unwrap().is_empty());
        assert_eq!(lower(&names, name(1, 1, i32::MIN)).unwrap().count, 1);
    }

    #[test]
    fn own_node_missing_is_told() {
        assert!(lower(&["lock-1-2-0000000003".to_owned()], name(1, 1, 4)).is_none());
    }
}
