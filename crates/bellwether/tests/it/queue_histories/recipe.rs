//! The queues and tasks that histories are made of, one face for all.

use std::time::{Duration, SystemTime};

use bellwether::{
    Claim, Client, DelayQueue, PriorityQueue, PutError, Queue, SettleError, TakeError, Task, Tasks,
};
use rand::Rng as _;
use rand::rngs::StdRng;

/// Enough for most to succeed, few enough for some to become dead letters.
const ATTEMPTS_MAX: u32 = 4;

/// The longest delay of an item.
const DELAY_MAX_MS: u64 = 200;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipe {
    Queue,
    Priority,
    Delay,
    Tasks,
}

/// Any of the recipes, through one session.
#[derive(Clone)]
pub(super) enum Place {
    Queue(Queue<String>),
    Priority(PriorityQueue<String>),
    Delay(DelayQueue<String>),
    Tasks(Tasks<String>),
}

pub(super) enum Work {
    Item(Claim<String>),
    Task(Task<String>),
}

impl Recipe {
    pub(super) fn at(self, client: &Client, path: &str) -> Place {
        match self {
            Self::Queue => {
                let queue = Queue::new(client, path).attempts_max(ATTEMPTS_MAX);
                Place::Queue(queue.payload())
            }
            Self::Priority => {
                let queue = PriorityQueue::new(client, path).attempts_max(ATTEMPTS_MAX);
                Place::Priority(queue.payload())
            }
            Self::Delay => {
                let queue = DelayQueue::new(client, path).attempts_max(ATTEMPTS_MAX);
                Place::Delay(queue.payload())
            }
            Self::Tasks => {
                let tasks = Tasks::new(client, path).attempts_max(ATTEMPTS_MAX);
                Place::Tasks(tasks.payload())
            }
        }
    }

    /// What the next item is put by: a priority, or a time in milliseconds.
    pub(super) fn next_rank(self, random: &mut StdRng) -> u64 {
        match self {
            Self::Delay => now_ms() + random.random_range(0..DELAY_MAX_MS),
            Self::Queue | Self::Priority | Self::Tasks => random.random_range(0..3),
        }
    }

    /// By what an item is taken. Items are called `<rank> <number>`.
    pub(super) fn rank(self, item: &str) -> u64 {
        let (rank, _) = item.split_once(' ').unwrap();
        match self {
            Self::Priority | Self::Delay => rank.parse().unwrap(),
            Self::Queue | Self::Tasks => 0,
        }
    }

    /// When an item may be taken.
    pub(super) fn due_ms(self, item: &str) -> u64 {
        match self {
            Self::Delay => self.rank(item),
            Self::Queue | Self::Priority | Self::Tasks => 0,
        }
    }
}

impl Place {
    pub(super) async fn put(&self, rank: u64, item: &String) -> Result<(), PutError> {
        match self {
            Self::Queue(queue) => queue.put(item).await.map(drop),
            Self::Priority(queue) => {
                let priority = u32::try_from(rank).unwrap();
                queue.put(priority, item).await.map(drop)
            }
            Self::Delay(queue) => {
                let due = SystemTime::UNIX_EPOCH + Duration::from_millis(rank);
                queue.put_at(due, item).await.map(drop)
            }
            Self::Tasks(tasks) => tasks.add(item, item).await.map(drop),
        }
    }

    pub(super) async fn take(&self) -> Result<Option<Work>, TakeError> {
        Ok(match self {
            Self::Queue(queue) => Some(Work::Item(queue.take().await?)),
            Self::Priority(queue) => Some(Work::Item(queue.take().await?)),
            Self::Delay(queue) => Some(Work::Item(queue.take().await?)),
            Self::Tasks(tasks) => tasks.take().await?.map(Work::Task),
        })
    }

    /// What is not done with, and the dead letters.
    pub(super) async fn left(&self) -> Result<(usize, Vec<String>), TakeError> {
        let (items, dead) = match self {
            Self::Queue(queue) => (queue.depth().await?.items, queue.dead_letters().await?),
            Self::Priority(queue) => (queue.depth().await?.items, queue.dead_letters().await?),
            Self::Delay(queue) => (queue.depth().await?.items, queue.dead_letters().await?),
            Self::Tasks(tasks) => {
                let counts = tasks.counts().await?;
                (counts.open + counts.running, tasks.failed().await?)
            }
        };
        let text = |payload| String::from_utf8(payload).unwrap();
        let dead = dead.into_iter().map(|letter| text(letter.payload));
        Ok((items, dead.collect()))
    }
}

impl Work {
    pub(super) fn item(&self) -> String {
        match self {
            Self::Item(claim) => claim.payload().clone(),
            Self::Task(task) => task.payload().clone(),
        }
    }

    pub(super) fn hold(&self) -> &bellwether::Hold {
        match self {
            Self::Item(claim) => claim,
            Self::Task(task) => task,
        }
    }

    pub(super) async fn succeed(self) -> Result<(), SettleError> {
        match self {
            Self::Item(claim) => claim.ack().await,
            Self::Task(task) => task.done().await,
        }
    }

    pub(super) async fn fail(self) -> Result<(), SettleError> {
        match self {
            Self::Item(claim) => claim.give_back("failed on purpose").await,
            Self::Task(task) => task.fail("failed on purpose").await,
        }
    }
}

/// By the clock that due times are measured with.
pub(super) fn now_ms() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(now.unwrap().as_millis()).unwrap()
}
