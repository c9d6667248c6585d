//! Queues and tasks behind one interface.

use std::time::{Duration, SystemTime};

use bellwether::{Claim, Client, DelayQueue, Error, PriorityQueue, Queue, Task, Tasks};
use rand::Rng as _;
use rand::rngs::StdRng;

pub use crate::recipe::Shelf;

/// The attempts at an item: enough for most items to succeed, few enough for some to become dead letters.
const ATTEMPTS_MAX: u32 = 4;

/// The longest delay of an item.
const DELAY_MAX_MS: u64 = 200;

/// Any of these recipes, through one client.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the types say it")]
pub enum Place {
    Queue(Queue<String>),
    Priority(PriorityQueue<String>),
    Delay(DelayQueue<String>),
    Tasks(Tasks<String>),
}

/// A claimed item, or a task.
#[derive(Debug)]
#[expect(missing_docs, reason = "the types say it")]
pub enum Work {
    Item(Claim<String>),
    Task(Task<String>),
}

impl Shelf {
    /// The recipe at a path.
    pub fn at(self, client: &Client, path: &str) -> Place {
        match self {
            Self::Queue => {
                let queue = Queue::new(client, path).attempts_max(ATTEMPTS_MAX);
                Place::Queue(queue)
            }
            Self::Priority => {
                let queue = PriorityQueue::new(client, path).attempts_max(ATTEMPTS_MAX);
                Place::Priority(queue)
            }
            Self::Delay => {
                let queue = DelayQueue::new(client, path).attempts_max(ATTEMPTS_MAX);
                Place::Delay(queue)
            }
            Self::Tasks => {
                let tasks = Tasks::new(client, path).attempts_max(ATTEMPTS_MAX);
                Place::Tasks(tasks)
            }
        }
    }

    /// The rank of the next item: a priority, or a time in milliseconds.
    pub fn next_rank(self, random: &mut StdRng) -> u64 {
        match self {
            Self::Delay => now_ms() + random.random_range(0..DELAY_MAX_MS),
            Self::Queue | Self::Priority | Self::Tasks => random.random_range(0..3),
        }
    }

    /// The rank by which an item is taken. Items are called `<rank> <name>`.
    pub fn rank(self, item: &str) -> u64 {
        let rank = item.split_once(' ').and_then(|(rank, _)| rank.parse().ok());
        match self {
            Self::Priority | Self::Delay => rank.unwrap_or(0),
            Self::Queue | Self::Tasks => 0,
        }
    }

    /// When an item may be taken.
    pub fn due_ms(self, item: &str) -> u64 {
        match self {
            Self::Delay => self.rank(item),
            Self::Queue | Self::Priority | Self::Tasks => 0,
        }
    }
}

impl Place {
    /// Puts an item.
    pub async fn put(&self, rank: u64, item: &String) -> Result<(), Error> {
        match self {
            Self::Queue(queue) => queue.put(item).await.map(drop),
            Self::Priority(queue) => {
                let priority = i32::try_from(rank).unwrap_or(i32::MAX);
                queue.put(priority, item).await.map(drop)
            }
            Self::Delay(queue) => {
                let due = SystemTime::UNIX_EPOCH + Duration::from_millis(rank);
                queue.put_at(due, item).await.map(drop)
            }
            Self::Tasks(tasks) => tasks.add(item, item).await.map(drop),
        }
    }

    /// Takes the next item; `None` if there are no tasks.
    pub async fn take(&self) -> Result<Option<Work>, Error> {
        Ok(match self {
            Self::Queue(queue) => Some(Work::Item(queue.take().await?)),
            Self::Priority(queue) => Some(Work::Item(queue.take().await?)),
            Self::Delay(queue) => Some(Work::Item(queue.take().await?)),
            Self::Tasks(tasks) => tasks.take().await?.map(Work::Task),
        })
    }

    /// How many items are left, and the dead letters.
    pub async fn left(&self) -> Result<(usize, Vec<String>), Error> {
        let (items, dead) = match self {
            Self::Queue(queue) => (queue.depth().await?.items, queue.dead_letters().await?),
            Self::Priority(queue) => (queue.depth().await?.items, queue.dead_letters().await?),
            Self::Delay(queue) => (queue.depth().await?.items, queue.dead_letters().await?),
            Self::Tasks(tasks) => {
                let counts = tasks.counts().await?;
                (counts.open + counts.running, tasks.failed().await?)
            }
        };
        let text = |payload: Vec<u8>| String::from_utf8_lossy(&payload).into_owned();
        let dead = dead.into_iter().map(|letter| text(letter.payload));
        Ok((items, dead.collect()))
    }
}

impl Work {
    /// Its payload.
    pub fn item(&self) -> String {
        match self {
            Self::Item(claim) => claim.payload().clone(),
            Self::Task(task) => task.payload().clone(),
        }
    }

    /// Its hold.
    pub fn hold(&self) -> &bellwether::Hold {
        match self {
            Self::Item(claim) => claim,
            Self::Task(task) => task,
        }
    }

    /// Settles it.
    pub async fn succeed(self) -> Result<(), Error> {
        match self {
            Self::Item(claim) => claim.ack().await,
            Self::Task(task) => task.done().await,
        }
    }

    /// Gives it back.
    pub async fn fail(self) -> Result<(), Error> {
        match self {
            Self::Item(claim) => claim.give_back("failed on purpose").await,
            Self::Task(task) => task.fail("failed on purpose").await,
        }
    }
}

/// The time of day, which due times are measured by.
pub fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}
