//! Run-once tasks: each is done by one worker at a time, until it is done, and never again.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether_client as zk;
use futures_core::Stream;
use futures_util::stream::{BoxStream, StreamExt, unfold};

use crate::access::Access;
use crate::catch_up::caught_up;
use crate::client::Client;
use crate::contender::Failure;
use crate::hold::Hold;
use crate::path::NodePath;
use crate::queue::held::{End, Held};
use crate::queue::order::Rule;
use crate::queue::record::Record;
use crate::queue::shelf::{Shelf, taker_options};
use crate::queue::{DeadLetter, Empty, Payload, PutError, SettleError, TakeError};

/// A look at the counts is cheap, but not free, and people do not read faster.
const EVERY: Duration = Duration::from_secs(1);

/// In how many writes of one request the name of a task stands that is added.
const ADD_WRITES: usize = 5;

/// Things to do once each, by name, by whoever is there: a set of tasks that any number of workers go through.
///
/// # What it guarantees
///
/// A task that was added is claimed by one worker at a time until one has said that it is [done](Task::done). That is
/// remembered: the task is never claimed again, and adding it again does nothing. A worker that dies loses its claim
/// with its session, and another takes the task. A task that has failed as often as [allowed](Self::attempts_max) is set aside
/// with the reason.
///
/// # What it does not
///
/// A task may be begun more than once: its worker may have died before it could say that it was done. *Done* is recorded
/// exactly once; the work itself has to be harmless twice, or be [written](Hold::write) under the claim.
///
/// # Node layout
///
/// Below the path: `items/<name>` with the payload while there is something to do, `claims/<name>` (ephemeral) while a
/// worker is at it, then `done/<name>` with the result, or `dead/<name>` with the reason; `line` (workers that wait) and
/// `receipts`. All directories are containers, so memories of what was done keep theirs.
///
/// # Fairness
///
/// Tasks are begun in the order of their names, more or less; workers that wait are served in the order of arrival.
///
/// # Session loss
///
/// A claim ends with its session, and [`lost`](Hold::lost) resolves before another worker can have the task.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Tasks};
/// # async fn migrate(name: &str) -> Result<(), std::io::Error> { Ok(()) }
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let tasks = Tasks::new(client, "/migrations").payload::<String>();
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
    shelf: Shelf,
    kind: PhantomData<fn() -> T>,
}

impl Tasks {
    /// A set of tasks at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self::of(Shelf::new(client, path.into(), Rule::TASKS))
    }
}

impl<T> Tasks<T> {
    fn of(shelf: Shelf) -> Self {
        Self {
            shelf,
            kind: PhantomData,
        }
    }

    /// The same tasks with payloads of another type: [`String`], or [`Json`](crate::Json) of a type of your own. Bytes
    /// unless set.
    #[must_use]
    pub fn payload<U: Payload>(self) -> Tasks<U> {
        Tasks::of(self.shelf)
    }

