//! The recipes that can be tested, by name.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A recipe under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Recipe {
    /// Locks, permits and leaderships.
    Held(Held),
    /// Queues and tasks.
    Shelf(Shelf),
    /// A number that all workers add to.
    Counter,
    /// Worker 0 sets and lifts it, the others wait.
    Barrier,
    /// Workers meet, round after round.
    DoubleBarrier,
    /// Worker 0 coordinates, the others are sites.
    TwoPhase,
    /// Values that are changed under a lock, by writes that succeed only while it is held.
    FencedWrites,
    /// A value that is changed by compare-and-set, and followed.
    Config,
    /// Members come and go.
    Group,
    /// A live copy of nodes that all change.
    Cache,
}

/// A recipe whose guards hold something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Held {
    /// The fair lock.
    Lock,
    /// The lock with a crash mark.
    MarkedLock,
    /// The lock without an order.
    SimpleLock,
    /// Leadership, which is a hold too.
    Election,
    /// Readers and writers.
    RwLock,
    /// Permits, several at once.
    Semaphore,
    /// Two locks at once, in either order.
    MultiLock,
}

/// A recipe whose items are taken and settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Shelf {
    /// First in, first out.
    Queue,
    /// By priority.
    Priority,
    /// By the time at which items are due.
    Delay,
    /// Run-once tasks.
    Tasks,
}

impl Recipe {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Held(Held::Lock),
        Self::Held(Held::MarkedLock),
        Self::Held(Held::SimpleLock),
        Self::Held(Held::RwLock),
        Self::Held(Held::Semaphore),
        Self::Held(Held::MultiLock),
        Self::Held(Held::Election),
        Self::Shelf(Shelf::Queue),
        Self::Shelf(Shelf::Priority),
        Self::Shelf(Shelf::Delay),
        Self::Shelf(Shelf::Tasks),
        Self::Counter,
        Self::Barrier,
        Self::DoubleBarrier,
        Self::TwoPhase,
        Self::FencedWrites,
        Self::Config,
        Self::Group,
        Self::Cache,
    ];

    /// How users name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Held(Held::Lock) => "lock",
            Self::Held(Held::MarkedLock) => "marked-lock",
            Self::Held(Held::SimpleLock) => "simple-lock",
            Self::Held(Held::RwLock) => "rwlock",
            Self::Held(Held::Semaphore) => "semaphore",
            Self::Held(Held::MultiLock) => "multi-lock",
            Self::Held(Held::Election) => "election",
            Self::Shelf(Shelf::Queue) => "queue",
            Self::Shelf(Shelf::Priority) => "priority-queue",
            Self::Shelf(Shelf::Delay) => "delay-queue",
            Self::Shelf(Shelf::Tasks) => "tasks",
            Self::Counter => "counter",
            Self::Barrier => "barrier",
            Self::DoubleBarrier => "double-barrier",
            Self::TwoPhase => "two-phase",
            Self::FencedWrites => "fenced-writes",
            Self::Config => "config",
            Self::Group => "group",
            Self::Cache => "cache",
        }
    }
}

impl fmt::Display for Recipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl From<Recipe> for String {
    fn from(recipe: Recipe) -> Self {
        recipe.name().to_owned()
    }
}

impl FromStr for Recipe {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|recipe| recipe.name() == name).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|recipe| recipe.name()).collect();
            format!("no recipe {name:?}; there are {}", names.join(", "))
        })
    }
}

impl TryFrom<String> for Recipe {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        for recipe in Recipe::ALL {
            assert_eq!(recipe.to_string().parse(), Ok(recipe));
        }
        let error = "locks".parse::<Recipe>().unwrap_err();
        assert!(error.contains("no recipe \"locks\"") && error.contains("marked-lock"));
    }
}
