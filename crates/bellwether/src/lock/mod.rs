//! The fair lock, and several locks at once.

pub(crate) mod reentrant;
pub(crate) mod rwlock;
pub(crate) mod semaphore;
pub(crate) mod simple;

use std::time::Duration;

use futures_util::future::select_all;

use crate::error::{Error, ErrorKind, Failure, Lost};
use crate::hold::fence::FencingToken;
use crate::hold::hold_watch::run_while;
use crate::hold::{Hold, InTransit, Undo, guard_of_a_hold, release_unrepaired};
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
/// Strict: tasks of one session in the order of their calls, sessions by the sequence numbers that the server gave. Each waiter watches
/// only the contender before it, so a release wakes one waiter (no thundering herd). Thousands of tasks of one process may wait: at most
/// two tasks of a session have a node, and the others wait in the process, without requests.
///
/// # Session loss
///
/// A short outage changes nothing but [`state`](Hold::state): places and holds belong to the session. When the session
/// ends, waiters get [`ErrorKind::SessionEnded`] and [`lost`](Hold::lost) resolves; the next [`acquire`](Self::acquire) works in the next session.
///
/// # Example
///
/// ```no_run
/// # use std::time::Duration;
/// # use bellwether::{Client, Lock};
/// use bellwether::{Error, ErrorKind};
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let lock = Lock::new(client, "/jobs/nightly").message("nightly backup");
/// match lock.acquire_timeout(Duration::from_secs(30)).await {
///     Ok(guard) => {
///         println!("running with token {}", guard.token());
///         guard.release().await?;
///     }
///     Err(Error { kind: ErrorKind::TimedOut { .. }, .. }) => println!("another process holds it"),
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
    /// [`ErrorKind`]: `BadPath`, `InUse`, `TooLarge`, `TooManyEphemerals`, `SequenceUsedUp`, `NoSession`,
    /// `SessionEnded`, `Disconnected`, `Full`, `Removed`, `Refused`.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        self.acquire_within(None).await
    }

    /// Does the same as [`acquire`](Self::acquire), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire). The same holds when the limit has passed: the node is deleted in the
    /// background, or with the session at the latest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the limit has passed; else as [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<LockGuard, Error> {
        self.acquire_within(Some(limit)).await
    }

    async fn acquire_within(&self, limit: Option<Duration>) -> Result<LockGuard, Error> {
        call!("lock.acquire", self.path())
            .waits(self.client(), limit)
            .hold(async {
                let hold = self.wait_queue.acquire(Kind::Lock, Mode::EXCLUSIVE).await?;
                Ok(LockGuard { hold })
            })
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
    pub async fn try_acquire(&self) -> Result<Option<LockGuard>, Error> {
        call!("lock.try_acquire", self.path())
            .try_hold(async {
                let (kind, mode) = (Kind::Lock, Mode::EXCLUSIVE);
                let hold = self.wait_queue.try_acquire(kind, mode).await?;
                Ok(hold.map(|hold| LockGuard { hold }))
            })
            .await
    }

    /// Joins the end of the line, and returns without waiting for its turn. For programs that show how the wait
    /// is going.
    ///
    /// ```no_run
    /// # use bellwether::{Lock, LockGuard};
    /// # use bellwether::Error;
    /// # use futures_util::StreamExt;
    /// # async fn run(lock: &Lock) -> Result<LockGuard, Error> {
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
    pub async fn join(&self) -> Result<Waiting<LockGuard>, Error> {
        call!("lock.join", self.path())
            .run(async {
                let session = self.wait_queue.session().await?;
                let (kind, mode) = (Kind::Lock, Mode::EXCLUSIVE);
                let contender = self.wait_queue.join(&session, kind, mode).await?;
                let wait_queue = self.wait_queue.clone();
                let take = async move |contender| {
                    let hold = wait_queue.turn(contender).await?;
                    Ok(LockGuard { hold })
                };
                Ok(Waiting::new(&self.wait_queue, contender, take))
            })
            .await
    }

    pub(crate) fn client(&self) -> &Client {
        &self.wait_queue.options.client
    }

    /// The path with the chroot in front; as it is written if it is none.
    fn path_on_servers(&self) -> String {
        let node = self.wait_queue.options.node();
        node.map_or_else(|_| self.path().to_owned(), |node| node.as_str().to_owned())
    }

    /// Returns whether a hold of the other lock at the same path is as good.
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
    /// [`ErrorKind`]: `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`, `Held`.
    pub async fn clear_crash_mark(&self) -> Result<bool, Error> {
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

/// Several locks that are acquired together: all of them, or none.
///
/// # What it guarantees
///
/// The locks are acquired in the order of their paths on the servers, with the chroots in front, and not in the order in which they were given:
/// so users of the same locks cannot deadlock. Each has its own guard, with its own fencing [token](crate::Hold::token). A lock that is given
/// twice is acquired once, also through two clients or chroots; if its options differ, it is refused.
///
/// # What it does not
///
/// The order prevents deadlocks only among callers that acquire all their locks in one such call: a caller that holds one lock and then
/// asks for another can still deadlock. While the call waits for one lock, it holds the locks before it.
///
/// Locks on different servers are refused: there is no order that all users of them would share. Servers are the same if the connect strings of
/// the clients name the same hosts and ports. Names are compared as they are written, so clients of one ensemble have to list the same members.
///
/// # Node layout, fairness and session loss
///
/// Those of each [`Lock`].
///
/// # Example
///
/// ```no_run
/// # use std::time::Duration;
/// # use bellwether::{Client, Lock, MultiLock};
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let accounts = ["/accounts/7", "/accounts/3"].map(|path| Lock::new(client, path));
/// let both = MultiLock::new(accounts).acquire_timeout(Duration::from_secs(5)).await?;
/// for guard in both.guards() {
///     println!("{} with token {}", guard.path(), guard.token());
/// }
/// both.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct MultiLock {
    /// The locks, in the order of their paths on the servers, each path once.
    locks: Vec<Lock>,
    /// The path of a lock that cannot be acquired together with the others, and why.
    refused: Option<(String, &'static str)>,
}

impl MultiLock {
    /// All of these locks. Nothing is sent until they are acquired.
    #[must_use]
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Self {
        let mut locks = Vec::from_iter(locks);
        locks.sort_by_cached_key(Lock::path_on_servers);
        let refused = refused(&locks).map(|(lock, reason)| (lock.path().to_owned(), reason));
        locks.dedup_by(|one, other| one.path_on_servers() == other.path_on_servers());
        Self { locks, refused }
    }

    /// The paths, in the order in which they are acquired.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        self.locks.iter().map(Lock::path)
    }

    fn all_paths(&self) -> String {
        self.paths().collect::<Vec<_>>().join(" ")
    }

    /// Refuses locks that cannot be acquired together.
    fn check(&self) -> Result<(), Failure> {
        match self.refused.clone() {
            Some((path, reason)) => {
                let kind = ErrorKind::Unsupported { reason };
                Err(Failure::elsewhere(path, kind))
            }
            None => Ok(()),
        }
    }

    /// Waits until all are held.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up all of them, in the background.
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`], for the first lock that cannot be acquired, and [`ErrorKind::Lost`] if a lock that was already held is lost
    /// meanwhile. The locks that were held are released in the background. [`ErrorKind::Unsupported`] if they are on different servers, or
    /// one is given twice with different options.
    pub async fn acquire(&self) -> Result<MultiGuard, Error> {
        call!("multi_lock.acquire", self.all_paths())
            .run(async {
                self.check()?;
                let mut all = InTransit::new(MultiGuard::default());
                self.acquire_into(&mut all).await?;
                Ok(all.arrive())
            })
            .await
    }

    /// Does the same as [`acquire`](Self::acquire), but gives up after a time. The limit is for all of them together.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), also when the limit has passed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`], with the path that was waited for, when the limit has passed; else as [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<MultiGuard, Error> {
        call!("multi_lock.acquire", self.all_paths())
            .run(async {
                self.check()?;
                let mut all = InTransit::new(MultiGuard::default());
                let Some(first) = self.locks.first() else {
                    return Ok(all.arrive());
                };
                let acquired = self.acquire_into(&mut all);
                match first.client().runtime().timeout(limit, acquired).await {
                    Some(acquired) => acquired.map(|()| all.arrive()),
                    None => Err(Failure::elsewhere(
                        self.locks[all.guards.len()].path(),
                        ErrorKind::TimedOut { limit },
                    )),
                }
            })
            .await
    }

    /// Acquires one lock after the other, while the locks acquired so far are held.
    async fn acquire_into(&self, all: &mut MultiGuard) -> Result<(), Failure> {
        for lock in &self.locks {
            let guard = tokio::select! {
                biased;
                () = all.lost() => return Err(Failure::elsewhere(all.lost_path(), ErrorKind::Lost)),
                guard = lock.acquire() => guard?,
            };
            all.guards.push(guard);
        }
        Ok(())
    }

    /// Acquires all of them if all are free; `None` otherwise.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<MultiGuard>, Error> {
        call!("multi_lock.try_acquire", self.all_paths())
            .find(async {
                self.check()?;
                let mut all = InTransit::new(MultiGuard::default());
                for lock in &self.locks {
                    match lock.try_acquire().await? {
                        Some(guard) => all.guards.push(guard),
                        None => return Ok(None),
                    }
                }
                Ok(Some(all.arrive()))
            })
            .await
    }
}