    /// Who may touch the directories and nodes of these tasks. Everybody unless set. Directories that have to be made above
    /// them stay open: make them first if they should not be.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        let mut shelf = self.shelf;
        shelf.access = Access::new(acl);
        Self::of(shelf.with_receipts())
    }

    taker_options!();

    /// How often a task is begun before it is set aside as failed. 5 unless set; at least once.
    #[must_use]
    pub fn attempts_max(mut self, attempts_max: u32) -> Self {
        self.shelf.attempts_max = attempts_max.max(1);
        self
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.shelf.path()
    }

    /// How many tasks there are in each state.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn counts(&self) -> Result<TaskCounts, TakeError> {
        self.check()?;
        let counts = self.shelf.task_counts().await;
        counts.map_err(|failure| self.error(failure))
    }

    /// How the whole is going: the present counts first, then each change, looked for once a second. It ends when nothing is
    /// left to do, or a look fails.
    pub fn progress(&self) -> TaskProgress {
        let look = Look {
            shelf: self.shelf.clone(),
            last: None,
        };
        TaskProgress(unfold(look, Look::next).boxed())
    }

    /// What a task has left behind when it was done; `None` if it is not done.
    ///
    /// # Errors
    ///
    /// As [`take`](Self::take).
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    pub async fn result(&self, name: &str) -> Result<Option<Vec<u8>>, TakeError> {
        self.check()?;
        let path = self.shelf.dir("done").child(name);
        let read = || async {
            match self.shelf.client().zk().get(&path).await {
                Ok((data, _)) => Ok(Some(data)),
                Err(zk::Error::NO_NODE) => Ok(None),
                Err(error) => Err(error),
            }
        };
        let data = self.shelf.retry(read).await;
        let data = data.map_err(|failure| self.error(failure))?;
        let record = data.as_deref().and_then(Record::from_data);
        Ok(record.map(|(_, result)| result.to_owned()))
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
    pub async fn failed(&self) -> Result<Vec<DeadLetter>, TakeError> {
        self.check()?;
        let letters = self.shelf.dead_letters().await;
        letters.map_err(|failure| self.error(failure))
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
    pub async fn retry(&self, failed: &DeadLetter) -> Result<bool, PutError> {
        self.shelf.revive(failed).await
    }

    fn check(&self) -> Result<(), TakeError> {
        self.shelf
            .check_path()
            .map_err(|source| TakeError::BadPath {
                path: self.path().to_owned(),
                source,
            })
    }

    fn error(&self, failure: Failure) -> TakeError {
        TakeError::new(failure, self.path())
    }
}

impl<T: Payload> Tasks<T> {
    /// Adds a task, unless there is one of this name already, done ones among them: `false` then.
    ///
    /// # Errors
    ///
    /// See [`PutError`]; a name that cannot be that of a node is a bad path.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the task may have been added or not. To add it again is harmless.
    pub async fn add(&self, name: &str, payload: &T) -> Result<bool, PutError> {
        let path = || self.path().to_owned();
        let bad = |path, source| PutError::BadPath { path, source };
        self.shelf.check_put_path()?;
        let checked = NodePath::parse(&format!("/{name}"));
        let checked = checked.map_err(|source| bad(name.to_owned(), source))?;
        if checked.parent().is_some() {
            let source = crate::path::PathError::Character('/');
            return Err(bad(name.to_owned(), source));
        }
        let data = payload.to_bytes().map_err(|source| PutError::NotWritable {
            path: path(),
            source,
        })?;
        let item = [(0, data)];
        let fits = self.shelf.check_named(name, &item[0].1, ADD_WRITES);
        fits.map_err(|failure| PutError::new(failure, self.path()))?;
        let room = self.shelf.check_room(&item).await;
        room.map_err(|failure| PutError::new(failure, self.path()))?;
        let [(_, data)] = item;

        let dirs = ["items", "done", "dead", "receipts"].map(|dir| self.shelf.dir(dir));
        let [items, done, dead, _] = &dirs;
        let options = zk::CreateMode::Persistent.with_acl(self.shelf.access.acl());
        let added = self.shelf.write_once(&dirs, |writer| {
            for ended in [done, dead] {
                // One that comes and goes, to show that there is no other.
                writer.create(&ended.child(name), b"", &options);
                writer.delete(&ended.child(name), None);
            }
            writer.create(&items.child(name), &data, &options);
        });
        match added.await {
            Ok(()) => Ok(true),
            Err(PutError::Refused {
                source: zk::Error::NODE_EXISTS,
                ..
            }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Claims a task that nobody is at. If others are at all that are left, waits: a worker may die, or fail. `None` when
    /// nothing is left to do.
    ///
    /// A task whose payload cannot be read is set aside.
    ///
    /// # Errors
    ///
    /// See [`TakeError`]; never [`TakeError::TimedOut`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. A task that was being claimed can be taken again, and the attempt counts.
    pub async fn take(&self) -> Result<Option<Task<T>>, TakeError> {
        self.check()?;
        loop {
            let held = self.shelf.take(Empty::Ends).await;
            let Some(held) = held.map_err(|failure| self.error(failure))? else {
                return Ok(None);
            };
            if let Some((held, payload)) = held.open().await {
                return Ok(Some(Task { held, payload }));
            }
        }
    }
}

impl<T> Clone for Tasks<T> {
    fn clone(&self) -> Self {
        Self::of(self.shelf.clone())
    }
}

impl<T> fmt::Debug for Tasks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tasks")
            .field("path", &self.shelf.path())
            .finish_non_exhaustive()
    }
}

/// A hold on a task; what it promises is told at [`Hold`].
///
/// Dropped, the claim is taken back in the background and another worker takes the task; so it is when the session ends.
#[derive(Debug)]
#[must_use = "another worker takes the task when this is dropped"]
pub struct Task<T> {
    held: Held,
    payload: T,
}

impl<T> Task<T> {
    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.held.item().name()
    }

    /// What was added with the name.
    #[must_use]
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// How often the task has been begun, this time among them.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.held.attempts()
    }

    /// Records for good that the task is done, and waits for the server's acknowledgement, over any number of reconnects. It
    /// succeeds only while nobody else has claimed the task.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the task is done or will be taken again.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn done(self) -> Result<(), SettleError> {
        self.done_with(b"").await
    }

    /// As [`done`](Self::done), with a result for whoever [asks](Tasks::result).
    ///
    /// # Cancel safety
    ///
    /// As [`done`](Self::done).
    ///
    /// # Errors
    ///
    /// [`SettleError::TooLarge`] if the result does not fit one request; else as [`done`](Self::done).
    pub async fn done_with(self, result: impl AsRef<[u8]>) -> Result<(), SettleError> {
        let record = Record::of_done(self.held.attempts(), self.held.put_ms());
        let end = End::Move {
            dir: "done",
            record: record.to_data(result.as_ref()),
        };
        self.held.settle(&end).await
    }

    /// Gives the task back for another attempt, or sets it aside with the reason, or the first 4 KiB of it, if there were
    /// enough.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the task has been or will be given back, perhaps without the reason.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn fail(self, reason: &str) -> Result<(), SettleError> {
        let end = self.held.failed(reason);
        self.held.settle(&end).await
    }

    /// Sets the task aside at once: it will never succeed.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the task is set aside or will be taken again.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn reject(self, reason: &str) -> Result<(), SettleError> {
        let end = self.held.given_up(reason);
        self.held.settle(&end).await
    }
}

