//! The read/write lock.

use std::ops::Deref;
use std::time::Duration;

use crate::client::Client;
use crate::contender::{Contender, Rule};
use crate::error::{AcquireError, ClearError, ReleaseError};
use crate::hold::{Hold, Undo, acquire_there};
use crate::name::Kind;
use crate::terms::{Terms, exclusive_options, layout_option, line_options};
use crate::waiting::Waiting;
use crate::who::Who;

/// A lock that many readers share, or one writer holds alone.
///
/// # What it guarantees
///
/// Among contenders that use this lock through the same servers, no writer holds beside anybody else. A guard's
/// [token](Hold::token) is greater than that of every guard that excluded it, and [`lost`](Hold::lost) resolves before
/// the servers can let in whom it excludes. With a [crash mark](Self::crash_mark) the next holder learns whether the last writer
/// released or died; readers leave no mark.
///
/// # What it does not
///
/// It is advisory, as [`Lock`](crate::Lock) is. A task that asks for what it already holds, on the other side or behind somebody
/// who waits, waits for itself: [`ReentrantRwLock`](crate::ReentrantRwLock) does not.
///
/// # Node layout
///
/// As [`Lock`](crate::Lock), with nodes `read-…` and `write-…` in one directory. A writer that has become a reader says so in the
/// data of its node.
///
/// # Fairness
///
/// One line for both sides: a reader waits for every writer that came before it, and a writer for everybody who did. So
/// neither side can starve the other. A reader watches the last writer before it and a writer the one before it, so each is
/// woken once.
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
/// // Nobody can write between the change and the look at it.
/// let reading = writing.downgrade().await?;
/// reading.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    terms: Terms,
}

impl RwLock {
    /// A lock at a path. Nothing is sent, nor is the path checked, until it is acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            terms: Terms::new(client, path),
        }
    }

    line_options!();
    layout_option!();
    exclusive_options!();

    /// Waits until no writer stands before this reader, and returns the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The node is deleted in the background, or with the session at the
    /// latest; a later call queues at the end.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    pub async fn read(&self) -> Result<ReadGuard, AcquireError> {
        Ok(ReadGuard {
            hold: self.terms.acquire(Kind::Read, Rule::SHARED).await?,
            terms: self.terms.clone(),
        })
    }

    /// Waits until nobody stands before this writer, and returns the guard.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn write(&self) -> Result<WriteGuard, AcquireError> {
        let terms = self.terms.clone();
        let acquired = async move {
            let contender = terms.join(Kind::Write, Rule::EXCLUSIVE).await?;
            WriteGuard::take(&terms, contender).await
        };
        acquire_there(self.terms.client.home(), acquired).await
    }

    /// As [`read`](Self::read), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read), also when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] when the limit has passed; else as [`read`](Self::read).
    pub async fn read_timeout(&self, limit: Duration) -> Result<ReadGuard, AcquireError> {
        self.terms.within(limit, self.read()).await
    }

    /// As [`write`](Self::write), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read), also when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] when the limit has passed; else as [`read`](Self::read).
    pub async fn write_timeout(&self, limit: Duration) -> Result<WriteGuard, AcquireError> {
        self.terms.within(limit, self.write()).await
    }

    /// Takes the read side if no writer holds or waits; `None` if one does.
    ///
    /// Looks first, so that a try in vain writes nothing. A writer that has become a reader counts as a writer here.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn try_read(&self) -> Result<Option<ReadGuard>, AcquireError> {
        let hold = self.terms.try_acquire(Kind::Read, Rule::SHARED).await?;
        let terms = self.terms.clone();
        Ok(hold.map(|hold| ReadGuard { hold, terms }))
    }

    /// Takes the write side if nobody holds or waits; `None` if somebody does.
    ///
    /// Looks first, so that a try in vain writes nothing.
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn try_write(&self) -> Result<Option<WriteGuard>, AcquireError> {
        self.terms.try_write(None).await
    }

    /// Takes a place at the end of the line to read, and returns without waiting for its turn: see [`Lock::join`](crate::Lock::join).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn join_read(&self) -> Result<Waiting<ReadGuard>, AcquireError> {
        let contender = self.terms.join(Kind::Read, Rule::SHARED).await?;
        let terms = self.terms.clone();
        Ok(Waiting::new(
            &self.terms,
            contender,
            async move |contender| {
                let hold = terms.turn(contender).await?;
                Ok(ReadGuard { hold, terms })
            },
        ))
    }

    /// Takes a place at the end of the line to write, and returns without waiting for its turn: see [`Lock::join`](crate::Lock::join).
    ///
    /// # Cancel safety
    ///
    /// As [`read`](Self::read).
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn join_write(&self) -> Result<Waiting<WriteGuard>, AcquireError> {
        let contender = self.terms.join(Kind::Write, Rule::EXCLUSIVE).await?;
        let terms = self.terms.clone();
        Ok(Waiting::new(
            &self.terms,
            contender,
            async move |contender| WriteGuard::take(&terms, contender).await,
        ))
    }

    /// Forgets the crash of a writer: removes its mark, when what it left behind has been repaired by hand. Tells whether
    /// there was one.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the mark may be there or not.
    ///
    /// # Errors
    ///
    /// See [`ClearError`].
    pub async fn clear(&self) -> Result<bool, ClearError> {
        self.terms.clear_mark().await
    }
}