/// A lock that cannot be acquired together with the others, and why. They are sorted by their paths on the servers.
fn refused(locks: &[Lock]) -> Option<(&Lock, &'static str)> {
    let first = locks.first()?;
    let elsewhere = locks
        .iter()
        .find(|lock| !lock.client().has_servers_of(first.client()));
    if let Some(lock) = elsewhere {
        return Some((lock, "it is on other servers"));
    }
    let differ = locks.windows(2).find(|pair| {
        pair[0].path_on_servers() == pair[1].path_on_servers() && !pair[0].wants_as(&pair[1])
    })?;
    Some((&differ[1], "it is given twice, with different options"))
}

/// The holds on all locks of a [`MultiLock`].
#[derive(Debug, Default)]
#[must_use = "the locks are released when the guard is dropped"]
pub struct MultiGuard {
    guards: Vec<LockGuard>,
}

impl MultiGuard {
    /// The guard of each lock, in the order of their paths on the servers.
    pub fn guards(&self) -> &[LockGuard] {
        &self.guards
    }

    /// The fencing token of the lock at a path, if it is one of these; of the first if there are several, in different chroots.
    #[must_use]
    pub fn token(&self, path: &str) -> Option<FencingToken> {
        let guard = self.guards.iter().find(|guard| guard.path() == path)?;
        Some(guard.token())
    }

