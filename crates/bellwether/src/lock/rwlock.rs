//! The read/write lock.

use std::time::Duration;

use crate::error::{Error, Failure};
use crate::hold::{Hold, acquire_in_session, guard_of_a_hold, release_unrepaired};
use crate::line::contender::{Contender, Mode};
use crate::line::name::Kind;
use crate::line::{WaitQueue, Waiting, exclusive_options, layout_option, line_options};
use crate::node::data::Who;
use crate::session::Session;
use crate::session::client::Client;
use crate::session::telemetry::call;

/// A lock that many readers share, or one writer holds alone.
///
/// # What it guarantees
///
/// Among contenders that use this lock through the same servers, a writer holds alone. A guard's fencing [token](Hold::token) is greater
/// than the token of every guard that excluded it, and [`lost`](Hold::lost) resolves before the servers can grant the lock to a contender
/// that it excludes. With a [crash mark](Self::crash_mark) the next holder learns whether the last writer released or crashed; readers
/// leave no mark.
///
/// # What it does not
///
/// It is advisory, as [`Lock`](crate::Lock) is. A task that acquires again what it already holds, on the other side or behind a waiter,
/// waits for itself; [`ReentrantRwLock`](crate::ReentrantRwLock) does not.
///
/// # Node layout
///
/// As [`Lock`](crate::Lock), with nodes `read-…` and `write-…` in one directory. A writer that has become a reader says so in the
/// data of its node.
///
/// # Fairness
///
/// One line for both sides: a reader waits for every writer before it, and a writer for every contender before it. So neither side can
/// starve the other. A reader watches the last writer before it, and a writer the contender before it, so each is woken once.
///
/// # Session loss
///
/// As [`Lock`](crate::Lock).
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, RwLock};
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = RwLock::new(client, "/config/lock");
/// let writing = lock.write().await?;
/// println!("changing it, with token {}", writing.token());
/// // No writer can get in between the change and the read.
/// let reading = writing.downgrade().await?;
/// reading.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    wait_queue: WaitQueue,
}

