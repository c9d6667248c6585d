//! The contenders of one session in one line.
//!
//! Thousands of tasks of a process may wait in one line. Each has its own node, so that contenders of all processes are served in the order
//! of the servers. But a contender behind another contender of its session need not ask the servers until that contender's turn has come:
//! its own turn cannot come before. So it waits here, and neither lists the line nor watches a node.
//!
//! Only exclusive contenders are neighbours. When the turn of such a contender has come, no node is before it any more, and its neighbour
//! need not look further back.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::watch;

use crate::line::contender::Sight;
use crate::line::name::Kind;
use crate::node::path::NodePath;
use crate::session::open_session::Session;

/// The contenders of one session in one line.
#[derive(Debug)]
pub(crate) struct Neighbours {
    key: Key,
    inner: Mutex<Inner>,
}

/// A session, by its address in memory, and a directory. Its contenders keep the session alive.
type Key = (usize, String);

/// Of all sessions of this process.
static LINES: LazyLock<Mutex<HashMap<Key, Weak<Neighbours>>>> = LazyLock::new(Mutex::default);

#[derive(Debug, Default)]
struct Inner {
    /// By the sequence of their nodes, which is below [`SEQUENCE_MAX`](super::contender::SEQUENCE_MAX) and does not wrap.
    places: BTreeMap<i32, Neighbour>,
    /// How many contenders are about to create their nodes.
    entering: usize,
    /// The line as one of them saw it last.
    sight: Option<Arc<Sight>>,
}

#[derive(Clone, Debug)]
struct Neighbour {
    kind: Kind,
    standing: watch::Receiver<Standing>,
}

/// The state of a contender in its line. When it has left, the channel is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Waits,
    /// No node is before it, so its turn has come.
    First,
}

/// What is before a contender, as far as its neighbours know.
#[derive(Debug)]
pub(crate) enum Before {
    /// The neighbour with this sequence waits. It tells when that changes.
    Waiting(i32, watch::Receiver<Standing>),
    /// The neighbour with this sequence, and no node before it.
    First(i32),
    /// No neighbour.
    Unknown,
}

impl Neighbours {
    pub(crate) fn of(session: &Session, dir: &NodePath) -> Arc<Self> {
        let key = (session.address(), dir.as_str().to_owned());
        let mut lines = lock(&LINES);
        if let Some(known) = lines.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let new = Arc::new(Self {
            key: key.clone(),
            inner: Mutex::default(),
        });
        lines.insert(key, Arc::downgrade(&new));
        new
    }

    /// Announces a contender that is about to create its node. Requests are processed in order, so a contender that announces itself later
    /// gets a place behind it.
    pub(crate) fn announce(self: &Arc<Self>) -> Entrance {
        lock(&self.inner).entering += 1;
        Entrance(self.clone())
    }

    /// Shares a list of the line that one of them has read.
    pub(crate) fn share(&self, sight: &Arc<Sight>) {
        lock(&self.inner).sight = Some(sight.clone());
    }

    /// The line as one of them saw it last.
    pub(crate) fn last_sight(&self) -> Option<Arc<Sight>> {
        lock(&self.inner).sight.clone()
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        let mut lines = lock(&LINES);
        // Another one may have taken its place meanwhile.
        if lines
            .get(&self.key)
            .is_some_and(|line| line.strong_count() == 0)
        {
            lines.remove(&self.key);
        }
    }
}

/// A contender that has no place yet.
#[derive(Debug)]
pub(crate) struct Entrance(Arc<Neighbours>);

impl Entrance {
    /// Whether this process has, or is about to have, a contender that can share a local line with this kind.
    pub(crate) fn has_company(&self, kind: Kind) -> bool {
        let inner = lock(&self.0.inner);
        let mut places = inner.places.values();
        (inner.entering > 1 || !inner.places.is_empty())
            && places.all(|place| place.kind.goes_with(kind))
    }

    /// Takes a place, for as long as the result lives.
    pub(crate) fn take(self, kind: Kind, sequence: i32) -> Berth {
        let (sender, standing) = watch::channel(Standing::Waits);
        let neighbour = Neighbour { kind, standing };
        lock(&self.0.inner).places.insert(sequence, neighbour);
        Berth {
            neighbours: self.0.clone(),
            sequence,
            standing: sender,
        }
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        lock(&self.0.inner).entering -= 1;
    }
}

/// A place in a line, as the neighbours see it. It belongs to the node, and is dropped when the node is deleted or given to the janitor.
#[derive(Debug)]
pub(crate) struct Berth {
    neighbours: Arc<Neighbours>,
    sequence: i32,
    standing: watch::Sender<Standing>,
}

impl Berth {
    pub(crate) fn neighbours(&self) -> &Neighbours {
        &self.neighbours
    }

    /// Tells the next contender that no node is before this one any more.
    pub(crate) fn is_first(&self) {
        self.standing.send_replace(Standing::First);
    }

    /// The state of the contender before this one.
    pub(crate) fn before(&self) -> Before {
        let inner = lock(&self.neighbours.inner);
        let nearest = inner.places.range(..self.sequence).next_back();
        let Some((sequence, neighbour)) = nearest else {
            return Before::Unknown;
        };
        let standing = neighbour.standing.clone();
        let now = *standing.borrow();
        match now {
            Standing::Waits => Before::Waiting(*sequence, standing),
            Standing::First => Before::First(*sequence),
        }
    }

    /// The largest number of contenders before this one, by the last look of any contender of this process.
    pub(crate) fn ahead_max(&self) -> Option<usize> {
        let inner = lock(&self.neighbours.inner);
        let sight = inner.sight.as_ref();
        sight.map(|sight| sight.ahead_max(self.sequence))
    }
}

impl Drop for Berth {
    fn drop(&mut self) {
        lock(&self.neighbours.inner).places.remove(&self.sequence);
    }
}

/// Nothing panics under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