    /// Returns whether all are held at this moment.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(|guard| guard.is_held())
    }

    /// Resolves when the first of them can no longer be relied on.
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if a hold was lost meanwhile.
    pub async fn lost(&self) {
        if self.guards.is_empty() {
            return std::future::pending().await;
        }
        select_all(self.guards.iter().map(|guard| Box::pin(guard.lost()))).await;
    }

    /// Runs a future as long as all are held, as [`Hold::run`](crate::Hold::run).
    ///
    /// # Cancel safety
    ///
    /// That of the future.
    ///
    /// # Errors
    ///
    /// [`Lost`], with the path of the first that is over, if that was before the future was done.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, Lost> {
        let done = run_while(self.lost(), work).await;
        done.ok_or_else(|| Lost {
            path: self.lost_path(),
        })
    }

    fn all_paths(&self) -> String {
        let paths = self.guards.iter().map(|guard| guard.path());
        paths.collect::<Vec<_>>().join(" ")
    }

    /// The path of a lock that is lost.
    fn lost_path(&self) -> String {
        let lost = self.guards.iter().find(|guard| !guard.is_held());
        lost.map(|guard| guard.path())
            .unwrap_or_default()
            .to_owned()
    }

    /// Releases all of them, the last one first, and waits for the acknowledgements.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future leaves the rest to the background, as dropping the guard does.
    ///
    /// # Errors
    ///
    /// The first error; the remaining locks are released all the same.
    pub async fn release(self) -> Result<(), Error> {
        call!("multi_lock.release", self.all_paths())
            .run(async move {
                let mut reported = Ok(());
                for guard in self.guards.into_iter().rev() {
                    let released = guard.release().await;
                    reported = reported.and(released);
                }
                Ok(reported?)
            })
            .await
    }

    /// The single guards, to be released one by one.
    pub fn into_guards(self) -> Vec<LockGuard> {
        self.guards
    }
}

impl Undo for MultiGuard {
    fn undo(self) {
        for guard in self.guards {
            guard.undo();
        }
    }
}
