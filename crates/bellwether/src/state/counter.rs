//! A shared counter.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::StreamExt;

use crate::error::{Error, ErrorKind, Failure};
use crate::node::Access;
use crate::request::receipts::Written;
use crate::request::{Follow, NotWritten, PersistentNode, Seen, Watch, set_at};
use crate::session::Moment;
use crate::session::client::Client;
use crate::session::lock;
use crate::session::telemetry::call;

/// The time for which a known value is used for additions without another read.
const TRUSTED_FOR: Duration = Duration::from_secs(3);

/// A number in a node, which many clients may add to. Clones share the last known value.
///
/// # What it guarantees
///
/// An acknowledged addition took effect exactly once, even if the connection was lost in between. The value is the sum of all additions.
///
/// # What it does not
///
/// When the session ends between a request and its answer, the outcome of the addition is unknown: [`ErrorKind::OutcomeUnknown`].
/// Concurrent additions conflict: each is conditional on the value that was read before, and is retried when another addition came between.
///
/// A node that is deleted and created again counts its versions from zero, and the servers cannot tell it from the earlier node. If other
/// clients reset a counter by deletion and bring it to the same version that this client saw in the last few seconds, their additions are
/// overwritten. Reset it by [`compare_and_set`](Self::compare_and_set) instead.
///
/// # Node layout
///
/// The path is a persistent node with the number in decimal digits; if it is missing, the value is 0. Beside it are ephemeral nodes
/// `receipt-…`, one for each concurrent addition of a client.
///
/// # Fairness
///
/// None: of two concurrent additions, the one whose request arrives first succeeds, and the other is retried. A client whose server lags
/// behind the leader reads old values, and its additions fail for as long as others add without a pause; neither a `sync` nor another
/// read helps, since both are as old as the lag when they arrive. Add up in the process and add less often, or use a
/// [lock](crate::Lock), if that matters.
///
/// # Session loss
///
/// The next call opens another session.
///
/// # Example
///
/// ```no_run
/// # use bellwether::{Client, Counter};
/// # use bellwether::Error;
/// # async fn run(client: &Client) -> Result<(), Error> {
/// let visitors = Counter::new(client, "/stats/visitors");
/// let now = visitors.add(1).await?;
/// # let _ = now;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Counter {
    node: PersistentNode,
    /// The value as it was last seen, so that consecutive additions need no read if no other client wrote in between.
    known: Arc<Mutex<Option<KnownValue>>>,
}

#[derive(Clone, Copy, Debug)]
struct KnownValue {
    value: i64,
    /// `None` if the node is missing.
    version: Option<i32>,
    /// The time when it was asked for or written.
    at: Moment,
}

impl KnownValue {
    /// Returns whether a node of this version is probably still the node that was seen: a node that was created again begins at version 0,
    /// and needs time to reach another version.
    fn is_trusted(&self) -> bool {
        self.version != Some(0) && Moment::now() - self.at < TRUSTED_FOR
    }
}

/// The outcome of an attempt to write.
enum WriteOutcome {
    Written,
    /// Another client has written since the value was read.
    Overtaken,
}

impl Counter {
    /// A counter at a path. Nothing is sent, nor is the path checked, until a verb is called.
    #[must_use]
    pub fn new(client: &Client, path: impl Into<String>) -> Self {
        Self {
            node: PersistentNode::new(client, path.into()),
            known: Arc::default(),
        }
    }

    /// Sets which clients may use the nodes. The list of the [client](crate::Connect::acl) unless set.
    #[must_use]
    pub fn acl(self, acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self {
            node: self.node.with_access(Access::new(acl)),
            ..self
        }
    }

    /// The value, as the server that this client is connected to knows it: one round trip.
    ///
    /// # Cancel safety
    ///
    /// Nothing is changed.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `Unreadable`, `NoSession`, `Refused`.
    pub async fn get(&self) -> Result<i64, Error> {
        call!("counter.get", self.path())
            .run(async { Ok(self.read().await?.value) })
            .await
    }

    /// Adds to the value exactly once, and returns the sum. One round trip if this handle has added in the last seconds and no other client
    /// has since, two if that was long ago, and two more for each conflict.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, it may have been made or not, once at most.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `OutOfRange`, `Unreadable`, `TooManyEphemerals`, `NoSession`, `OutcomeUnknown`,
    /// `Refused`. Only after `OutcomeUnknown` it may have been made.
    pub async fn add(&self, by: i64) -> Result<i64, Error> {
        call!("counter.add", self.path())
            .run(async {
                let sum_of = |from: KnownValue| from.value.checked_add(by);
                let mut known = self.trusted();
                loop {
                    let mut from = match known.take() {
                        Some(known) => known,
                        None => self.read().await?,
                    };
                    if sum_of(from).is_none() {
                        // What is known may be old, and the server may lag.
                        from = self.read_latest().await?;
                    }
                    let sum = sum_of(from).ok_or(ErrorKind::OutOfRange)?;
                    if let WriteOutcome::Written = self.write(from, sum).await? {
                        return Ok(sum);
                    }
                }
            })
            .await
    }

