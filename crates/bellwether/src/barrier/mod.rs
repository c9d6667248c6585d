//! The barrier: a gate that one client closes and opens for all.

pub(crate) mod double;

pub use self::double::{BarrierGuard, Members};

use std::time::Duration;

use bellwether_client as zk;

use crate::error::{Error, Failure};
use crate::node::NodePath;
use crate::node::data::Who;
use crate::request::receipts::{OnceError, Receipts, Written};
use crate::session::Session;
use crate::session::client::Client;
use crate::session::recipe_options::{RecipeOptions, recipe_options};
use crate::session::retry::{
    Happened, NodeEvent, Retry, found, read_linearizable, read_synced, until_answered,
};
use crate::session::telemetry::call;

/// The name of the node that exists while the barrier is set.
pub(crate) const BARRIER: &str = "barrier";

/// A gate: callers of `wait` are blocked while it is set, and all pass when it is lifted. It does not count its waiters, unlike
/// [`tokio::sync::Barrier`](https://docs.rs/tokio/latest/tokio/sync/struct.Barrier.html): for that, use a
/// [`DoubleBarrier`](crate::DoubleBarrier).
///
/// # What it guarantees
///
/// [`wait`](Self::wait) returns when the barrier that it found has been lifted, and not before, even if the connection is lost in between.
/// If no barrier is set, it returns at once. A barrier that was lifted and set again while a waiter was disconnected lets that waiter pass.
/// [`set`](Self::set) and [`lift`](Self::lift) take effect exactly once, even if a reply is lost.
///
/// # What it does not
///
/// Waiters are not counted, and no client learns which of them have passed: see [`DoubleBarrier`](crate::DoubleBarrier). The barrier has no
/// owner: it outlives the session that set it, and any client may lift it.
///
/// # Node layout
///
/// The path is a directory, a container unless it exists. The barrier is the persistent node `barrier` in it, with the identity of the
/// client that set it ([`Who`]) as JSON. Beside it are receipts of sessions that set or lift, ephemeral.
///
/// # Fairness
///
/// All waiters wake at once, which is the purpose.
///
/// # Session loss
///
/// A waiter whose session ends gets [`ErrorKind::SessionEnded`](crate::ErrorKind::SessionEnded); the barrier stays as it is.
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
    options: RecipeOptions,
}

/// The behaviour if the directory of a barrier is missing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Leave,
}

