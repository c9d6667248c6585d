//! A node that outlives sessions, and the session by which it is reached now.

use std::sync::{Arc, Mutex, PoisonError};

use bellwether_client as zk;

use super::StateError;
use crate::access::Access;
use crate::client::Client;
use crate::error::{Outcome, outcome};
use crate::path::NodePath;
use crate::receipt::{OnceError, Receipts, Written};
use crate::request_size::{REQUEST_BYTES_MAX, WRITE_OVERHEAD_BYTES};

/// What the receipt takes that goes with a request, besides its directory and its access list.
const RECEIPT_BYTES: usize = 200;

/// Where a recipe keeps its state. Clones share the session and its receipts.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    path: String,
    access: Access,
    first: Client,
    last: Arc<Mutex<Option<Visit>>>,
}

/// A node, seen through one session.
#[derive(Clone, Debug)]
pub(crate) struct Visit {
    pub(crate) client: Client,
    pub(crate) node: NodePath,
    receipts: Receipts,
}

/// What a request is to carry to a node and its children.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) writes: usize,
    /// Their data, and the names of children.
    pub(crate) bytes: usize,
}

impl From<usize> for Load {
    /// So many bytes in one write.
    fn from(bytes: usize) -> Self {
        Self { writes: 1, bytes }
    }
}

/// Why writes were not made.
#[derive(Debug)]
pub(crate) enum NotWritten {
    /// The server refused one of them, and made none.
    Refused(zk::Error),
    Failed(StateError),
}

impl Site {
    pub(crate) fn new(client: &Client, path: String) -> Self {
        Self {
            path,
            access: Access::default(),
            first: client.clone(),
            last: Arc::default(),
        }
    }

    pub(crate) fn with_access(self, access: Access) -> Self {
        Self {
            access,
            last: Arc::default(),
            ..self
        }
    }

    /// A child, reached through the session that this is reached through.
    pub(crate) fn beneath(&self, name: &str) -> Self {
        let last = self.last().as_ref().map(|visit| visit.client.clone());
        let path = format!("{}/{name}", self.path);
        Self::new(last.as_ref().unwrap_or(&self.first), path).with_access(self.access.clone())
    }

