//! The fair lock.

pub(crate) mod multi;
pub(crate) mod reentrant;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod simple;

use std::time::Duration;

use crate::error::{AcquireError, ClearError};
use crate::hold::{Hold, guard_of_a_hold, release_unrepaired};
use crate::line::contender::Mode;
use crate::line::name::Kind;
use crate::line::{WaitQueue, Waiting, exclusive_options, layout_option, line_options};
use crate::session::client::Client;
use crate::session::telemetry::call;

/// A lock that one contender holds at a time, in order of arrival.
///
/// # What it guarantees
///
/// Among contenders that use this lock through the same servers, exactly one is first in line at any moment, and only that contender gets a
/// guard. A guard's fencing [token](Hold::token) is greater than the token of every earlier guard, and [`lost`](Hold::lost) resolves before
/// the servers can grant the lock to the next contender. With a [crash mark](Self::crash_mark) the next holder learns whether the previous
/// holder released or crashed.
///
/// # What it does not
///
/// The lock is advisory. A process that is paused longer than its session timeout loses its place, and cannot know before it wakes. Data
/// that two holders must never write has to be protected by fencing tokens, with a [`Fence`](crate::Fence) or with [`write`](Hold::write).
/// Tokens rise as long as the servers keep their data: a server that starts empty counts from the beginning. A task that acquires what it
/// already holds waits for itself: [`ReentrantLock`](crate::ReentrantLock) does not.
///
/// # Node layout
///
/// The path is a directory, a container unless it exists; contenders are ephemeral sequential nodes in it, named
/// `lock-<session>-<acquisition>-<sequence>`, with the identity of the contender ([`Who`](crate::Who)) as JSON; the crash mark is a node
/// `held`; a holder with [fenced writes](Hold::write) has an ephemeral node `receipt-…`. Other children are ignored; a contender in the
/// layout of another library is an error. All clients may use the nodes unless an [ACL](Self::acl) is set.
///
/// # Fairness
///
/// Strict: by the sequence number that the server gave. Each waiter watches only the contender before it, so a release wakes one waiter (no
/// thundering herd). Thousands of tasks of one process may wait: each has its own node, and a task behind another task of the same session
/// sends nothing while it waits.
///
/// # Session loss
///
/// A short outage changes nothing but [`state`](Hold::state): places and holds belong to the session. When the session
/// ends, waiters get [`AcquireError::SessionEnded`] and [`lost`](Hold::lost) resolves; the next [`acquire`](Self::acquire) works in the next session.
///
/// # Example
///
/// ```no_run
/// # use std::time::Duration;
/// # use bellwether::{Client, Lock};
/// # use bellwether::error::AcquireError;
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = Lock::new(client, "/jobs/nightly").message("nightly backup");
/// match lock.acquire_timeout(Duration::from_secs(30)).await {
///     Ok(guard) => {
///         println!("running with token {}", guard.token());
///         guard.release().await?;
///     }
///     Err(AcquireError::TimedOut { .. }) => println!("another process holds it"),
///     Err(error) => return Err(error.into()),
/// }
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    wait_queue: WaitQueue,
}

impl Lock {
    /// A lock at a path. Nothing is sent, nor is the path checked, until it is acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            wait_queue: WaitQueue::new(client, path),
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
    /// latest; a later call joins the end of the line.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    pub async fn acquire(&self) -> Result<LockGuard, AcquireError> {
        call!("lock.acquire", self.path())
            .hold(self.acquire_untraced())
            .await
    }

    async fn acquire_untraced(&self) -> Result<LockGuard, AcquireError> {
        let hold = self.wait_queue.acquire(Kind::Lock, Mode::EXCLUSIVE).await?;
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
        call!("lock.acquire", self.path())
            .hold(self.wait_queue.within(limit, self.acquire_untraced()))
            .await
    }

    /// Acquires the lock if no contender holds it or waits for it; `None` otherwise.
    ///
    /// Reads the line first, so that a refused try writes nothing.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, AcquireError> {
        call!("lock.try_acquire", self.path())
            .try_hold(async {
                let hold = self
                    .wait_queue
                    .try_acquire(Kind::Lock, Mode::EXCLUSIVE)
                    .await?;
                Ok(hold.map(|hold| LockGuard { hold }))
            })
            .await
    }

    /// Joins the end of the line, and returns without waiting for its turn. For programs that show how the wait
    /// is going.
    ///
    /// ```no_run
    /// # use bellwether::{Lock, LockGuard};
    /// # use bellwether::error::AcquireError;
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
    pub async fn join(&self) -> Result<Waiting<LockGuard>, AcquireError> {
        call!("lock.join", self.path())
            .run(self.join_untraced())
            .await
    }

    async fn join_untraced(&self) -> Result<Waiting<LockGuard>, AcquireError> {
        let session = self.wait_queue.session().await?;
        let contender = self
            .wait_queue
            .join(&session, Kind::Lock, Mode::EXCLUSIVE)
            .await?;
        let wait_queue = self.wait_queue.clone();
        Ok(Waiting::new(
            &self.wait_queue,
            contender,
            async move |contender| {
                let hold = wait_queue.turn(contender).await?;
                Ok(LockGuard { hold })
            },
        ))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.wait_queue.options.client
    }

    /// The path with the chroot in front; as it is written if it is none.
    fn path_on_servers(&self) -> String {
        let node = self.wait_queue.options.node();
        node.map_or_else(|_| self.path().to_owned(), |node| node.as_str().to_owned())
    }

    /// Whether a hold of the other lock at the same path is as good.
    fn wants_as(&self, other: &Self) -> bool {
        let wanted = |lock: &Self| {
            let wait_queue = &lock.wait_queue;
            (
                wait_queue.layout,
                wait_queue.crash_mark,
                wait_queue.lock_delay,
            )
        };
        wanted(self) == wanted(other)
    }

    /// Clears the crash mark of a dead holder, when its work has been repaired by hand. Tells whether there was one.
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
    /// See [`ClearError`].
    pub async fn clear_crash_mark(&self) -> Result<bool, ClearError> {
        call!("lock.clear_crash_mark", self.path())
            .ask(self.wait_queue.clear_mark())
            .await
    }
}

/// A hold on a [`Lock`]; see [`Hold`] for what it promises.
///
/// Release it with [`release`](Self::release), which returns errors. A dropped guard is released in the background; with a crash mark, the
/// next holder then sees a crash.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct LockGuard {
    hold: Hold,
}

guard_of_a_hold!(LockGuard, release);
release_unrepaired!(LockGuard);