impl Barrier {
    /// A barrier at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            options: RecipeOptions::new(client, path),
        }
    }

    recipe_options!(options);

    /// Sets the barrier. Returns whether this call set it: `false` if it was set already.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the barrier may have been set or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind): `BadPath`, `TooLarge`, `TooManyEphemerals`, `NoSession`, `SessionEnded`, `Disconnected`,
    /// `OutcomeUnknown`, `Refused`. Only after `OutcomeUnknown` it may have been set.
    pub async fn set(&self) -> Result<bool, Error> {
        call!("barrier.set", self.path())
            .ask(async {
                let (dir, session) = (self.options.node()?, self.options.session().await?);
                let data = self.options.who(&session).to_data();
                Failure::check_size(data.len())?;
                let options = zk::CreateMode::Persistent.with_acl(self.options.access.acl());
                let set = self.once(&session, &dir, Missing::Make, |writer| {
                    writer.create(&dir.child(BARRIER), &data, &options);
                });
                match set.await? {
                    None => Ok(true),
                    Some(zk::Error::NODE_EXISTS) => Ok(false),
                    Some(error) => Err(error.into()),
                }
            })
            .await
    }

    /// Lifts the barrier, so that all waiters pass. Returns whether this call lifted it: `false` if there was none.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the barrier may have been lifted or not.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind): `BadPath`, `TooManyEphemerals`, `NoSession`, `SessionEnded`, `Disconnected`, `OutcomeUnknown`,
    /// `Refused`. Only after `OutcomeUnknown` it may have been lifted.
    pub async fn lift(&self) -> Result<bool, Error> {
        call!("barrier.lift", self.path())
            .ask(async {
                let (dir, session) = (self.options.node()?, self.options.session().await?);
                let lifted = self.once(&session, &dir, Missing::Leave, |writer| {
                    writer.delete(&dir.child(BARRIER), None)
                });
                match lifted.await? {
                    None => Ok(true),
                    Some(zk::Error::NO_NODE) => Ok(false),
                    Some(error) => Err(error.into()),
                }
            })
            .await
    }

    /// Waits until the barrier is lifted; returns at once if there is none.
    ///
    /// # Cancel safety
    ///
    /// Nothing is left behind; a later call looks again.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind): `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn wait(&self) -> Result<(), Error> {
        self.wait_within(None).await
    }

    async fn wait_within(&self, limit: Option<Duration>) -> Result<(), Error> {
        call!("barrier.wait", self.path())
            .waits(&self.options.client, limit)
            .run(self.lifted())
            .await
    }

    async fn lifted(&self) -> Result<(), Failure> {
        let node = self.options.node()?.child(BARRIER);
        let session = self.options.session().await?;
        let zk = session.zk();
        let mut states = zk.states();
        let mut found = None;
        loop {
            states.mark_unchanged();
            // A lagging server might not show a barrier that is set.
            let look = || read_linearizable(zk, &node, || zk.get_watched(&node));
            let (stat, watch) = match until_answered(look).await {
                Ok((_, stat, watch)) => (stat, watch),
                Err(zk::Error::NO_NODE) => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            if *found.get_or_insert(stat.czxid) != stat.czxid {
                // Lifted and set again while this client was disconnected.
                return Ok(());
            }
            let woken = tokio::select! {
                biased;
                event = NodeEvent::of(watch) => Some(event),
                _ = states.changed() => None,
            };
            // Any other wake-up, and each change of the connection, proves nothing: read again.
            if woken == Some(Happened::Deleted) {
                return Ok(());
            }
        }
    }

    /// Does the same as [`wait`](Self::wait), but gives up after a time. The limit is for the whole call.
    ///
    /// # Cancel safety
    ///
    /// As [`wait`](Self::wait).
    ///
    /// # Errors
    ///
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) when the limit has passed; else as [`wait`](Self::wait).
    pub async fn wait_timeout(&self, limit: Duration) -> Result<(), Error> {
        self.wait_within(Some(limit)).await
    }

    /// The client that set the barrier; `None` if there is none. It may be lifted by the time this returns.
    ///
    /// # Cancel safety
    ///
    /// It only reads.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`](crate::ErrorKind): `BadPath`, `NoSession`, `SessionEnded`, `Disconnected`, `Refused`.
    pub async fn set_by(&self) -> Result<Option<Who>, Error> {
        call!("barrier.set_by", self.path())
            .find(async {
                let node = self.options.node()?.child(BARRIER);
                let session = self.options.session().await?;
                let zk = session.zk();
                let read = until_answered(|| read_synced(zk, &node, || zk.get(&node))).await;
                let set = found(read)?;
                Ok(set.map(|(data, _)| Who::from_data(&data).unwrap_or_default()))
            })
            .await
    }

    /// Makes one write exactly once: a barrier that was lifted must not come back because the reply to its creation was
    /// lost. `Some` if the server refused.
    async fn once(
        &self,
        session: &Session,
        dir: &NodePath,
        missing: Missing,
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<Option<zk::Error>, Failure> {
        let receipts = Receipts::new(session, dir.clone(), self.options.access.clone());
        let written = match receipts.operation() {
            Ok(mut operation) => {
                let mut retry = Retry::limited();
                loop {
                    match operation.send(&fill).await {
                        // An earlier try may still arrive, and find the directory that another client has made.
                        Err(OnceError::Refused(zk::MultiError::Refused {
                            index: 0,
                            code: zk::ErrorCode::NoNode,
                        })) if missing == Missing::Make || operation.is_in_doubt() => {
                            let made = session.make_directory(dir, &self.options.access).await;
                            match retry.again_after(made) {
                                Ok(()) => {}
                                Err(error) if operation.is_in_doubt() => {
                                    break Err(OnceError::OutcomeUnknown(error));
                                }
                                Err(error) => return Err(error.into()),
                            }
                        }
                        written => break written,
                    }
                }
            }
            Err(error) => Err(error),
        };
        receipts.sweep();
        match written {
            Ok(Written::Answered(_) | Written::ByReceipt) => Ok(None),
            Err(OnceError::Refused(error)) => Ok(Some(error.into())),
            Err(error) => Err(error.into()),
        }
    }
}