    /// Compare-and-set: sets the value exactly once if it equals `expected`, and returns whether it did. The answer *no* is not that of a server
    /// that lags: in an ensemble the value is then read behind a write of the quorum.
    ///
    /// # Cancel safety
    ///
    /// As [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub async fn compare_and_set(&self, expected: i64, value: i64) -> Result<bool, Error> {
        call!("counter.compare_and_set", self.path())
            .ask(async {
                let mut known = self.trusted();
                loop {
                    let from = match known.take() {
                        Some(known) if known.value == expected => known,
                        // What is known may be old, and the server may lag.
                        _ => self.read_latest().await?,
                    };
                    if from.value != expected {
                        return Ok(false);
                    }
                    if let WriteOutcome::Written = self.write(from, value).await? {
                        return Ok(true);
                    }
                }
            })
            .await
    }

    /// The path.
    #[must_use]
    pub fn path(&self) -> &str {
        self.node.path()
    }

    /// The value as it changes: the current one first. See [`Watch`]. A missing node is 0.
    pub fn watch(&self) -> Watch<i64> {
        let node = self.node.clone();
        let follow = Follow::new(self.node.clone());
        Watch::new(
            "counter.watch",
            self.path(),
            follow.freshness(),
            follow.stream().map(move |seen| match seen? {
                Seen::Value((data, _)) => parse(&node, &data).map(Seen::Value),
                Seen::Absent => Ok(Seen::Value(0)),
                Seen::Renewed => Ok(Seen::Renewed),
            }),
        )
    }

    async fn read(&self) -> Result<KnownValue, Failure> {
        self.learn(self.node.read()).await
    }

    /// Does the same as [`read`](Self::read), behind all writes that were acknowledged before.
    async fn read_latest(&self) -> Result<KnownValue, Failure> {
        self.learn(self.node.read_latest()).await
    }

    async fn learn(
        &self,
        read: impl Future<Output = Result<Option<(Bytes, zk::Stat)>, Failure>>,
    ) -> Result<KnownValue, Failure> {
        // Taken before the request is sent, so that the value is never taken for newer than it is.
        let at = Moment::now();
        let (value, version) = match read.await? {
            Some((data, stat)) => (parse(&self.node, &data)?, Some(stat.version)),
            None => (0, None),
        };
        let known = KnownValue { value, version, at };
        *self.known() = Some(known);
        Ok(known)
    }

    async fn write(&self, from: KnownValue, value: i64) -> Result<WriteOutcome, Failure> {
        let at = Moment::now();
        let data = value.to_string();
        let options = zk::CreateMode::Persistent.with_acl(self.node.access().acl());
        let written = self
            .node
            .once(data.len(), |writer, node| match from.version {
                Some(version) => set_at(writer, node.as_str(), data.as_bytes(), version),
                None => writer.create(node.as_str(), data.as_bytes(), &options),
            });
        match written.await {
            Ok(written) => {
                let version = match (written, from.version) {
                    (Written::Answered(_), Some(version)) => Some(Some(version.wrapping_add(1))),
                    (Written::Answered(_), None) => Some(Some(0)),
                    // Time has passed, and others may have written.
                    (Written::ByReceipt, _) => None,
                };
                *self.known() = version.map(|version| KnownValue { value, version, at });
                Ok(WriteOutcome::Written)
            }
            Err(NotWritten::Refused(
                zk::Error::BAD_VERSION | zk::Error::NODE_EXISTS | zk::Error::NO_NODE,
            )) => {
                *self.known() = None;
                Ok(WriteOutcome::Overtaken)
            }
            Err(error) => Err(self.node.not_written(error)),
        }
    }

    fn trusted(&self) -> Option<KnownValue> {
        match self.node.is_forked() {
            true => None,
            false => self.known().filter(KnownValue::is_trusted),
        }
    }

    fn known(&self) -> MutexGuard<'_, Option<KnownValue>> {
        lock(&self.known)
    }
}

/// Reads decimal digits; a node without data is 0, as tools that make empty nodes mean it.
fn parse(node: &PersistentNode, data: &[u8]) -> Result<i64, Failure> {
    if data.is_empty() {
        return Ok(0);
    }
    let digits = std::str::from_utf8(data).map_err(|error| node.unreadable(error))?;
    digits
        .trim()
        .parse()
        .map_err(|error| node.unreadable(error))
}
