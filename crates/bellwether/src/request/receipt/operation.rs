//! One exactly-once operation, from its first try to its outcome.

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::{OnceError, Receipts, Spare, Written};
use crate::node::operation_id::OperationId;
use crate::request::leftover::Leftover;
use crate::request::retry::Retry;
use crate::session::cleaner::Cleanup;
use crate::session::ephemeral_quota::Reserved;

/// One exactly-once operation, and the receipt that it uses. Dropped before it returns, the writes may have been made or not; a try that
/// arrives behind the cleaner's fence has no effect.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    of: &'a Receipts,
    id: String,
    pub(super) path: String,
    /// The version of the receipt before this operation; `None` if the operation creates it.
    version: Option<i32>,
    /// `None` only while it is dropped.
    reserved: Option<Reserved>,
    /// Whether a try may have taken effect, or may still do so.
    pub(super) in_doubt: bool,
    /// Whether a try was sent and is not answered.
    is_under_way: bool,
    /// Whether a try to create the receipt got no answer.
    was_in_doubt: bool,
    /// The zxid of the writes, if the answer has shown it: that of a create does not.
    zxid: Option<i64>,
    /// The number of the connection that sent the first try.
    pub(super) connection: u64,
}

impl<'a> Operation<'a> {
    /// An operation that creates its receipt.
    pub(super) fn first(of: &'a Receipts, path: String, reserved: Reserved) -> Self {
        Self {
            of,
            id: OperationId::new().to_string(),
            path,
            version: None,
            reserved: Some(reserved),
            in_doubt: false,
            is_under_way: false,
            was_in_doubt: false,
            zxid: None,
            connection: of.session.zk().connections(),
        }
    }

    /// An operation with a receipt that an earlier one has used.
    pub(super) fn again(of: &'a Receipts, spare: Spare) -> Self {
        let mut operation = Self::first(of, spare.path, spare.reserved);
        operation.version = Some(spare.version);
        operation.was_in_doubt = spare.was_in_doubt;
        operation
    }

    /// Makes the writes that `fill` adds. After a refusal it may be sent again: all tries together take effect at most once.
    pub(crate) async fn send(
        &mut self,
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<Written, OnceError> {
        let session = &self.of.session;
        let mut retry = Retry::unlimited();
        loop {
            if !self.in_doubt && session.is_ended() {
                return Err(OnceError::SessionEnded);
            }
            let mut writer = session.zk().new_multi();
            // The receipt comes first, so that its failure can be told from that of a write.
            self.add_receipt(&mut writer);
            fill(&mut writer);
            self.is_under_way = true;
            let committed = writer.commit().await;
            self.is_under_way = false;
            let error = match committed {
                Ok(mut results) => {
                    match results.remove(0) {
                        zk::MultiResult::Created { .. } => self.written(0),
                        zk::MultiResult::Set(stat) => {
                            self.written(stat.version);
                            self.zxid = Some(stat.mzxid);
                        }
                        // Never: a receipt is created or set.
                        zk::MultiResult::Deleted | zk::MultiResult::Checked => {
                            self.in_doubt = false;
                        }
                    }
                    return Ok(Written::Answered(results));
                }
                Err(error) => error,
            };
            match error {
                zk::MultiError::Request(source) => {
                    self.in_doubt |= source == zk::Error::Unknown;
                    match retry.again(source) {
                        Ok(()) => {}
                        Err(ended @ zk::Error::SessionEnded(_)) => {
                            return Err(OnceError::OutcomeUnknown(ended));
                        }
                        Err(_) => return self.withdraw(error).await,
                    }
                }
                // The directory is missing, so no try can take effect before it is made.
                zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                } if self.version.is_none() => return Err(OnceError::Refused(error)),
                zk::MultiError::Refused {
                    index: 0,
                    code:
                        zk::ErrorCode::NoNode | zk::ErrorCode::BadVersion | zk::ErrorCode::NodeExists,
                } => match self.in_doubt {
                    true => return self.look(error.into()).await,
                    // Another client has changed or deleted the receipt.
                    false => self.renew()?,
                },
                zk::MultiError::Refused { .. } => return self.withdraw(error).await,
            }
        }
    }

    /// The path of its receipt.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Whether it creates its receipt.
    pub(crate) fn is_first(&self) -> bool {
        self.version.is_none()
    }

    /// The zxid of the writes, which is that of the nodes they have created. `None` if the answer has not shown it.
    pub(crate) fn zxid(&self) -> Option<i64> {
        self.zxid
    }

