//! The fair lock.

use std::ops::Deref;
use std::time::Duration;

use crate::client::Client;
use crate::contender::Rule;
use crate::error::{AcquireError, ClearError, ReleaseError};
use crate::hold::{Hold, Undo};
use crate::name::Kind;
use crate::terms::{Terms, exclusive_options, layout_option, line_options};
use crate::waiting::Waiting;

/// A lock that one contender holds at a time, in the order of arrival.
///
/// # What it guarantees
///
/// Among contenders that use this lock through the same servers, the server has one first in line at any moment, and
/// that one alone gets a guard. A guard's [token](Hold::token) is greater than that of every guard before it, and
/// [`lost`](Hold::lost) resolves before the servers can let the next one in. With a [crash mark](Self::crash_mark) the next
/// holder learns whether the one before released or died.
///
/// # What it does not
///
/// The lock is advisory. A process that is paused longer than its session timeout loses its place and cannot know
/// before it wakes: what must never be written by two holders has to compare tokens, with a [`Fence`](crate::Fence) or with
/// [`write`](Hold::write). Tokens compare as long as the servers keep their data: a server that starts over empty counts
/// from the beginning. A task that acquires what it already holds waits for itself:
/// [`ReentrantLock`](crate::ReentrantLock) does not.
///
/// # Node layout
///
/// The path is a directory, a container unless it exists; contenders are ephemeral sequential nodes in it, named
/// `lock-<session>-<acquisition>-<sequence>`, with JSON that tells [who](crate::Who) waits; the crash mark is a node `held`.
/// Other children are ignored. Nodes that are made here are open to everybody unless an [ACL](Self::acl) is set.
///
/// # Fairness
///
/// Strict: by the sequence number that the server gave. Each waiter watches the one before it, so a release wakes one.
///
/// # Session loss
///
/// A short outage changes nothing but [`state`](Hold::state): places and holds belong to the session. When the session
/// ends, waiters get [`AcquireError::SessionEnded`] and [`lost`](Hold::lost) resolves.
///
/// # Example
///
/// ```no_run
/// # use std::time::Duration;
/// # use bellwether::{AcquireError, Client, Lock};
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = Lock::new(client, "/jobs/nightly").message("nightly backup");
/// match lock.acquire_timeout(Duration::from_secs(30)).await {
///     Ok(guard) => {
///         println!("running with token {}", guard.token());
///         guard.release().await?;
///     }
///     Err(AcquireError::TimedOut { .. }) => println!("somebody else is at it"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    terms: Terms,
}

impl Lock {
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

    /// Waits for the turn of this contender and returns the guard.
    ///
    /// Contenders are served in the order in which the server created their nodes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the line. The node is deleted in the background, or with the session at the
    /// latest; a later call queues at the end.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    pub async fn acquire(&self) -> Result<LockGuard, AcquireError> {
        let hold = self.terms.acquire(Kind::Lock, Rule::EXCLUSIVE).await?;
        Ok(LockGuard { hold })
    }

    /// As [`acquire`](Self::acquire), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire). The same holds when the limit has passed: the node is deleted in the
    /// background, or with the session at the latest.
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] when the limit has passed; else as [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<LockGuard, AcquireError> {
        self.terms.within(limit, self.acquire()).await
    }

    /// Takes the lock if nobody holds it or waits for it; `None` if somebody does.
    ///
    /// Looks first, so that a try in vain writes nothing.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, AcquireError> {
        let hold = self.terms.try_acquire(Kind::Lock, Rule::EXCLUSIVE).await?;
        Ok(hold.map(|hold| LockGuard { hold }))
    }

    /// Takes a place at the end of the line, and returns without waiting for its turn. For programs that show how the wait
    /// is going.
    ///
    /// ```no_run
    /// # use bellwether::{AcquireError, Lock, LockGuard};
    /// # use futures_util::StreamExt;
    /// # async fn run(lock: &Lock) -> Result<LockGuard, AcquireError> {
    /// let waiting = lock.join().await?;
    /// let mut progress = waiting.progress();
    /// let turn = waiting.turn();
    /// tokio::pin!(turn);
    /// loop {
    ///     tokio::select! {
    ///         guard = &mut turn => return guard,
    ///         Some(place) = progress.next() => println!("{} before us", place.ahead),
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn join(&self) -> Result<Waiting, AcquireError> {
        let contender = self.terms.join(Kind::Lock, Rule::EXCLUSIVE).await?;
        let terms = self.terms.clone();
        Ok(Waiting::new(
            &self.terms,
            contender,
            async move |contender| {
                let hold = terms.turn(contender).await?;
                Ok(LockGuard { hold })
            },
        ))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.terms.client
    }

    /// Forgets the crash of a holder: removes its mark, when what it left behind has been repaired by hand. Tells whether
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

/// A hold on a [`Lock`]; what it promises is told at [`Hold`].
///
/// Give it back with [`release`](Self::release), which reports. Dropped, it is given back in the background, and with a crash
/// mark the next holder is told that this one did not finish.
#[derive(Debug)]
#[must_use = "the lock is given back when the guard is dropped"]
pub struct LockGuard {
    hold: Hold,
}

impl LockGuard {
    /// Gives the lock back and waits for the server's acknowledgement, over any number of reconnects.
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

impl Undo for LockGuard {
    fn undo(self) {
        self.hold.undo();
    }
}

impl Deref for LockGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}
