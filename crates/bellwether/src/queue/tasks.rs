//! Run-once tasks: one worker at a time works on a task until it is done, and never again.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use bellwether_client as zk;
use futures_util::stream::unfold;

use crate::error::{Error, ErrorKind, Failure};
use crate::events::Events;
use crate::hold::Hold;
use crate::node::NodePath;
use crate::node::data::Payload;
use crate::queue::claimed_item::{ClaimedItem, End, EndRecord};
use crate::queue::core::{QueueCore, taker_options};
use crate::queue::order::Rule;
use crate::queue::{DeadLetter, Empty};
use crate::session::client::Client;
use crate::session::retry::{found, read_synced, until_answered};
use crate::session::telemetry::call;

/// A look at the counts is cheap, but not free, and people do not read faster.
const EVERY: Duration = Duration::from_secs(1);

/// The number of writes that contain the name of a task in the request that adds it.
const ADD_WRITES: usize = 5;

/// A set of named tasks, each to be done once, shared by any number of workers.
///
/// # What it guarantees
///
/// A task is claimed by one worker at a time until a worker has recorded that it is [done](Task::done). The record stays: the task is never
/// claimed again, and adding it again does nothing. A worker that dies loses its claim with its session, and another worker takes the task.
/// A task that has failed [`attempts_max`](Self::attempts_max) times is set aside with the reason.
///
/// # What it does not
///
/// A task may be begun more than once: its worker may have died before it could say that it was done. *Done* is recorded exactly once; the
/// work itself has to be idempotent, or be [written](Hold::write) under the claim.
///
/// # Node layout
///
/// Below the path: `items/<name>` with the payload while there is something to do, `claims/<name>` (ephemeral) while a worker has claimed
/// it, then `done/<name>` with the result, or `dead/<name>` with the reason; `line` (workers that wait) and `receipts`. All directories are
/// containers, which the servers keep while they have children.
///
/// # Fairness
///
/// Tasks are begun roughly in the order of their names; waiting workers are served in order of arrival.
///
/// # Session loss
///
/// A claim ends with its session, and [`lost`](Hold::lost) resolves before another worker can claim the task.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Tasks};
/// # async fn migrate(name: &str) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let tasks = Tasks::<String>::new(client, "/migrations");
/// for name in ["users", "orders"] {
///     tasks.add(name, &format!("migrate-{name}.sql")).await?;
/// }
/// while let Some(task) = tasks.take().await? {
///     match migrate(task.payload()).await {
///         Ok(()) => task.done().await?,
///         Err(error) => task.fail(&error.to_string()).await?,
///     }
/// }
/// # Ok(()) }
/// ```
pub struct Tasks<T = Vec<u8>> {
    core: QueueCore,
    kind: PhantomData<fn() -> T>,
}

impl<T: Payload> Tasks<T> {
    /// A set of tasks at a path, with payloads of this type: bytes, [`String`], or [`Json`](crate::Json) of a type of your own. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self::of(QueueCore::new(client, path.into(), Rule::TASKS))
    }
}

impl<T> Tasks<T> {
    fn of(core: QueueCore) -> Self {
        Self {
            core,
            kind: PhantomData,
        }
    }

    taker_options!();

    /// Sets the number of times a task is begun before it is set aside as failed. 5 unless set; at least once.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.core.attempts_max = attempts_max.max(1);
        self
    }

    /// Returns the number of tasks in each state.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn counts(&self) -> Result<TaskCounts, Error> {
        call!("tasks.counts", self.path())
            .run(async { self.core().await?.task_counts().await })
            .await
    }

    /// A stream of the counts: the current ones first, then each change, read once a second. It ends when no task is left, or a read fails.
    pub fn progress(&self) -> TaskProgress {
        let look = CountsReader {
            core: self.core.clone(),
            last: None,
        };
        TaskProgress::from_stream(unfold(look, CountsReader::next))
    }

    /// The result of a task that is done; `None` if it is not done.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn result(&self, name: &str) -> Result<Option<Vec<u8>>, Error> {
        call!("tasks.result", self.path())
            .find(async {
                let core = self.core().await?;
                let path = core.dir("done").child(name);
                let read = until_answered(|| core.session().zk().get(&path)).await;
                let data = found(read)?;
                let record = data
                    .as_ref()
                    .and_then(|(data, _)| EndRecord::from_data(data));
                Ok(record.map(|(_, result)| result.to_owned()))
            })
            .await
    }

    /// The tasks that were set aside, with the reasons.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn failed(&self) -> Result<Vec<DeadLetter>, Error> {
        call!("tasks.failed", self.path())
            .run(async { self.core().await?.dead_letters().await })
            .await
    }

    /// Gives a task that was set aside new attempts; `false` if it is no longer set aside.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been done or not.
    pub async fn retry(&self, failed: &DeadLetter) -> Result<bool, Error> {
        call!("tasks.retry", self.path())
            .ask(async { self.core.now().await?.revive(failed).await })
            .await
    }

    /// Deletes a task that was set aside; `false` if it is no longer set aside. A task of its name may then be added again.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been deleted or not.
    pub async fn forget(&self, failed: &DeadLetter) -> Result<bool, Error> {
        call!("tasks.forget", self.path())
            .ask(async { self.core().await?.forget_dead(failed).await })
            .await
    }

    /// The engine in the current session.
    async fn core(&self) -> Result<QueueCore, Failure> {
        self.core.now().await
    }
}

