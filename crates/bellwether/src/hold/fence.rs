//! Fencing: tokens that rise from holder to holder, a store outside ZooKeeper that refuses a lower one, and writes to ZooKeeper that take
//! effect only while a hold is held.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};

use bellwether_client as zk;
use serde::{Deserialize, Serialize};

use crate::error::{Error, ErrorKind, Failure};
use crate::hold::ephemeral_node::{EphemeralNode, Naming};
use crate::node::{Access, NodePath, PathError, REQUEST_BYTES_MAX, Version, WRITE_OVERHEAD_BYTES};
use crate::request::receipts::{OnceError, Receipts};
use crate::session::retry::Retry;
use crate::session::telemetry::call;

/// A fencing token: greater than the token of every earlier holder of the same recipe and path.
///
/// Tokens compare by age. To store one, use [`number`](Self::number); to read it back, `FencingToken::from`. In JSON it is that number.
/// [`Fence`] shows how a store uses tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(i64);

impl FencingToken {
    /// The number behind the token: the zxid that created the node of the hold.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }
}

impl From<i64> for FencingToken {
    /// The token with this number, as read back from a store.
    fn from(number: i64) -> Self {
        Self(number)
    }
}

impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The highest fencing token that a store has seen. It refuses writes with a lower token.
///
/// A holder that was paused past its session timeout does not know that it has lost its hold, and continues to write when it wakes. It
/// cannot be stopped on its own side; the store can refuse it, because the token of the next holder is greater. Keep the highest token *in
/// the store*, and compare and write in one step. In SQL:
///
/// ```sql
/// UPDATE report SET body = :body, token = :token WHERE name = :name AND token <= :token
/// ```
///
/// If no row changed, a later holder has written before. A `Fence` does the same for a store that is a process: put one in front of all
/// writes, and call it under the lock that protects the write.
///
/// ```
/// use bellwether::{Fence, FencingToken};
///
/// let fence = Fence::new();
/// let (early, late) = (FencingToken::from(7), FencingToken::from(9));
/// assert!(fence.admit(early).is_ok());
/// assert!(fence.admit(early).is_ok(), "a holder may write many times");
/// assert!(fence.admit(late).is_ok(), "the next holder");
/// assert!(fence.admit(early).is_err(), "the earlier holder wakes up too late");
/// ```
#[derive(Debug)]
pub struct Fence(AtomicI64);

/// A write carried the token of a hold that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is stale: a write with token {highest} came before")]
#[expect(missing_docs, reason = "each field is named in the message")]
pub struct StaleToken {
    pub token: FencingToken,
    pub highest: FencingToken,
}

impl Fence {
    /// A fence that has seen no token.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }

    /// A fence that has seen tokens up to `highest`, as read back from the store.
    #[must_use]
    pub fn at(highest: FencingToken) -> Self {
        Self(AtomicI64::new(highest.number()))
    }

    /// Admits a write by the holder with this token.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a later holder was admitted before. Do not write.
    pub fn admit(&self, token: FencingToken) -> Result<(), StaleToken> {
        let highest = self.0.fetch_max(token.number(), Ordering::AcqRel).into();
        if token < highest {
            return Err(StaleToken { token, highest });
        }
        Ok(())
    }

    /// The highest token admitted so far; `None` before the first.
    #[must_use]
    pub fn highest(&self) -> Option<FencingToken> {
        let highest = self.0.load(Ordering::Acquire);
        (highest != i64::MIN).then_some(highest.into())
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::new()
    }
}

/// Several writes in one transaction that succeeds only while the hold is held: the servers check the holder's node and make the changes in
/// one transaction, so a late holder cannot write. They are made exactly once, over any number of reconnects: a receipt, an ephemeral node beside
/// that of the hold, is written in the same transaction.
///
/// ```no_run
/// # async fn run(guard: &bellwether::LockGuard) -> Result<(), bellwether::Error> {
/// guard
///     .write()
///     .set("/jobs/state", "copied", None)
///     .delete("/jobs/todo", None)
///     .commit()
///     .await?;
/// # Ok(()) }
/// ```
#[must_use = "nothing is sent until it is committed"]
pub struct FencedWrite<'a> {
    node: &'a EphemeralNode,
    receipts: &'a Receipts,
    writes: Vec<Write>,
    /// The first mistake in an argument; `commit` returns it.
    mistake: Option<(String, PathError)>,
}

#[derive(Debug)]
enum Write {
    Create(NodePath, Vec<u8>),
    Set(String, Vec<u8>, Option<i32>),
    Delete(NodePath, Option<i32>),
}

impl Write {
    /// Returns the size in a request.
    fn bytes(&self, access: &Access) -> usize {
        let (path, data) = match self {
            Self::Create(path, data) => (path.as_str(), data.len() + access.bytes()),
            Self::Set(path, data, _) => (path.as_str(), data.len()),
            Self::Delete(path, _) => (path.as_str(), 0),
        };
        path.len() + data + WRITE_OVERHEAD_BYTES
    }
}

impl<'a> FencedWrite<'a> {
    pub(crate) fn new(node: &'a EphemeralNode, receipts: &'a Receipts) -> Self {
        Self {
            node,
            receipts,
            writes: Vec::new(),
            mistake: None,
        }
    }

    /// Creates a persistent node with the access list of the [client](crate::Connect::acl).
    pub fn create(mut self, path: impl Into<String>, data: impl Into<Vec<u8>>) -> Self {
        if let Some(path) = self.resolve(path.into()) {
            self.writes.push(Write::Create(path, data.into()));
        }
        self
    }

