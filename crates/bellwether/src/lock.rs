//! The fair lock.

use std::ops::Deref;
use std::time::Duration;

use zookeeper_client as zk;

use crate::access::Access;
use crate::client::Client;
use crate::contender::{Contender, Entry, Failure, LINE_MAX, Rule};
use crate::crash_mark::{self, ClearFailure, Previous};
use crate::error::{AcquireError, ClearError, Outcome, ReleaseError, outcome};
use crate::hold::Hold;
use crate::name::{Kind, contenders};
use crate::path::NodePath;
use crate::progress::Progress;
use crate::who::Who;

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
/// from the beginning. A task that acquires what it already holds waits for itself.
///
/// # Node layout
///
/// The path is a directory, a container unless it exists; contenders are ephemeral sequential nodes in it, named
/// `lock-<session>-<acquisition>-<sequence>`, with JSON that tells [who](Who) waits; the crash mark is a node `held`.
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
    client: Client,
    path: String,
    owner: Option<String>,
    command: Option<String>,
    message: Option<String>,
    access: Access,
    line_max: usize,
    crash_mark: bool,
    lock_delay: Duration,
}

impl Lock {
    /// A lock at a path. Nothing is sent, nor is the path checked, until it is acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
            owner: None,
            command: None,
            message: None,
            access: Access::default(),
            line_max: LINE_MAX,
            crash_mark: false,
            lock_delay: Duration::ZERO,
        }
    }

    /// A word for people who look at the line, kept in the node of each acquisition.
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..self
        }
    }

    /// The command that runs under the lock, for people who look at the line.
    #[must_use]
    pub fn command(self, command: impl Into<String>) -> Self {
        Self {
            command: Some(command.into()),
            ..self
        }
    }

    /// The name of the task that acquires, where several share a session: whom a search for deadlocks takes for one. The
    /// session unless set.
    #[must_use]
    pub fn owner(self, owner: impl Into<String>) -> Self {
        Self {
            owner: Some(owner.into()),
            ..self
        }
    }

    /// Who may touch the directory and the nodes of this lock. Everybody unless set. Directories that have to be made
    /// above it stay open: make them first if they should not be.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            access: Access::new(acl),
            ..self
        }
    }

    /// How many may stand in the line, the holder among them, before the next is refused. 10,000 unless set, because
    /// servers refuse to list much more.
    #[must_use]
    pub fn line_max(self, line_max: usize) -> Self {
        Self { line_max, ..self }
    }

    /// Leaves a mark while held, by which the next holder knows whether this one released: [`Hold::previous`]. It costs one
    /// more synced write an acquisition. Every contender of a lock should ask for it, or none.
    #[must_use]
    pub fn crash_mark(self) -> Self {
        Self {
            crash_mark: true,
            ..self
        }
    }

    /// After a crash of the holder before, waits so long before the guard is returned, in the hope that what that one had
    /// begun comes to rest. Asks for a [crash mark](Self::crash_mark) too.
    #[must_use]
    pub fn lock_delay(self, lock_delay: Duration) -> Self {
        Self {
            lock_delay,
            crash_mark: true,
            ..self
        }
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

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
        self.join().await?.turn().await
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
        match self.client.home().timeout(limit, self.acquire()).await {
            Some(result) => result,
            None => Err(AcquireError::TimedOut {
                path: self.path.clone(),
                limit,
            }),
        }
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
        let dir = self.dir()?;
        match self.client.zk().list_children(dir.as_str()).await {
            Ok(children) => {
                if contenders(children).next().is_some() {
                    return Ok(None);
                }
            }
            Err(zk::Error::NoNode) => {}
            // A lost reply here costs the shortcut only.
            Err(error) if outcome(&error) == Outcome::Unknown => {}
            Err(error) => return Err(self.error(error.into())),
        }
        let waiting = self.join().await?;
        if waiting.contender.is_blocked() {
            return Ok(None);
        }
        waiting.turn().await.map(Some)
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
        let mut who = Who::here(self.client.session_id());
        who.command.clone_from(&self.command);
        who.message.clone_from(&self.message);
        if let Some(owner) = &self.owner {
            who.owner.clone_from(owner);
        }
        let entry = Entry {
            rule: Rule::EXCLUSIVE,
            kind: Kind::Lock,
            who,
            access: self.access.clone(),
            line_max: self.line_max,
        };
        let contender = Contender::enter(&self.client, self.dir()?, entry)
            .await
            .map_err(|failure| self.error(failure))?;
        Ok(Waiting {
            lock: self.clone(),
            contender,
        })
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
        let path = self.path.clone();
        let dir = match NodePath::parse(&path) {
            Ok(dir) => self.client.resolve(&dir),
            Err(source) => return Err(ClearError::BadPath { path, source }),
        };
        match crash_mark::clear(self.client.zk(), &dir).await {
            Ok(cleared) => Ok(cleared),
            Err(ClearFailure::Held(who)) => Err(ClearError::Held {
                path,
                who: who.map(Box::new),
            }),
            Err(ClearFailure::Zk(source)) => Err(ClearError::Failed { path, source }),
        }
    }

    fn dir(&self) -> Result<NodePath, AcquireError> {
        match NodePath::parse(&self.path) {
            Ok(path) => Ok(self.client.resolve(&path)),
            Err(source) => Err(AcquireError::BadPath {
                path: self.path.clone(),
                source,
            }),
        }
    }

    fn error(&self, failure: Failure) -> AcquireError {
        AcquireError::new(failure, &self.path)
    }
}

/// A place in the line of a [`Lock`]. Dropped, it is given up.
#[derive(Debug)]
#[must_use = "the place in the line is given up when this is dropped"]
pub struct Waiting {
    lock: Lock,
    contender: Contender,
}

impl Waiting {
    /// How the wait is going. It looks once a second, and costs the servers a list each time.
    pub fn progress(&self) -> Progress {
        Progress::of(&self.contender)
    }

    /// Waits for the turn and returns the guard.
    ///
    /// # Cancel safety
    ///
    /// As [`Lock::acquire`].
    ///
    /// # Errors
    ///
    /// As [`Lock::acquire`].
    pub async fn turn(self) -> Result<LockGuard, AcquireError> {
        let Self {
            lock,
            mut contender,
        } = self;
        let held = async {
            contender.turn().await?;
            contender.hold(&lock.path, lock.crash_mark).await
        };
        let hold = held.await.map_err(|failure| lock.error(failure))?;
        if matches!(hold.previous(), Previous::Crashed(_)) {
            lock.client.home().sleep(lock.lock_delay).await;
        }
        Ok(LockGuard { hold })
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

impl Deref for LockGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}