impl<T> Deref for Task<T> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.held.hold()
    }
}

/// How many tasks are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskCounts {
    /// Nobody is at them.
    pub open: usize,
    /// A worker is at them.
    pub running: usize,
    /// They are done.
    pub done: usize,
    /// They were set aside.
    pub failed: usize,
}

/// A stream of counts; see [`Tasks::progress`].
pub struct TaskProgress(BoxStream<'static, TaskCounts>);

impl Stream for TaskProgress {
    type Item = TaskCounts;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<TaskCounts>> {
        self.0.poll_next_unpin(cx)
    }
}

impl fmt::Debug for TaskProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskProgress").finish_non_exhaustive()
    }
}

struct Look {
    shelf: Shelf,
    last: Option<TaskCounts>,
}

impl Look {
    async fn next(mut self) -> Option<(TaskCounts, Self)> {
        self.shelf.check_path().ok()?;
        loop {
            if let Some(last) = &self.last {
                if last.open + last.running == 0 {
                    return None;
                }
                self.shelf.client().home().sleep(EVERY).await;
            }
            let counts = self.shelf.task_counts().await.ok()?;
            if self.last.replace(counts) != Some(counts) {
                return Some((counts, self));
            }
        }
    }
}

impl Shelf {
    async fn task_counts(&self) -> Result<TaskCounts, Failure> {
        let dirs = ["items", "claims", "done", "dead"].map(|dir| self.dir(dir));
        let zk = self.client().zk();
        let look = || async {
            // Made before the first await: they travel together.
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
        // A server that lags would show that nothing is left where something has just been added.
        self.retry(|| caught_up(zk, dirs[0].as_str(), look)).await
    }
}