impl<T: Payload> Tasks<T> {
    /// Adds a task. Returns `false` if there is a task of this name already, done or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `NotEncodable`, `InUse`, `SequenceUsedUp`, `TooManyEphemerals`,
    /// `NoSession`, `SessionEnded`, `Disconnected`, `Full`, `OutcomeUnknown`, `Refused`; a name that cannot be that of a node is a bad
    /// path.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the task may have been added or not. To add it again is harmless.
    pub async fn add(&self, name: &str, payload: &T) -> Result<bool, Error> {
        call!("tasks.add", self.path())
            .ask(self.add_once(name, payload))
            .await
    }

    async fn add_once(&self, name: &str, payload: &T) -> Result<bool, Failure> {
        let bad = |source| Failure::elsewhere(name, ErrorKind::BadPath(source));
        let core = self.core.now().await?;
        let checked = NodePath::parse(&format!("/{name}"));
        if checked.map_err(bad)?.parent().is_some() {
            return Err(bad(crate::node::PathError::Character('/')));
        }
        let data = payload.to_bytes();
        let data = data.map_err(|error| ErrorKind::NotEncodable(error.into()))?;
        let item = [(0, data)];
        core.check_named(name, &item[0].1, ADD_WRITES)?;
        core.check_room(&item).await?;
        let [(_, data)] = item;

        let dirs = ["items", "done", "dead", "receipts"].map(|dir| core.dir(dir));
        let [items, done, dead, _] = &dirs;
        let options = zk::CreateMode::Persistent.with_acl(core.access.acl());
        let added = core.write_once(&dirs, |writer| {
            for ended in [done, dead] {
                // Created and deleted in the multi, which proves that there is no other.
                writer.create(&ended.child(name), b"", &options);
                writer.delete(&ended.child(name), None);
            }
            writer.create(&items.child(name), &data, &options);
        });
        match added.await {
            Ok(()) => Ok(true),
            Err(Failure {
                kind:
                    ErrorKind::Refused {
                        source: zk::Error::NODE_EXISTS,
                        ..
                    },
                ..
            }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Claims a task that no worker has claimed. If all remaining tasks are claimed, waits: a worker may die, or fail. `None` when no task
    /// is left.
    ///
    /// A task whose payload cannot be decoded is set aside.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `InUse`, `TooLarge`, `TooManyEphemerals`, `SequenceUsedUp`, `NoSession`,
    /// `SessionEnded`, `Disconnected`, `Full`, `Refused`.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. A task that was being claimed can be taken again, and the attempt counts.
    pub async fn take(&self) -> Result<Option<Task<T>>, Error> {
        call!("tasks.take", self.path())
            .try_hold(async {
                let core = self.core().await?;
                loop {
                    let Some(held) = core.take(Empty::Ends).await? else {
                        return Ok(None);
                    };
                    if let Some((held, payload)) = held.open().await {
                        return Ok(Some(Task { held, payload }));
                    }
                }
            })
            .await
    }
}

impl<T> Clone for Tasks<T> {
    fn clone(&self) -> Self {
        Self::of(self.core.clone())
    }
}

impl<T> fmt::Debug for Tasks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("path", &self.core.path())
            .finish_non_exhaustive()
    }
}

/// A hold on a task; see [`Hold`] for what it promises.
///
/// When the task is dropped or its session ends, another worker takes it.
#[derive(Debug)]
#[must_use = "another worker takes the task when this is dropped"]
pub struct Task<T> {
    held: ClaimedItem,
    payload: T,
}

impl<T> Task<T> {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.held.item().name()
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// Returns the number of times the task has been begun, including this time, but not when it was [given back
    /// uncounted](Self::give_back_uncounted).
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.held.attempts()
    }

