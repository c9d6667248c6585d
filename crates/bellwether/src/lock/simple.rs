//! The plain lock of ZooKeeper's documentation: one node, which all waiters watch.

use std::time::Duration;

use bellwether_client as zk;

use crate::error::AcquireError;
use crate::hold::Hold;
use crate::hold::crash_record::Previous;
use crate::hold::guard::guard_of_a_hold;
use crate::hold::own_node::{Naming, OwnNode};
use crate::line::failure::Failure;
use crate::node::access::Access;
use crate::node::acquisition::{AcquisitionId, Claim};
use crate::node::node_data::DATA_BYTES_MAX;
use crate::node::path::NodePath;
use crate::request::litter::Litter;
use crate::request::node_event::{Happened, NodeEvent};
use crate::request::retry::{Tries, found, until_answered};
use crate::session::call::call;
use crate::session::client::Client;
use crate::session::heart::Pulse;
use crate::session::meters::Wait;
use crate::session::open_session::Session;
use crate::session::place::{Place, place_options};

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
/// The path itself is an ephemeral node with JSON that tells who holds it. Directories above it are made as containers.
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
    place: Place,
}

impl SimpleLock {
    /// A lock at a path. Nothing is sent, nor is the path checked, until it is acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            place: Place::new(client, path),
        }
    }

    place_options!(place);

    /// Waits until this call can create the node, and returns the guard.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future gives up; a node that was created meanwhile is deleted in the background, or with the session
    /// at the latest.
    ///
    /// # Errors
    ///
    /// See [`AcquireError`].
    pub async fn acquire(&self) -> Result<SimpleGuard, AcquireError> {
        call!("simple_lock.acquire", self.path())
            .hold(self.acquire_untraced())
            .await
    }

    async fn acquire_untraced(&self) -> Result<SimpleGuard, AcquireError> {
        let mut attempt = Attempt::new(self).await?;
        loop {
            if let Some(guard) = attempt.create().await.map_err(|f| self.error(f))? {
                return Ok(guard);
            }
            attempt.wait().await.map_err(|f| self.error(f))?;
        }
    }

    /// As [`acquire`](Self::acquire), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// [`AcquireError::TimedOut`] when the limit has passed; else as [`acquire`](Self::acquire).
    pub async fn acquire_timeout(&self, limit: Duration) -> Result<SimpleGuard, AcquireError> {
        call!("simple_lock.acquire", self.path())
            .hold(async {
                let late = || AcquireError::TimedOut {
                    path: self.place.path.clone(),
                    limit,
                };
                let home = self.place.client.home();
                home.within(limit, self.acquire_untraced(), late).await
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
    pub async fn try_acquire(&self) -> Result<Option<SimpleGuard>, AcquireError> {
        call!("simple_lock.try_acquire", self.path())
            .try_hold(async {
                let mut attempt = Attempt::new(self).await?;
                // Otherwise it might find the own node of an earlier call.
                attempt.session.janitor().swept().await;
                attempt.create().await.map_err(|f| self.error(f))
            })
            .await
    }

    fn error(&self, failure: Failure) -> AcquireError {
        AcquireError::new(failure, &self.place.path)
    }
}

/// One acquisition under way.
struct Attempt<'a> {
    lock: &'a SimpleLock,
    session: Session,
    node: NodePath,
    data: Vec<u8>,
    acquisition: String,
    /// A create was sent whose reply has not come.
    in_doubt: bool,
    wait: Wait,
    _pulse: Pulse,
}

impl<'a> Attempt<'a> {
    async fn new(lock: &'a SimpleLock) -> Result<Self, AcquireError> {
        let (node, session) = (lock.place.node()?, lock.place.session().await?);
        let who = lock.place.who(&session);
        let acquisition = AcquisitionId::new().to_string();
        let claim = Claim::new(who, &acquisition);
        let data = claim.to_data();
        if data.len() > DATA_BYTES_MAX {
            return Err(AcquireError::TooLarge {
                path: lock.place.path.clone(),
                bytes: data.len(),
                bytes_max: DATA_BYTES_MAX,
            });
        }
        Ok(Self {
            node,
            data,
            acquisition,
            in_doubt: false,
            wait: Wait::begin(),
            _pulse: Pulse::new(&session),
            session,
            lock,
        })
    }

    /// Tries to create the node; `None` if another client has it.
    async fn create(&mut self) -> Result<Option<SimpleGuard>, Failure> {
        let session = &self.session;
        let access = &self.lock.place.access;
        let options = zk::CreateMode::Ephemeral.with_acl(access.acl());
        let ephemerals = session.ephemerals();
        if !ephemerals.has_room(self.node.as_str().len()) {
            return Err(Failure::TooManyEphemerals {
                bytes: ephemerals.bytes(),
            });
        }
        let mut tries = Tries::limited();
        loop {
            let was_in_doubt = self.in_doubt;
            self.in_doubt = true;
            let created = session
                .zk()
                .create(self.node.as_str(), &self.data, &options);
            let error = match created.await {
                Ok(created) => return self.guard(created.stat.czxid).await.map(Some),
                Err(error) => error,
            };
            self.in_doubt = was_in_doubt || error == zk::Error::Unknown;
            match (error, self.node.parent()) {
                (zk::Error::NODE_EXISTS, _) if !was_in_doubt => return Ok(None),
                // It may be ours, from the create whose reply was lost.
                (zk::Error::NODE_EXISTS, _) => {
                    if let Some((czxid, is_own)) = self.look().await? {
                        self.in_doubt = is_own;
                        return match is_own {
                            true => self.guard(czxid).await.map(Some),
                            false => Ok(None),
                        };
                    }
                    self.in_doubt = false;
                }
                (zk::Error::NO_NODE, Some(parent)) => {
                    let made = session.make_directory(&parent, &Access::default()).await;
                    tries.again_after(made)?;
                }
                (error, _) => tries.again(error)?,
            }
        }
    }

    /// The zxid of the node, and whether this acquisition created it; `None` if there is no node.
    async fn look(&self) -> Result<Option<(i64, bool)>, Failure> {
        let read = until_answered(|| self.session.zk().get(self.node.as_str())).await;
        Ok(found(read)?.map(|(data, stat)| {
            let is_own = Claim::is_of(&data, &self.acquisition)
                && stat.ephemeral_owner == self.session.session_id();
            (stat.czxid, is_own)
        }))
    }

    /// Waits until the node is gone.
    async fn wait(&mut self) -> Result<(), Failure> {
        self.wait.is_for_another = true;
        let read = || self.session.zk().get_watched(self.node.as_str());
        loop {
            match until_answered(read).await {
                Ok((_, _, watch)) => match NodeEvent::of(watch).await {
                    Happened::Deleted => return Ok(()),
                    Happened::SessionEnded => return Err(Failure::SessionEnded),
                    _ => {}
                },
                Err(zk::Error::NO_NODE) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The guard for the node that this acquisition created.
    async fn guard(&mut self, czxid: i64) -> Result<SimpleGuard, Failure> {
        // The node may have been created long ago, and a hold that began now be over already.
        let session = &self.session;
        session.heart().prove().await?;
        self.in_doubt = false;
        let node = OwnNode::new(
            &self.session,
            self.node.as_str().to_owned(),
            czxid,
            Naming::Shared,
        );
        self.wait.granted();
        Ok(SimpleGuard {
            hold: Hold::start(&self.lock.place.path, node, None, None, Previous::Unknown),
        })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.in_doubt {
            self.session.janitor().remove(Litter::Claim {
                path: self.node.as_str().to_owned(),
                acquisition: self.acquisition.clone(),
            });
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