impl Terms {
    /// Takes the write side if nobody but the node `own` is in the line.
    async fn try_write(&self, own: Option<&str>) -> Result<Option<WriteGuard>, AcquireError> {
        let (terms, own) = (self.clone(), own.map(str::to_owned));
        let tried = async move {
            let (kind, rule) = (Kind::Write, Rule::EXCLUSIVE);
            match terms.try_join(kind, rule, own.as_deref()).await? {
                Some(contender) => WriteGuard::take(&terms, contender).await.map(Some),
                None => Ok(None),
            }
        };
        acquire_there(self.client.home(), tried).await
    }
}

/// A hold on the read side of an [`RwLock`]; what it promises is told at [`Hold`].
#[derive(Debug)]
#[must_use = "the lock is given back when the guard is dropped"]
pub struct ReadGuard {
    hold: Hold,
    terms: Terms,
}

impl ReadGuard {
    /// Becomes the only holder, if nobody else holds or waits: granted or refused at once, since two readers that waited for
    /// each other to leave would wait for ever. The token of the new guard is a new one.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives both sides back in the background.
    ///
    /// # Errors
    ///
    /// See [`UpgradeError`], which has this guard in it.
    pub async fn try_upgrade(self) -> Result<WriteGuard, UpgradeError> {
        match self.terms.try_write(Some(self.hold.node())).await {
            // The read side goes with this guard: it stands in nobody's way who does not wait for the write side too.
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

    /// Gives the read side back and waits for the server's acknowledgement, over any number of reconnects.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// See [`ReleaseError`]: the hold has ended all the same, but perhaps before this call.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release().await
    }
}

impl Deref for ReadGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

/// A hold on the write side of an [`RwLock`]; what it promises is told at [`Hold`].
///
/// Give it back with [`release`](Self::release), which reports. Dropped, it is given back in the background, and with a crash
/// mark the next holder is told that this one did not finish.
#[derive(Debug)]
#[must_use = "the lock is given back when the guard is dropped"]
pub struct WriteGuard {
    hold: Hold,
    terms: Terms,
    who: Who,
}

impl WriteGuard {
    async fn take(terms: &Terms, contender: Contender) -> Result<Self, AcquireError> {
        Ok(Self {
            who: contender.who().clone(),
            hold: terms.turn(contender).await?,
            terms: terms.clone(),
        })
    }

    /// Becomes a reader without letting a writer in between, and lets the readers behind in. The token stays. With a crash
    /// mark, the write side counts as released. Lines in the [layout](RwLock::layout) of another library know no such
    /// thing: there the others go on waiting as for a writer.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives the lock back in the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// See [`ReleaseError`]: the hold has ended.
    pub async fn downgrade(self) -> Result<ReadGuard, ReleaseError> {
        Ok(ReadGuard {
            hold: self.hold.downgrade(&self.who).await?,
            terms: self.terms,
        })
    }

    /// Gives the write side back and waits for the server's acknowledgement, over any number of reconnects.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// See [`ReleaseError`]: the hold has ended all the same, but perhaps before this call.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release().await
    }

    /// As [`release`](Self::release), but leaves the mark of the crash that [`previous`](Hold::previous) told of, so that the
    /// next holder is told again: for one who saw it and did not repair.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// As [`release`](Self::release).
    pub async fn release_unrepaired(self) -> Result<(), ReleaseError> {
        self.hold.release_unrepaired().await
    }
}

impl Undo for WriteGuard {
    fn undo(self) {
        self.hold.undo();
    }
}

impl Deref for WriteGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}

/// Why [`ReadGuard::try_upgrade`] did not give the write side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "each field is named in its message")]
pub enum UpgradeError {
    /// Somebody else holds or waits. Go on reading with the guard, or release it and wait for the write side: what was read
    /// may have changed by then.
    #[error("others hold or wait at {}", guard.path())]
    Refused { guard: Box<ReadGuard> },
    /// It could not be found out, or the line took nobody. The source says why; the guard still reads.
    #[error("cannot upgrade at {}", guard.path())]
    Failed {
        guard: Box<ReadGuard>,
        source: AcquireError,
    },
}

impl UpgradeError {
    /// The guard that was to be upgraded.
    pub fn into_guard(self) -> ReadGuard {
        match self {
            Self::Refused { guard } | Self::Failed { guard, .. } => *guard,
        }
    }
}
