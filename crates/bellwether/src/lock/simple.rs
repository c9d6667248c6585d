//! The plain lock of ZooKeeper's documentation: one node, which all waiters watch.

use std::sync::Arc;
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;

use crate::error::{Error, ErrorKind, Failure};
use crate::hold::crash_mark::Previous;
use crate::hold::ephemeral_node::{EphemeralNode, Naming, OwnWatch};
use crate::hold::{Hold, guard_of_a_hold};
use crate::node::{Access, ClaimData, NodePath, OperationId};
use crate::request::receipts;
use crate::session::Session;
use crate::session::cleaner::{Latecomer, Leftover};
use crate::session::client::Client;
use crate::session::liveness::KeepAlive;
use crate::session::recipe_options::{RecipeOptions, recipe_options};
use crate::session::retry::{Happened, NodeEvent, Retry, found, until_answered};
use crate::session::telemetry::{WaitTimer, call};

/// A lock that is one node: the client that creates it holds the lock, and all other contenders watch it.
///
/// Use [`Lock`](crate::Lock) unless you need this layout. It is here because it is the plain form in ZooKeeper's documents,
/// which other programs use, and because it shows what the fair lock avoids.
///
/// # What it guarantees
///
/// One holder at a time, with a [token](Hold::token) that rises from holder to holder and a [lost](Hold::lost) signal, as
/// every hold.
///
/// # What it does not
///
/// No order: any waiter may be next, and a waiter may starve. A release wakes all waiters, and each tries to create the node (the
/// thundering herd): with n waiters a hand-over costs n events, n creates and n new watches, where the fair lock has one event. For paused
/// processes, see the fair lock.
///
/// # Node layout
///
/// The path itself is an ephemeral node with JSON that tells who holds it. A node beside it, `receipt-…`, is created and deleted together with
/// it. Directories above it are made as containers.
///
/// # Fairness
///
/// None.
///
/// # Session loss
///
/// As for the fair lock.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, SimpleLock};
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let guard = SimpleLock::new(client, "/maintenance").acquire().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct SimpleLock {
    options: RecipeOptions,
}

impl SimpleLock {
    /// A lock at a path. Nothing is sent, nor is the path checked, until it is acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            options: RecipeOptions::new(client, path),
        }
    }

    recipe_options!(options);

    /// Waits until this call can create the node, and returns the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up; a node that was created meanwhile is deleted in the background, or with the session
    /// at the latest.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `SessionEnded`, `Disconnected`,
    /// `Removed`, `Refused`.
    pub async fn acquire(&self) -> Result<SimpleGuard, Error> {
        self.acquire_within(None).await
    }

    /// Does the same as [`acquire`](Self::acquire), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`] when the limit has passed; else as [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<SimpleGuard, Error> {
        self.acquire_within(Some(limit)).await
    }

    async fn acquire_within(&self, limit: Option<Duration>) -> Result<SimpleGuard, Error> {
        call!("simple_lock.acquire", self.path())
            .waits(&self.options.client, limit)
            .hold(async {
                let mut attempt = Acquisition::new(self).await?;
                loop {
                    match attempt.create().await? {
                        Tried::Held(guard) => return Ok(guard),
                        Tried::Taken(read) => attempt.wait(read).await?,
                    }
                }
            })
            .await
    }

    /// Acquires the lock if it is free; `None` otherwise.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<SimpleGuard>, Error> {
        call!("simple_lock.try_acquire", self.path())
            .try_hold(async {
                let mut attempt = Acquisition::new(self).await?;
                // Otherwise it might find the own node of an earlier call.
                attempt.session.cleaner().swept().await;
                match attempt.create().await? {
                    Tried::Held(guard) => Ok(Some(guard)),
                    Tried::Taken(_) => Ok(None),
                }
            })
            .await
    }
}

/// One acquisition under way.
struct Acquisition<'a> {
    lock: &'a SimpleLock,
    session: Session,
    node: NodePath,
    data: Vec<u8>,
    acquisition: String,
    /// Created and deleted together with the node. No other acquisition has this name, so that a request that arrives late is refused.
    receipt: String,
    /// The number of the connection that sent the first create whose outcome is unknown.
    sent_through: Option<u64>,
    wait: WaitTimer,
    _keep_alive: KeepAlive,
}

/// The result of a watched read of the node.
type WatchedRead = (Bytes, zk::Stat, zk::Watch);
type Read = Result<WatchedRead, zk::Error>;

/// The outcome of a try to create the node.
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
enum Tried {
    Held(SimpleGuard),
    /// Another client had it. The read was sent behind the create.
    Taken(Read),
}

impl<'a> Acquisition<'a> {
    async fn new(lock: &'a SimpleLock) -> Result<Self, Failure> {
        let (node, session) = (lock.options.node()?, lock.options.session().await?);
        let who = lock.options.who(&session);
        let acquisition = OperationId::new().to_string();
        let claim = ClaimData::new(who, &acquisition);
        let data = claim.to_data();
        Failure::check_size(data.len())?;
        Ok(Self {
            receipt: receipts::new_path(&session, &node.directory()),
            node,
            data,
            acquisition,
            sent_through: None,
            wait: WaitTimer::begin(),
            _keep_alive: KeepAlive::new(&session),
            session,
            lock,
        })
    }

