//! The fair lock.

use std::time::Duration;

use crate::contender::{Contender, Failure, Lower, NodeEvent, contenders};
use crate::error::{AcquireError, Outcome, ReleaseError, outcome};
use crate::hold::Hold;
use crate::identity;
use crate::path::NodePath;
use crate::session::Client;

/// A lock that one contender holds at a time, in the order of arrival.
///
/// # What it guarantees
///
/// Among contenders that use this lock through the same servers, the server has one first in line at any moment, and
/// that one alone gets a guard. A guard's [token](LockGuard::token) is greater than that of every guard before it.
///
/// # What it does not
///
/// The lock is advisory. A holder that is paused or cut off for longer than its session timeout loses its place and may
/// not know yet: [`LockGuard::lost`] is a best effort from this end, and what must never be written by two holders
/// has to compare tokens. Tokens compare as long as the servers keep their data: a server that starts over empty
/// counts from the beginning. A crash of the holder is not told apart from a release. A task that acquires what it
/// already holds waits for itself.
///
/// # Node layout
///
/// The path is a directory, a container unless it exists; contenders are ephemeral sequential nodes in it, named
/// `lock-<session>-<acquisition>-<sequence>`, with JSON that tells who waits. Other children are ignored. Nodes that
/// are made here are open to everybody.
///
/// # Fairness
///
/// Strict: by the sequence number that the server gave. Each waiter watches the one before it, so a release wakes one.
///
/// # Session loss
///
/// A short outage changes nothing: places and holds belong to the session. When the session ends, waiters get
/// [`AcquireError::SessionEnded`] and [`LockGuard::lost`] resolves.
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
    message: Option<String>,
}

impl Lock {
    /// A lock at a path. Nothing is sent, nor is the path checked, until it is acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
            message: None,
        }
    }

    /// A word for people who look at the queue, kept in the node of each acquisition.
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
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
    /// Dropping the future leaves the queue. The node is deleted in the background, or with the session at the
    /// latest; a later call queues at the end.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`]; never [`AcquireError::TimedOut`].
    pub async fn acquire(&self) -> Result<LockGuard, AcquireError> {
        let dir = self.dir()?;
        let (mut contender, lower) = self.enter(&dir).await?;
        let armed = contender
            .turn(lower)
            .await
            .map_err(|failure| self.error(failure))?;
        Ok(self.guard(contender, armed))
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
        match tokio::time::timeout(limit, self.acquire()).await {
            Ok(result) => result,
            Err(_) => Err(AcquireError::TimedOut {
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
            Ok(names) if contenders(&names).next().is_some() => return Ok(None),
            Ok(_) | Err(zookeeper_client::Error::NoNode) => {}
            // A lost reply here costs the shortcut only.
            Err(error) if outcome(&error) == Outcome::Unknown => {}
            Err(error) => return Err(self.error(error.into())),
        }
        let (contender, lower) = self.enter(&dir).await?;
        Ok(lower.is_empty().then(|| self.guard(contender, None)))
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

    async fn enter(&self, dir: &NodePath) -> Result<(Contender, Lower), AcquireError> {
        let payload = identity::payload(self.message.as_deref());
        Contender::enter(&self.client, dir, &payload)
            .await
            .map_err(|failure| self.error(failure))
    }

    fn guard(&self, contender: Contender, armed: Option<NodeEvent>) -> LockGuard {
        let hold = Hold::start(&self.client, contender.path(), armed);
        LockGuard {
            path: self.path.clone(),
            contender,
            hold,
        }
    }

    fn error(&self, failure: Failure) -> AcquireError {
        let path = self.path.clone();
        match failure {
            Failure::Removed => AcquireError::Removed { path },
            Failure::SessionEnded => AcquireError::SessionEnded { path },
            Failure::SequenceUsedUp => AcquireError::SequenceUsedUp { path },
            Failure::Disconnected(source) => AcquireError::Disconnected { path, source },
            Failure::Refused(source) => AcquireError::Refused { path, source },
        }
    }
}

/// A hold on a [`Lock`].
///
/// Give it back with [`release`](Self::release), which reports. Dropped, it is given back in the background.
#[derive(Debug)]
#[must_use = "the lock is given back when the guard is dropped"]
pub struct LockGuard {
    path: String,
    hold: Hold,
    contender: Contender,
}

impl LockGuard {
    /// The fencing token: greater than that of every holder before. It is the zxid that created the node.
    #[must_use]
    pub fn token(&self) -> i64 {
        self.contender.token()
    }

    /// The path of the lock.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Resolves when the hold can no longer be relied on: another hand deleted the node, the session has ended, or the
    /// connection has been lost for so long that the session may end soon. Stop the work then.
    ///
    /// It cannot resolve while this process is paused, and it trusts the client's own view of the connection; see
    /// [the lock's limits](Lock#what-it-does-not).
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if the hold was lost meanwhile.
    pub async fn lost(&self) {
        self.hold.lost().await;
    }

    /// Whether [`lost`](Self::lost) would resolve at once.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

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
        let Self {
            path,
            hold,
            contender,
        } = self;
        let result = contender.leave(&path).await;
        // Kept until here: the deletion uses up its watch, which would else have to be removed.
        drop(hold);
        result
    }
}