    /// Whether a try may have taken effect, or may still do so.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    pub(super) fn add_receipt(&self, writer: &mut zk::Multi<'_>) {
        let data = self.id.as_bytes();
        match self.version {
            Some(version) => {
                writer.set(&self.path, data, Some(version));
            }
            None => writer.create(&self.path, data, self.options()),
        }
    }

    fn options(&self) -> zk::CreateOptions {
        zk::CreateMode::Ephemeral.with_acl(self.of.access.acl())
    }

    /// No other try can take effect at this version of the receipt.
    fn written(&mut self, version: i32) {
        self.was_in_doubt |= self.in_doubt && self.version.is_none();
        self.version = Some(version);
        self.in_doubt = false;
    }

    /// Finds out whether an earlier try has changed the receipt, so that this one was refused. The read is as new as the refusal.
    async fn look(&mut self, refusal: zk::Error) -> Result<Written, OnceError> {
        let zk = self.of.session.zk();
        let found = Retry::unlimited().answer(|| zk.get(&self.path)).await;
        self.judge(found, refusal)
    }

    /// Whether the receipt shows that an earlier try took effect.
    fn judge(
        &mut self,
        found: Result<(Bytes, zk::Stat), zk::Error>,
        refusal: zk::Error,
    ) -> Result<Written, OnceError> {
        match found {
            Ok((data, stat)) if data == self.id.as_bytes() => {
                self.written(stat.version);
                Ok(Written::ByReceipt)
            }
            // Another client has changed or deleted it, so it proves nothing.
            Ok(_) => Err(OnceError::OutcomeUnknown(refusal)),
            Err(error) => Err(OnceError::OutcomeUnknown(error)),
        }
    }

    /// Ends an operation that was refused. An earlier try may still be on its way: the receipt is changed, so that it is refused too.
    pub(super) async fn withdraw(&mut self, refusal: zk::MultiError) -> Result<Written, OnceError> {
        if !self.in_doubt {
            return Err(OnceError::Refused(refusal));
        }
        let zk = self.of.session.zk();
        let change = async || match self.version {
            Some(version) => Ok(zk.set(&self.path, b"", Some(version)).await?.version),
            None => zk.create(&self.path, b"", self.options()).await.map(|_| 0),
        };
        match Retry::unlimited().answer(change).await {
            Ok(version) => {
                self.written(version);
                Err(OnceError::Refused(refusal))
            }
            Err(error @ (zk::Error::BAD_VERSION | zk::Error::NODE_EXISTS)) => {
                let found = Retry::unlimited().answer(|| zk.get(&self.path)).await;
                match found {
                    // The reply to an earlier try of this very change was lost.
                    Ok((data, stat)) if data.is_empty() => {
                        self.written(stat.version);
                        Err(OnceError::Refused(refusal))
                    }
                    found => self.judge(found, error),
                }
            }
            // The directory is missing too, which the caller can make. No try can take effect before that.
            Err(zk::Error::NO_NODE) if self.version.is_none() => {
                Err(OnceError::Refused(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                }))
            }
            Err(error) => Err(OnceError::OutcomeUnknown(error)),
        }
    }

    /// Uses another receipt.
    fn renew(&mut self) -> Result<(), OnceError> {
        let (path, reserved) = self.of.reserve()?;
        let old = std::mem::replace(&mut self.path, path);
        if let Some(reserved) = self.reserved.replace(reserved) {
            self.of.free.delete(old, reserved, self.was_in_doubt);
        }
        self.version = None;
        self.was_in_doubt = false;
        Ok(())
    }
}

impl Drop for Operation<'_> {
    fn drop(&mut self) {
        let Some(reserved) = self.reserved.take() else {
            return;
        };
        let path = std::mem::take(&mut self.path);
        let cleaner = self.of.session.cleaner();
        match (self.version, self.in_doubt || self.is_under_way) {
            (Some(version), false) => self.of.free.push(Spare {
                path,
                version,
                reserved,
                was_in_doubt: self.was_in_doubt,
            }),
            // Nothing was sent, or it was refused.
            (None, false) => {}
            // Without the receipt, a try that is on its way is refused.
            (Some(_), true) if !self.was_in_doubt => cleaner.remove(Leftover::Node(path)),
            // With another version of the receipt, it is refused too.
            (version, true) => {
                let withdrawn = Withdrawn {
                    path: path.clone(),
                    version,
                    options: self.options(),
                };
                // A late try of an earlier operation could create the receipt again.
                let connection = (!self.was_in_doubt).then_some(self.connection);
                // Again and again: a directory that is missing now may be there when the try arrives.
                cleaner.fence_off(withdrawn, connection, Leftover::Node(path), reserved);
            }
        }
    }
}

/// An operation that its caller has given up: its receipt is created or changed, so that a late try is refused.
#[derive(Debug)]
struct Withdrawn {
    path: String,
    /// The version of the receipt before the operation; `None` if there is none.
    version: Option<i32>,
    options: zk::CreateOptions,
}

impl Withdrawn {
    async fn write(&self, zk: &zk::Client) -> Result<(), zk::Error> {
        match self.version {
            Some(version) => zk.set(&self.path, b"", Some(version)).await.map(drop),
            None => zk.create(&self.path, b"", &self.options).await.map(drop),
        }
    }
}

impl Cleanup for Withdrawn {
    fn remove<'a>(&'a self, zk: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>> {
        let written = self.write(zk).map(|written| match written {
            // A try has taken effect, or none can as long as the directory or the receipt is missing.
            Err(zk::Error::NODE_EXISTS | zk::Error::BAD_VERSION | zk::Error::NO_NODE) => Ok(()),
            written => written,
        });
        written.boxed()
    }
}