    /// Sets the data of a node, at a version if one is given.
    pub fn set(
        mut self,
        path: impl Into<String>,
        data: impl Into<Vec<u8>>,
        version: Option<Version>,
    ) -> Self {
        if let Some(path) = self.resolve(path.into()) {
            let version = version.map(Version::number);
            self.set_resolved(path.as_str(), &data.into(), version);
        }
        self
    }

    /// Deletes a node, at a version if one is given.
    pub fn delete(mut self, path: impl Into<String>, version: Option<Version>) -> Self {
        if let Some(path) = self.resolve(path.into()) {
            let version = version.map(Version::number);
            self.writes.push(Write::Delete(path, version));
        }
        self
    }

    /// Sends the transaction until there is an answer: every change was made once, or none.
    ///
    /// # Cancel safety
    ///
    /// Dropped before the answer, it may have taken effect or not; a request that arrives late has none.
    ///
    /// # Errors
    ///
    /// [`ErrorKind`]: `BadPath`, `TooLarge`, `Unsupported`, `TooManyEphemerals`, `NotHeld`, `LostWithSession`,
    /// `OutcomeUnknown`, `Refused`.
    pub async fn commit(self) -> Result<(), Error> {
        call!("hold.write", self.node.path()).run(self.send()).await
    }

    pub(crate) fn set_resolved(&mut self, path: &str, data: &[u8], version: Option<i32>) {
        let write = Write::Set(path.to_owned(), data.to_owned(), version);
        self.writes.push(write);
    }

    /// Without a receipt, a try whose reply was lost could arrive behind its retry, and behind later writes of the same holder.
    pub(crate) async fn send(&self) -> Result<(), Failure> {
        if let Some((path, mistake)) = &self.mistake {
            return Err(Failure::elsewhere(path, ErrorKind::BadPath(*mistake)));
        }
        let access = self.node.session().access();
        let bytes = self.writes.iter().map(|write| write.bytes(access)).sum();
        let bytes_max = REQUEST_BYTES_MAX.saturating_sub(self.receipts.bytes());
        if bytes > bytes_max {
            return Err(ErrorKind::TooLarge { bytes, bytes_max }.into());
        }
        // A check of the path would also succeed for the node of the next holder.
        if matches!(self.node.naming(), Naming::Receipted { .. }) {
            return Err(ErrorKind::Unsupported {
                reason: "a simple lock cannot guard writes",
            }
            .into());
        }
        let mut operation = self
            .receipts
            .operation()
            .map_err(|error| self.error(error))?;
        let mut retry = Retry::limited();
        loop {
            match operation.send(|writer| self.fill(writer)).await {
                Ok(_) => return Ok(()),
                // Receipts of a queue have a directory of their own. Beside the node of a hold there is one as long as the node is there.
                Err(OnceError::Refused(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                })) if self.checks() > 1 => {
                    let made = self.receipts.make_directory().await;
                    retry
                        .again_after(made)
                        .map_err(|error| self.error(OnceError::Refused(error.into())))?;
                }
                Err(error) => return Err(self.error(error)),
            }
        }
    }

    /// The number of checks: of the own node, and of what pins it.
    fn checks(&self) -> usize {
        1 + usize::from(matches!(self.node.naming(), Naming::Pinned { .. }))
    }

    fn error(&self, error: OnceError) -> Failure {
        // The receipt comes first, then the checks.
        let before = 1 + self.checks();
        let kind = match error {
            OnceError::SessionEnded | OnceError::OutcomeUnknown(zk::Error::SessionEnded(_)) => {
                ErrorKind::LostWithSession
            }
            OnceError::OutcomeUnknown(source) => ErrorKind::OutcomeUnknown(source),
            OnceError::TooManyEphemerals { bytes } => ErrorKind::TooManyEphemerals { bytes },
            OnceError::Refused(zk::MultiError::Refused {
                index,
                code: zk::ErrorCode::NoNode | zk::ErrorCode::BadVersion,
            }) if index < before => ErrorKind::NotHeld,
            OnceError::Refused(zk::MultiError::Refused { index, code }) => ErrorKind::Refused {
                index: Some(index.saturating_sub(before)),
                source: zk::Error::Refused(code),
            },
            OnceError::Refused(zk::MultiError::Request(source)) => ErrorKind::refused(source),
        };
        kind.into()
    }

    fn fill(&self, writer: &mut zk::Multi<'_>) {
        let session = self.node.session();
        let options = zk::CreateMode::Persistent.with_acl(session.access().acl());
        // Any version: a request to the holder to release changes the node too.
        writer.check(self.node.path(), None);
        if let Naming::Pinned { path, version } = self.node.naming() {
            writer.check(path, Some(*version));
        }
        for write in &self.writes {
            match write {
                Write::Create(path, data) => writer.create(path.as_str(), data, &options),
                Write::Set(path, data, version) => writer.set(path, data, *version),
                Write::Delete(path, version) => writer.delete(path.as_str(), *version),
            };
        }
    }

    fn resolve(&mut self, path: String) -> Option<NodePath> {
        match NodePath::parse(&path) {
            Ok(path) => Some(self.node.session().resolve(&path)),
            Err(source) => {
                self.mistake.get_or_insert((path, source));
                None
            }
        }
    }
}

impl std::fmt::Debug for FencedWrite<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FencedWrite")
            .field("node", &self.node.path())
            .field("writes", &self.writes.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_survives_text_and_json() {
        let (early, late) = (FencingToken::from(7), FencingToken::from(i64::MAX));
        assert!(early < late);
        for token in [early, late] {
            assert_eq!(token.to_string().parse(), Ok(token));
            let json = serde_json::to_string(&token).unwrap();
            assert_eq!(json, token.number().to_string());
            assert_eq!(serde_json::from_str::<FencingToken>(&json).unwrap(), token);
        }
    }
}
