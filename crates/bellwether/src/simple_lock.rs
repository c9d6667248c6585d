//! The plain lock of the documents: one name, and everybody watches it.

use std::ops::Deref;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zookeeper_client as zk;

use crate::access::Access;
use crate::client::Client;
use crate::clock::Moment;
use crate::contender::{DATA_BYTES_MAX, Failure, TRIES_MAX};
use crate::crash_mark::Previous;
use crate::error::{AcquireError, Outcome, ReleaseError, outcome};
use crate::heart::{Answered, Pulse};
use crate::hold::Hold;
use crate::janitor::Litter;
use crate::name::AcquisitionId;
use crate::node_event::NodeEvent;
use crate::own_node::{Naming, OwnNode};
use crate::path::NodePath;
use crate::who::Who;

/// A lock that is one node: whoever creates it holds the lock, and everybody else watches it.
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
/// No order: of those who wait, anyone may be next, and one may wait for ever. A release wakes all of them, and each tries to
/// create the node (the herd effect): with n waiters a hand-over costs n events, n creates and n new watches, where the fair
/// lock has one event. What is said of the fair lock about paused processes holds here too.
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
    client: Client,
    path: String,
    message: Option<String>,
    access: Access,
}

/// The data of the node: who, and which acquisition.
#[derive(Serialize, Deserialize)]
pub(crate) struct Claim {
    #[serde(flatten)]
    who: Who,
    acquisition: String,
}

impl Claim {
    pub(crate) fn new(who: Who, acquisition: &str) -> Self {
        Self {
            who,
            acquisition: acquisition.to_owned(),
        }
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }
}

impl SimpleLock {
    /// A lock at a path. Nothing is sent, nor is the path checked, until it is acquired.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
            message: None,
            access: Access::default(),
        }
    }

    /// A word for people who look at the holder.
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..self
        }
    }

    /// Who may touch the node. Everybody unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            access: Access::new(acl),
            ..self
        }
    }

    /// Waits until this one gets to create the node, and returns the guard.
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
        let mut attempt = Attempt::new(self)?;
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
        match self.client.home().timeout(limit, self.acquire()).await {
            Some(result) => result,
            None => Err(AcquireError::TimedOut {
                path: self.path.clone(),
                limit,
            }),
        }
    }

    /// Takes the lock if nobody holds it; `None` if somebody does.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire).
    ///
    /// # Errors
    ///
    /// As [`acquire`](Self::acquire).
    pub async fn try_acquire(&self) -> Result<Option<SimpleGuard>, AcquireError> {
        let mut attempt = Attempt::new(self)?;
        // Else it might meet its own node of a moment ago.
        self.client.janitor().swept().await;
        attempt.create().await.map_err(|f| self.error(f))
    }

    fn error(&self, failure: Failure) -> AcquireError {
        AcquireError::new(failure, &self.path)
    }
}

/// One acquisition under way.
struct Attempt<'a> {
    lock: &'a SimpleLock,
    node: NodePath,
    data: Vec<u8>,
    acquisition: String,
    /// A create was sent whose reply has not come.
    in_doubt: bool,
    _pulse: Pulse,
}

impl<'a> Attempt<'a> {
    fn new(lock: &'a SimpleLock) -> Result<Self, AcquireError> {
        let node = match NodePath::parse(&lock.path) {
            Ok(path) => lock.client.resolve(&path),
            Err(source) => {
                return Err(AcquireError::BadPath {
                    path: lock.path.clone(),
                    source,
                });
            }
        };
        let mut who = lock.client.who();
        who.message.clone_from(&lock.message);
        let acquisition = AcquisitionId::new().to_string();
        let claim = Claim::new(who, &acquisition);
        let data = claim.to_data();
        if data.len() > DATA_BYTES_MAX {
            return Err(AcquireError::TooLarge {
                path: lock.path.clone(),
                bytes: data.len(),
                bytes_max: DATA_BYTES_MAX,
            });
        }
        Ok(Self {
            node,
            data,
            acquisition,
            in_doubt: false,
            _pulse: Pulse::new(&lock.client),
            lock,
        })
    }