    /// Tries to create the node.
    async fn create(&mut self) -> Result<Tried, Failure> {
        let session = self.session.clone();
        let ephemerals = session.ephemeral_quota();
        if !ephemerals.has_room(self.node.as_str().len() + self.receipt.len()) {
            return Err(ErrorKind::TooManyEphemerals {
                bytes: ephemerals.bytes(),
            }
            .into());
        }
        let mut retry = Retry::limited();
        loop {
            let in_doubt_since = self.sent_through;
            let connection = session.zk().connections();
            self.sent_through = in_doubt_since.or(Some(connection));
            let (created, read) = self.send().await;
            match created {
                Ok(_) => return self.created(read, in_doubt_since).await,
                // By a try whose reply was lost.
                Err(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NodeExists,
                }) => return self.created(read, in_doubt_since).await,
                Err(zk::MultiError::Refused {
                    index: 1,
                    code: zk::ErrorCode::NodeExists,
                }) => {
                    self.sent_through = in_doubt_since;
                    return Ok(Tried::Taken(read));
                }
                Err(zk::MultiError::Refused { code, .. }) => {
                    self.sent_through = in_doubt_since;
                    match (code, self.node.parent()) {
                        (zk::ErrorCode::NoNode, Some(parent)) => {
                            let made = session.make_directory(&parent, &Access::default()).await;
                            retry.again_after(made)?;
                        }
                        (code, _) => return Err(zk::Error::Refused(code).into()),
                    }
                }
                Err(zk::MultiError::Request(error)) => {
                    if error != zk::Error::Unknown {
                        self.sent_through = in_doubt_since;
                    }
                    retry.again(error)?;
                }
            }
        }
    }

    /// Sends the create, and behind it a read that shows whose node is there then: one round trip.
    async fn send(&self) -> (Result<Vec<zk::MultiResult>, zk::MultiError>, Read) {
        let access = &self.lock.options.access;
        let options = zk::CreateMode::Ephemeral.with_acl(access.acl());
        let (created, read) = self.session.zk().batch(|zk| {
            let mut multi = zk.new_multi();
            multi.create(&self.receipt, b"", &options);
            multi.create(self.node.as_str(), &self.data, &options);
            (multi.commit(), zk.get_watched(self.node.as_str()))
        });
        tokio::join!(created, read)
    }

    /// The guard for the node that this acquisition has created. The read was sent behind the create.
    async fn created(&mut self, read: Read, in_doubt_since: Option<u64>) -> Result<Tried, Failure> {
        let (czxid, watch) = match self.read_watched(read).await {
            Ok(Some((data, stat, watch))) if ClaimData::is_of(&data, &self.acquisition) => {
                (stat.czxid, Some(OwnWatch::of(&data, watch)))
            }
            // The access list does not let its creator read it. One multi has created both nodes, so they have one zxid.
            Err(zk::Error::NO_AUTH) => {
                let zk = self.session.zk();
                let receipt = until_answered(|| zk.exists(&self.receipt)).await?;
                (receipt.ok_or(ErrorKind::Removed)?.czxid, None)
            }
            Err(error) => return Err(error.into()),
            // Another client has deleted it already.
            Ok(_) => return Err(ErrorKind::Removed.into()),
        };
        let guard = self.guard(czxid, watch, in_doubt_since).await?;
        Ok(Tried::Held(guard))
    }

    /// Waits until the next create may succeed.
    async fn wait(&mut self, mut read: Read) -> Result<(), Failure> {
        self.wait.is_for_another = true;
        while let Some((data, _, watch)) = self.read_watched(read).await? {
            if ClaimData::is_of(&data, &self.acquisition) {
                // A create without a reply has made it since.
                return Ok(());
            }
            match NodeEvent::of(watch).await {
                Happened::Deleted => return Ok(()),
                Happened::SessionEnded => return Err(ErrorKind::SessionEnded.into()),
                _ => read = self.session.zk().get_watched(self.node.as_str()).await,
            }
        }
        Ok(())
    }

    /// Returns the result of a read, or one that is sent in its place if it got no answer; `None` if there is no node.
    async fn read_watched(&self, read: Read) -> Result<Option<WatchedRead>, zk::Error> {
        let zk = self.session.zk();
        let again = || zk.get_watched(self.node.as_str());
        found(match read {
            Err(error) if error.is_transient() => until_answered(again).await,
            answer => answer,
        })
    }

    /// The guard for the node that this acquisition created.
    async fn guard(
        &mut self,
        czxid: i64,
        own_watch: Option<OwnWatch>,
        in_doubt_since: Option<u64>,
    ) -> Result<SimpleGuard, Failure> {
        // The node may have been created long ago, and a hold that began now be over already.
        let session = &self.session;
        session.liveness().prove().await?;
        let naming = Naming::Receipted {
            receipt: self.receipt.clone(),
        };
        let path = self.node.as_str().to_owned();
        let mut node = EphemeralNode::new(session, path, czxid, naming);
        node.accompany(Arc::new(session.ephemeral_quota().take(self.receipt.len())));
        if let Some(connection) = in_doubt_since {
            let latecomer = Latecomer::new(session, self.leftover(), connection);
            node.accompany(Arc::new(latecomer));
        }
        self.sent_through = None;
        self.wait.granted();
        let path = &self.lock.options.path;
        Ok(SimpleGuard {
            hold: Hold::start(path, node, own_watch, None, Previous::Unknown, None),
        })
    }

    /// Returns the nodes that creates whose outcome is unknown may have made, or may still make.
    fn leftover(&self) -> Leftover {
        Leftover::Receipted {
            path: self.node.as_str().to_owned(),
            receipt: self.receipt.clone(),
        }
    }
}

impl Drop for Acquisition<'_> {
    fn drop(&mut self) {
        if let Some(connection) = self.sent_through {
            let cleaner = self.session.cleaner();
            cleaner.remove_late(self.leftover(), connection);
        }
    }
}

/// A hold on a [`SimpleLock`]; see [`Hold`] for what it promises.
#[derive(Debug)]
#[must_use = "the lock is released when the guard is dropped"]
pub struct SimpleGuard {
    hold: Hold,
}

guard_of_a_hold!(SimpleGuard, release);
