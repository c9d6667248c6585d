//! The queues and tasks that histories are made of, one face for all.

use bellwether::{
    Claim, Client, PriorityQueue, PutError, Queue, SettleError, TakeError, Task, Tasks,
};

/// Enough for most to succeed, few enough for some to become dead letters.
const ATTEMPTS_MAX: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recipe {
    Queue,
    Priority,
    Tasks,
}

/// Any of the recipes, through one session.
#[derive(Clone)]
pub(super) enum Place {
    Queue(Queue<String>),
    Priority(PriorityQueue<String>),
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
            Self::Tasks => {
                let tasks = Tasks::new(client, path).attempts_max(ATTEMPTS_MAX);
                Place::Tasks(tasks.payload())
            }
        }
    }

    /// Items are called `<rank> <number>`.
    pub(super) fn rank(self, item: &str) -> u64 {
        let (rank, _) = item.split_once(' ').unwrap();
        match self {
            Self::Priority => rank.parse().unwrap(),
            Self::Queue | Self::Tasks => 0,
        }
    }
}

impl Place {
    pub(super) async fn put(&self, rank: u32, item: &String) -> Result<(), PutError> {
        match self {
            Self::Queue(queue) => queue.put(item).await.map(drop),
            Self::Priority(queue) => queue.put(rank, item).await.map(drop),
            Self::Tasks(tasks) => tasks.add(item, item).await.map(drop),
        }
    }

    pub(super) async fn take(&self) -> Result<Option<Work>, TakeError> {
        Ok(match self {
            Self::Queue(queue) => Some(Work::Item(queue.take().await?)),
            Self::Priority(queue) => Some(Work::Item(queue.take().await?)),
            Self::Tasks(tasks) => tasks.take().await?.map(Work::Task),
        })
    }

    /// What is not done with, and the dead letters.
    pub(super) async fn left(&self) -> Result<(usize, Vec<String>), TakeError> {
        let (items, dead) = match self {
            Self::Queue(queue) => (queue.depth().await?.items, queue.dead_letters().await?),
            Self::Priority(queue) => (queue.depth().await?.items, queue.dead_letters().await?),
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