    /// Tries to create the node; `None` if it is somebody else's.
    async fn create(&mut self) -> Result<Option<SimpleGuard>, Failure> {
        let client = &self.lock.client;
        let access = &self.lock.access;
        let options = zk::CreateMode::Ephemeral.with_acls(access.acls());
        let ephemerals = client.ephemerals();
        if !ephemerals.has_room(self.node.as_str().len()) {
            return Err(Failure::TooManyEphemerals {
                bytes: ephemerals.bytes(),
            });
        }
        let mut last = zk::Error::ConnectionLoss;
        for _ in 0..TRIES_MAX {
            let sent = Moment::now();
            let was_in_doubt = self.in_doubt;
            self.in_doubt = true;
            let created = client.zk().create(self.node.as_str(), &self.data, &options);
            match created.await {
                Ok((stat, _)) => {
                    client.heart().answered(sent, Answered::Write);
                    return self.guard(stat.czxid).await.map(Some);
                }
                Err(zk::Error::NodeExists) => {
                    self.in_doubt = was_in_doubt;
                    if !was_in_doubt {
                        return Ok(None);
                    }
                    // It may be ours, from the try whose reply was lost.
                    match client.zk().get_data(self.node.as_str()).await {
                        Ok((data, stat)) => {
                            self.in_doubt = is_claim(&data, &self.acquisition)
                                && stat.ephemeral_owner == client.session_id();
                            return match self.in_doubt {
                                true => self.guard(stat.czxid).await.map(Some),
                                false => Ok(None),
                            };
                        }
                        Err(zk::Error::NoNode) => self.in_doubt = false,
                        Err(error) if outcome(&error) == Outcome::Unknown => last = error,
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(zk::Error::NoNode) => {
                    self.in_doubt = was_in_doubt;
                    match self.node.parent() {
                        Some(parent) => {
                            match client.make_directory(&parent, &Access::default()).await {
                                // Empty containers are removed, so it may vanish again.
                                Ok(()) | Err(zk::Error::NoNode) => last = zk::Error::NoNode,
                                Err(error) if outcome(&error) == Outcome::Unknown => last = error,
                                Err(error) => return Err(error.into()),
                            }
                        }
                        None => return Err(zk::Error::NoNode.into()),
                    }
                }
                Err(error) if outcome(&error) == Outcome::Unknown => last = error,
                Err(error) => {
                    self.in_doubt = was_in_doubt;
                    return Err(error.into());
                }
            }
        }
        Err(last.into())
    }

    /// Waits until the node is gone.
    async fn wait(&mut self) -> Result<(), Failure> {
        let zk = self.lock.client.zk();
        loop {
            match zk.get_and_watch_data(self.node.as_str()).await {
                Ok((_, _, watch)) => match NodeEvent::of(watch).await {
                    zk::EventType::NodeDeleted => return Ok(()),
                    zk::EventType::Session => return Err(Failure::SessionEnded),
                    _ => {}
                },
                Err(zk::Error::NoNode) => return Ok(()),
                // The next request waits in the client until there is a connection again: this does not spin.
                Err(error) if outcome(&error) == Outcome::Unknown => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The guard of the node that is ours.
    async fn guard(&mut self, czxid: i64) -> Result<SimpleGuard, Failure> {
        // The node may have been created long ago, and a hold that began now be over already.
        let client = &self.lock.client;
        client.heart().prove(client.zk()).await?;
        self.in_doubt = false;
        let node = OwnNode::new(
            &self.lock.client,
            self.node.as_str().to_owned(),
            czxid,
            Naming::Shared,
        );
        Ok(SimpleGuard {
            hold: Hold::start(&self.lock.path, node, None, None, Previous::Unknown),
        })
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.in_doubt {
            self.lock.client.janitor().remove(Litter::Claim {
                path: self.node.as_str().to_owned(),
                acquisition: self.acquisition.clone(),
            });
        }
    }
}

/// Whether the data of a node is that of this acquisition.
pub(crate) fn is_claim(data: &[u8], acquisition: &str) -> bool {
    serde_json::from_slice::<Claim>(data).is_ok_and(|claim| claim.acquisition == acquisition)
}

/// Whether the data of a node is that of any acquisition.
pub(crate) fn is_any_claim(data: &[u8]) -> bool {
    serde_json::from_slice::<Claim>(data).is_ok()
}

/// A hold on a [`SimpleLock`]; what it promises is told at [`Hold`].
#[derive(Debug)]
#[must_use = "the lock is given back when the guard is dropped"]
pub struct SimpleGuard {
    hold: Hold,
}

impl SimpleGuard {
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
}

impl Deref for SimpleGuard {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        &self.hold
    }
}