    /// Records that the task is done, and waits for the server's acknowledgement, over any number of reconnects. It succeeds only while
    /// this claim is valid.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the task is done or will be taken again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `TooLarge`, `NotHeld`, `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn done(self) -> Result<(), Error> {
        self.done_with(b"").await
    }

    /// Does the same as [`done`](Self::done), with a result that [`Tasks::result`] returns.
    ///
    /// # Cancel safety
    ///
    /// As [`done`](Self::done).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TooLarge`] if the result does not fit one request; else as [`done`](Self::done).
    pub async fn done_with(self, result: impl AsRef<[u8]>) -> Result<(), Error> {
        call!("tasks.done", self.path())
            .of(&self)
            .run(async move {
                let record = EndRecord::of_done(self.held.attempts(), self.held.put_ms());
                let end = End::Move {
                    dir: "done",
                    record: record.to_data(result.as_ref()),
                };
                self.held.settle(&end).await
            })
            .await
    }

    /// Gives the task back for another attempt, or sets it aside with the reason (its first 4 KiB) if the limit of attempts is reached.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the task has been or will be given back, perhaps without the reason.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `TooLarge`, `NotHeld`, `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn fail(self, reason: &str) -> Result<(), Error> {
        call!("tasks.fail", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.failed(self.held.backoff(), reason);
                self.held.settle(&end).await
            })
            .await
    }

    /// Gives the task back for another worker; this attempt does not count. For a worker that ends, or cannot do its work, for a reason that has
    /// nothing to do with the task.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the task has been or will be given back; the attempt may count.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `TooLarge`, `NotHeld`, `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn give_back_uncounted(self, reason: &str) -> Result<(), Error> {
        call!("tasks.give_back", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.uncounted(reason);
                self.held.settle(&end).await
            })
            .await
    }

    /// Sets the task aside at once: it will never succeed.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the task is set aside or will be taken again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `TooLarge`, `NotHeld`, `LostWithSession`, `OutcomeUnknown`, `Refused`.
    pub async fn reject(self, reason: &str) -> Result<(), Error> {
        call!("tasks.reject", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.given_up(reason);
                self.held.settle(&end).await
            })
            .await
    }
}

impl<T> Deref for Task<T> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.held.hold()
    }
}

/// The number of tasks in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskCounts {
    /// Not claimed.
    pub open: usize,
    /// Claimed by a worker.
    pub running: usize,
    /// Done.
    pub done: usize,
    /// Set aside.
    pub failed: usize,
}

/// A stream of counts; see [`Tasks::progress`].
pub type TaskProgress = Events<TaskCounts>;

struct CountsReader {
    core: QueueCore,
    last: Option<TaskCounts>,
}

impl CountsReader {
    async fn next(mut self) -> Option<(TaskCounts, Self)> {
        loop {
            if let Some(last) = &self.last {
                if last.open + last.running == 0 {
                    return None;
                }
                self.core.client().runtime().sleep(EVERY).await;
            }
            let core = self.core.now().await.ok()?;
            let counts = core.task_counts().await.ok()?;
            if self.last.replace(counts) != Some(counts) {
                return Some((counts, self));
            }
        }
    }
}

impl QueueCore {
    async fn task_counts(&self) -> Result<TaskCounts, Failure> {
        let dirs = ["items", "claims", "done", "dead"].map(|dir| self.dir(dir));
        let zk = self.session().zk();
        let look = || async {
            // Made before the first await: they are sent in one packet.
            let stats: Vec<_> = dirs.iter().map(|dir| zk.exists(dir.as_str())).collect();
            let mut counts = [0; 4];
            for (count, stat) in counts.iter_mut().zip(stats) {
                let children = stat.await?.map_or(0, |stat| stat.num_children);
                *count = usize::try_from(children).unwrap_or(0);
            }
            let [items, running, done, failed] = counts;
            Ok(TaskCounts {
                open: items.saturating_sub(running),
                running,
                done,
                failed,
            })
        };
        // A lagging server would show that nothing is left where something has just been added.
        let counts = until_answered(|| read_synced(zk, dirs[0].as_str(), look));
        Ok(counts.await?)
    }
}