impl RwLock {
    /// A lock at a path. Nothing is sent, nor is the path checked, until it is acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            wait_queue: WaitQueue::new(client, path),
        }
    }

    pub(super) fn client(&self) -> &Client {
        &self.wait_queue.options.client
    }

    line_options!();
    layout_option!();
    exclusive_options!();

    /// Waits until no writer is before this reader, and returns the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The node is deleted in the background, or with the session at the
    /// latest; a later call joins the end of the line.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind): `BadPath`, `InUse`, `TooLarge`, `TooManyEphemerals`, `SequenceUsedUp`, `NoSession`,
    /// `SessionEnded`, `Disconnected`, `Full`, `Removed`, `Refused`.
    pub async fn read(&self) -> Result<ReadGuard, Error> {
        self.read_within(None).await
    }

    /// Waits until no contender is before this writer, and returns the guard.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn write(&self) -> Result<WriteGuard, Error> {
        self.write_within(None).await
    }

    /// Does the same as [`read`](Self::read), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read), also when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when the limit has passed; else as [`read`](Self::read).
    pub async fn read_timeout(&self, limit: Duration) -> Result<ReadGuard, Error> {
        self.read_within(Some(limit)).await
    }

    async fn read_within(&self, limit: Option<Duration>) -> Result<ReadGuard, Error> {
        call!("rwlock.read", self.path())
            .waits(self.client(), limit)
            .hold(async {
                Ok(ReadGuard {
                    hold: self.wait_queue.acquire(Kind::Read, Mode::SHARED).await?,
                    wait_queue: self.wait_queue.clone(),
                })
            })
            .await
    }

    /// Does the same as [`write`](Self::write), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read), also when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when the limit has passed; else as [`read`](Self::read).
    pub async fn write_timeout(&self, limit: Duration) -> Result<WriteGuard, Error> {
        self.write_within(Some(limit)).await
    }

    async fn write_within(&self, limit: Option<Duration>) -> Result<WriteGuard, Error> {
        let runtime = self.client().runtime();
        let wait_queue = self.wait_queue.clone();
        let acquired = async move {
            let session = wait_queue.session().await?;
            let (kind, mode) = (Kind::Write, Mode::EXCLUSIVE);
            let contender = wait_queue.join_with_slot(&session, kind, mode).await?;
            WriteGuard::take(&wait_queue, contender).await
        };
        call!("rwlock.write", self.path())
            .waits(self.client(), limit)
            .hold(acquire_in_session(runtime, acquired))
            .await
    }

    /// Acquires the read side if no writer holds or waits; `None` otherwise.
    ///
    /// Reads the line first, so that a refused try writes nothing. A writer that has become a reader counts as a writer here.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, Error> {
        call!("rwlock.try_read", self.path())
            .try_hold(async {
                let hold = self
                    .wait_queue
                    .try_acquire(Kind::Read, Mode::SHARED)
                    .await?;
                let wait_queue = self.wait_queue.clone();
                Ok(hold.map(|hold| ReadGuard { hold, wait_queue }))
            })
            .await
    }

    /// Acquires the write side if no contender holds or waits; `None` otherwise.
    ///
    /// Reads the line first, so that a refused try writes nothing.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, Error> {
        call!("rwlock.try_write", self.path())
            .try_hold(async {
                let session = self.wait_queue.session().await?;
                try_write(&self.wait_queue, session, None).await
            })
            .await
    }

    /// Joins the end of the line to read, and returns without waiting for its turn: see [`Lock::join`](crate::Lock::join).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn join_read(&self) -> Result<Waiting<ReadGuard>, Error> {
        call!("rwlock.join_read", self.path())
            .run(async {
                let session = self.wait_queue.session().await?;
                let contender = self
                    .wait_queue
                    .join(&session, Kind::Read, Mode::SHARED)
                    .await?;
                let wait_queue = self.wait_queue.clone();
                Ok(Waiting::new(
                    &self.wait_queue,
                    contender,
                    async move |contender| {
                        let hold = wait_queue.turn(contender).await?;
                        Ok(ReadGuard { hold, wait_queue })
                    },
                ))
            })
            .await
    }

    /// Joins the end of the line to write, and returns without waiting for its turn: see [`Lock::join`](crate::Lock::join).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn join_write(&self) -> Result<Waiting<WriteGuard>, Error> {
        call!("rwlock.join_write", self.path())
            .run(async {
                let session = self.wait_queue.session().await?;
                let contender = self
                    .wait_queue
                    .join(&session, Kind::Write, Mode::EXCLUSIVE)
                    .await?;
                let wait_queue = self.wait_queue.clone();
                Ok(Waiting::new(
                    &self.wait_queue,
                    contender,
                    async move |contender| WriteGuard::take(&wait_queue, contender).await,
                ))
            })
            .await
    }

    /// Clears the crash mark of a dead writer, when its work has been repaired by hand. Tells whether there was one.
    ///
    /// Call it while the lock is not in use: if holders come and go during the call, it may delete the mark of a live holder, whose crash
    /// would then go unseen.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the mark may be there or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind): `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`, `Held`.
    pub async fn clear_crash_mark(&self) -> Result<bool, Error> {
        call!("rwlock.clear_crash_mark", self.path())
            .ask(self.wait_queue.clear_mark())
            .await
    }
}

/// Acquires the write side if the node `own` is alone in the line.
async fn try_write(
    wait_queue: &WaitQueue,
    session: Session,
    own: Option<&str>,
) -> Result<Option<WriteGuard>, Failure> {
    let (queue, own) = (wait_queue.clone(), own.map(str::to_owned));
    let tried = async move {
        let (own, mode) = (own.as_deref(), Mode::EXCLUSIVE);
        match queue.try_join(&session, Kind::Write, mode, own).await? {
            Some(contender) => WriteGuard::take(&queue, contender).await.map(Some),
            None => Ok(None),
        }
    };
    acquire_in_session(wait_queue.options.client.runtime(), tried).await
}

