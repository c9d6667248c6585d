//! The barrier: a gate that somebody closes and opens for all.

use std::time::Duration;

use bellwether_client as zk;

use crate::access::Access;
use crate::catch_up::caught_up;
use crate::client::Client;
use crate::contender::{DATA_BYTES_MAX, Failure};
use crate::error::{BarrierError, Outcome, outcome};
use crate::node_event::{Happened, NodeEvent};
use crate::path::NodePath;
use crate::receipt::{OnceError, Receipts, Written};
use crate::sabotage::Sabotage;
use crate::who::Who;

/// The name of the node that stands while the barrier is set.
pub(crate) const BARRIER: &str = "barrier";

/// A barrier that holds everybody up while it is set, and lets all of them pass when it is lifted.
///
/// # What it guarantees
///
/// Whoever [waits](Self::wait) at a barrier that is set returns when that one was lifted, and not before, however
/// often the connection breaks. One who comes late, when there is none, passes at once. A barrier that was lifted and set anew
/// while a waiter was cut off has let that waiter pass: it waits for the barrier that it found. [`set`](Self::set) and
/// [`lift`](Self::lift) happen once, also when the reply is lost.
///
/// # What it does not
///
/// Nobody counts who waits, and nobody is told who has passed: that is [`DoubleBarrier`](crate::DoubleBarrier). The barrier
/// belongs to nobody: it outlives the session that set it, and anyone may lift it.
///
/// # Node layout
///
/// The path is a directory, a container unless it exists. The barrier is the persistent node `barrier` in it, with JSON
/// that tells [who](Who) set it. Beside it are receipts of sessions that set or lift, ephemeral.
///
/// # Fairness
///
/// All waiters are told at once, which is the purpose.
///
/// # Session loss
///
/// A waiter whose session ends gets [`BarrierError::SessionEnded`]; the barrier stays as it is.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Barrier, Client};
/// # async fn run(client: &Client) -> Result<(), Box<dyn std::error::Error>> {
/// let migration = Barrier::new(client, "/deploy/migration");
/// migration.set().await?;
/// // Elsewhere: `migration.wait().await?`.
/// migration.lift().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Barrier {
    client: Client,
    path: String,
    message: Option<String>,
    access: Access,
}