    /// The path as it was given.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn access(&self) -> &Access {
        &self.access
    }

    /// The node through a session that has not ended, as far as is known: the last one, or the next.
    pub(crate) async fn visit(&self) -> Result<Visit, StateError> {
        let last = self.last().clone();
        let client = match last {
            Some(visit) if !visit.client.is_ended() => return Ok(visit),
            Some(visit) => visit.client,
            None => self.first.clone(),
        };
        let path = NodePath::parse(&self.path).map_err(|source| StateError::BadPath {
            path: self.path.clone(),
            source,
        })?;
        let is_successor = client.is_ended();
        let client = match client.successor().await {
            Ok(client) => client,
            Err(source) => {
                return Err(StateError::NoSession {
                    path: self.path.clone(),
                    source,
                });
            }
        };
        let node = client.resolve(&path);
        if is_successor {
            catch_up(&client, &node).await;
        }
        let receipts = Receipts::new(&client, node.directory(), self.access.clone());
        let visit = Visit {
            client,
            node,
            receipts,
        };
        *self.last() = Some(visit.clone());
        Ok(visit)
    }

    /// As [`visit`](Self::visit), but waits until a session can be opened.
    pub(crate) async fn visit_in_time(&self) -> Result<Visit, StateError> {
        loop {
            match self.visit().await {
                Err(StateError::NoSession { .. }) => {
                    let last = self.last().clone();
                    let client = last.map_or_else(|| self.first.clone(), |visit| visit.client);
                    client.successor_in_time().await;
                }
                visit => return visit,
            }
        }
    }

    /// Whether a request that is harmless twice may be sent again after this error: when its answer was lost, or its session
    /// has ended and another may follow.
    pub(crate) async fn again(&self, visit: &Visit, error: zk::Error) -> Result<(), StateError> {
        match outcome(&error) {
            Outcome::Unknown => Ok(()),
            Outcome::SessionEnded => {
                // The request may hear of it before everybody else.
                let limit = visit.client.session_timeout();
                let ended = visit.client.ended();
                visit.client.home().timeout(limit, ended).await;
                Ok(())
            }
            Outcome::Refused => Err(self.refused(error)),
        }
    }

    /// Makes writes exactly once, all or nothing, and the directory of the node if it is missing.
    ///
    /// Dropped before it returns, they may have been made or not.
    pub(crate) async fn once(
        &self,
        load: impl Into<Load>,
        fill: impl Fn(&mut zk::Multi<'_>, &NodePath),
    ) -> Result<Written, NotWritten> {
        let load = load.into();
        loop {
            let visit = self.visit().await.map_err(NotWritten::Failed)?;
            let bytes_max = self.bytes_max(&visit, load.writes);
            if load.bytes > bytes_max {
                return Err(NotWritten::Failed(StateError::TooLarge {
                    path: self.path.clone(),
                    bytes: load.bytes,
                    bytes_max,
                }));
            }
            let written = visit.receipts.once(|writer| fill(writer, &visit.node));
            match written.await {
                Ok(written) => return Ok(written),
                // Nothing was sent.
                Err(OnceError::SessionEnded) => {}
                Err(OnceError::OutcomeUnknown(source)) => {
                    return Err(NotWritten::Failed(StateError::OutcomeUnknown {
                        path: self.path.clone(),
                        source,
                    }));
                }
                Err(OnceError::TooManyEphemerals { bytes }) => {
                    return Err(NotWritten::Failed(StateError::TooManyEphemerals {
                        path: self.path.clone(),
                        bytes,
                    }));
                }
                Err(OnceError::Refused(error)) => match error {
                    // The receipt goes first, and what is missing is its directory.
                    zk::MultiError::Refused {
                        index: 0,
                        code: zk::ErrorCode::NoNode,
                    } => self.make_directory(&visit).await?,
                    zk::MultiError::Refused { index, code } if index > 0 => {
                        return Err(NotWritten::Refused(zk::Error::Refused(code)));
                    }
                    error => return Err(NotWritten::Failed(self.refused(error.into()))),
                },
            }
        }
    }

    /// How many bytes of data and names fit into one request with so many writes to the node and its children, and a receipt.
    pub(crate) fn bytes_max(&self, visit: &Visit, writes: usize) -> usize {
        let path_and_access = visit.node.as_str().len() + self.access.bytes();
        let each = path_and_access + WRITE_OVERHEAD_BYTES;
        let receipt = path_and_access + RECEIPT_BYTES;
        REQUEST_BYTES_MAX.saturating_sub(each.saturating_mul(writes) + receipt)
    }

    async fn make_directory(&self, visit: &Visit) -> Result<(), NotWritten> {
        // The root is always there.
        let Some(dir) = visit.node.parent() else {
            return Err(NotWritten::Failed(self.refused(zk::Error::NO_NODE)));
        };
        match visit.client.make_directory(&dir, &self.access).await {
            // The next try finds what is missing.
            Ok(()) | Err(zk::Error::NO_NODE) => Ok(()),
            Err(error) => {
                let again = self.again(visit, error).await;
                again.map_err(NotWritten::Failed)
            }
        }
    }

    pub(crate) fn refused(&self, source: zk::Error) -> StateError {
        StateError::Refused {
            path: self.path.clone(),
            source,
        }
    }

    pub(crate) fn unreadable(
        &self,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> StateError {
        StateError::Unreadable {
            path: self.path.clone(),
            source: source.into(),
        }
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Visit>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets the server of a new session learn what the last one may have told us. Within a session the servers see to that.
async fn catch_up(client: &Client, node: &NodePath) {
    while let Err(error) = client.zk().sync(node.as_str()).await
        && outcome(&error) == Outcome::Unknown
    {}
}

/// Sets the data of a node if it is at this version.
///
/// Versions are counted in 32 bits, and wrap. The one before zero means *any* in a request, so there the check follows the
/// write: only what was at −1 is at 0 then, and else nothing is done.
pub(crate) fn set_at(writer: &mut zk::Multi<'_>, path: &str, data: &[u8], version: i32) {
    writer.set(path, data, Some(version));
    if version == -1 {
        writer.check(path, Some(0));
    }
}