/// A hold on the read side of an [`RwLock`]; see [`Hold`] for what it promises.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct ReadGuard {
    hold: Hold,
    wait_queue: WaitQueue,
}

impl ReadGuard {
    /// Becomes the writer, if no other contender holds or waits. It is granted or refused at once, because two readers that wait for each
    /// other would deadlock. The new guard has a new token.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future releases both sides in the background.
    ///
    /// # Errors
    ///
    /// See [`UpgradeError`], which has this guard in it.
    pub async fn try_upgrade(self) -> Result<WriteGuard, UpgradeError> {
        // In the session that reads: in another one the read side would be in the way.
        let session = self.hold.session().clone();
        let written = call!("rwlock.try_upgrade", self.path())
            .try_hold(try_write(&self.wait_queue, session, Some(self.hold.node())))
            .await;
        match written {
            // The read side is released with this guard: its node blocks only contenders that the new write node blocks too.
            Ok(Some(guard)) => Ok(guard),
            Ok(None) => Err(UpgradeError::Refused {
                guard: Box::new(self),
            }),
            Err(source) => Err(UpgradeError::Failed {
                guard: Box::new(self),
                source,
            }),
        }
    }
}

guard_of_a_hold!(ReadGuard, release);

/// A hold on the write side of an [`RwLock`]; see [`Hold`] for what it promises.
///
/// Release it with [`release`](Self::release), which returns errors. A dropped guard is released in the background; with a crash mark, the
/// next holder then sees a crash.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct WriteGuard {
    hold: Hold,
    wait_queue: WaitQueue,
    who: Who,
}

impl WriteGuard {
    async fn take(wait_queue: &WaitQueue, contender: Contender) -> Result<Self, Failure> {
        Ok(Self {
            who: contender.who().clone(),
            hold: wait_queue.turn(contender).await?,
            wait_queue: wait_queue.clone(),
        })
    }

    /// Becomes a reader without letting a writer in between, and lets the readers behind it in. The token stays the same. With a crash
    /// mark, the write side counts as released. The [layouts](RwLock::layout) of other libraries have no downgrade: there, other contenders
    /// continue to wait as for a writer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the lock back in the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind): `NotHeld`, `LostWithSession`, `Refused`: the hold has ended.
    pub async fn downgrade(self) -> Result<ReadGuard, Error> {
        call!("rwlock.downgrade", self.path())
            .hold(async move {
                Ok(ReadGuard {
                    hold: self.hold.downgrade(&self.who).await?,
                    wait_queue: self.wait_queue,
                })
            })
            .await
    }
}

guard_of_a_hold!(WriteGuard, release);
release_unrepaired!(WriteGuard);

/// The reason why [`ReadGuard::try_upgrade`] did not give the write side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum UpgradeError {
    /// Another contender holds or waits. Continue to read with the guard, or release it and wait for the write side: the data may have
    /// changed by then.
    #[error("other contenders hold or wait at {}", guard.path())]
    Refused { guard: Box<ReadGuard> },
    /// The line could not be read or joined; the source says why. The guard holds the read side as before, unless that was lost: see
    /// [`Hold::is_held`].
    #[error("cannot upgrade at {}", guard.path())]
    Failed {
        guard: Box<ReadGuard>,
        source: Error,
    },
}

impl UpgradeError {
    /// Returns whether the same call may succeed later: other contenders were in the way, or the connection was lost.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Refused { .. } => true,
            Self::Failed { source, .. } => source.is_transient(),
        }
    }

    /// The guard that was to be upgraded.
    pub fn into_guard(self) -> ReadGuard {
        match self {
            Self::Refused { guard } | Self::Failed { guard, .. } => *guard,
        }
    }
}