impl Barrier {
    /// A barrier at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            client: client.clone(),
            path: path.into(),
            message: None,
            access: Access::default(),
        }
    }

    /// A word for people who ask why the barrier is set.
    #[must_use]
    pub fn message(self, message: impl Into<String>) -> Self {
        Self {
            message: Some(message.into()),
            ..self
        }
    }

    /// Who may touch the nodes that are made here. Everybody unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            access: Access::new(acl),
            ..self
        }
    }

    /// Sets the barrier. Tells whether this call did: `false` if it was set already.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the barrier may have been set or not.
    ///
    /// # Errors
    ///
    /// See [`BarrierError`]. Only after [`BarrierError::OutcomeUnknown`] it may have been set.
    pub async fn set(&self) -> Result<bool, BarrierError> {
        let dir = self.dir()?;
        let mut who = Who::here(self.client.session_id());
        who.message.clone_from(&self.message);
        let data = who.to_data();
        if data.len() > DATA_BYTES_MAX {
            let (bytes, bytes_max) = (data.len(), DATA_BYTES_MAX);
            return Err(BarrierError::new(
                Failure::TooLarge { bytes, bytes_max },
                &self.path,
            ));
        }
        let options = zk::CreateMode::Persistent.with_acl(self.access.acl());
        loop {
            let set = self.once(&dir, |writer| {
                writer.create(&dir.child(BARRIER), &data, &options);
            });
            match set.await? {
                None => return Ok(true),
                Some(zk::Error::NODE_EXISTS) => return Ok(false),
                Some(zk::Error::NO_NODE) => {
                    let made = self.client.make_directory(&dir, &self.access).await;
                    // What was lost with the connection, or removed again, is made at the next try.
                    if let Err(error) = made
                        && outcome(&error) != Outcome::Unknown
                        && error != zk::Error::NO_NODE
                    {
                        return Err(self.error(error));
                    }
                }
                Some(error) => return Err(self.error(error)),
            }
        }
    }

    /// Lifts the barrier, and so lets everybody pass. Tells whether this call did: `false` if there was none.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the barrier may have been lifted or not.
    ///
    /// # Errors
    ///
    /// See [`BarrierError`]. Only after [`BarrierError::OutcomeUnknown`] it may have been lifted.
    pub async fn lift(&self) -> Result<bool, BarrierError> {
        let dir = self.dir()?;
        let lifted = self.once(&dir, |writer| writer.delete(&dir.child(BARRIER), None));
        match lifted.await? {
            None => Ok(true),
            Some(zk::Error::NO_NODE) => Ok(false),
            Some(error) => Err(self.error(error)),
        }
    }

    /// Waits until the barrier is lifted; returns at once if there is none.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left behind; a later call looks again.
    ///
    /// # Errors
    ///
    /// See [`BarrierError`].
    pub async fn wait(&self) -> Result<(), BarrierError> {
        let node = self.dir()?.child(BARRIER);
        let zk = self.client.zk();
        let mut states = zk.states();
        let mut found = None;
        loop {
            states.mark_unchanged();
            // A server that lags behind might not know yet of a barrier that is set.
            let looked = caught_up(zk, &node, || zk.get_watched(&node)).await;
            let (stat, watch) = match looked {
                Ok((_, stat, watch)) => (stat, watch),
                Err(zk::Error::NO_NODE) => return Ok(()),
                // The next request waits in the client until there is a connection again: this does not spin.
                Err(error) if outcome(&error) == Outcome::Unknown => continue,
                Err(error) => return Err(self.error(error)),
            };
            if *found.get_or_insert(stat.czxid) != stat.czxid {
                // Lifted and set anew, while nobody could tell us.
                return Ok(());
            }
            let woken = tokio::select! {
                biased;
                event = NodeEvent::of(watch) => Some(event),
                _ = states.changed() => None,
            };
            match woken {
                Some(Happened::Deleted) => return Ok(()),
                // Any other wake-up, and each change of the connection, proves nothing: look again.
                _ if self.client.is_sabotaged(Sabotage::PassOnAnyWake) => return Ok(()),
                _ => {}
            }
        }
    }

    /// As [`wait`](Self::wait), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`BarrierError::TimedOut`] when the limit has passed; else as [`wait`](Self::wait).
    pub async fn wait_timeout(&self, limit: Duration) -> Result<(), BarrierError> {
        match self.client.home().timeout(limit, self.wait()).await {
            Some(result) => result,
            None => Err(BarrierError::TimedOut {
                path: self.path.clone(),
                limit,
            }),
        }
    }

    /// Who set the barrier; `None` if there is none. As of a moment ago: it may be lifted by now.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// See [`BarrierError`].
    pub async fn set_by(&self) -> Result<Option<Who>, BarrierError> {
        let node = self.dir()?.child(BARRIER);
        let zk = self.client.zk();
        loop {
            let looked = caught_up(zk, &node, || zk.get(&node)).await;
            return match looked {
                Ok((data, _)) => Ok(Some(Who::from_data(&data).unwrap_or_default())),
                Err(zk::Error::NO_NODE) => Ok(None),
                Err(error) if outcome(&error) == Outcome::Unknown => continue,
                Err(error) => Err(self.error(error)),
            };
        }
    }

    /// Makes one write exactly once: a barrier that was lifted must not come back because the reply to its creation was
    /// lost. `Some` if the server refused.
    async fn once(
        &self,
        dir: &NodePath,
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<Option<zk::Error>, BarrierError> {
        let path = self.path.clone();
        let receipts = Receipts::new(&self.client, dir.clone(), self.access.clone());
        let written = receipts.once(fill).await;
        receipts.sweep();
        match written {
            Ok(Written::Answered(_) | Written::ByReceipt) => Ok(None),
            Err(OnceError::Refused(error)) => Ok(Some(error.into())),
            Err(OnceError::SessionEnded) => Err(BarrierError::SessionEnded { path }),
            Err(OnceError::OutcomeUnknown(source)) => {
                Err(BarrierError::OutcomeUnknown { path, source })
            }
            Err(OnceError::TooManyEphemerals { bytes }) => {
                Err(BarrierError::TooManyEphemerals { path, bytes })
            }
        }
    }

    fn dir(&self) -> Result<NodePath, BarrierError> {
        match NodePath::parse(&self.path) {
            Ok(path) => Ok(self.client.resolve(&path)),
            Err(source) => Err(BarrierError::BadPath {
                path: self.path.clone(),
                source,
            }),
        }
    }

    fn error(&self, error: zk::Error) -> BarrierError {
        BarrierError::new(error.into(), &self.path)
    }
}
