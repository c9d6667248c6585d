//! Writes that must not happen twice.
//!
//! When the reply to a write is lost, the write may have been made or not, and to send it again may make it twice. So the
//! write goes in one multi with a receipt: an ephemeral node of this session that takes the id of the operation. After a
//! lost reply the receipt tells. Only when the session is gone too, and the receipt with it, nobody knows.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether_client as zk;

use crate::access::Access;
use crate::catch_up::caught_up;
use crate::client::Client;
use crate::ephemerals::Room;
use crate::error::{Outcome, outcome};
use crate::janitor::Litter;
use crate::name::AcquisitionId;
use crate::path::NodePath;
use crate::sabotage::Sabotage;

/// The first part of the names of receipts; recipes ignore such children.
pub(crate) const RECEIPT: &str = "receipt-";

/// How many receipts wait for the next operations, and what their paths take; one may be longer. The others are removed.
const FREE_MAX: usize = 32;
const FREE_BYTES_MAX: usize = 64 << 10;

/// The receipts of one recipe in its directory. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Receipts {
    client: Client,
    dir: NodePath,
    access: Access,
    /// Receipts that no operation is using. Each operation under way has one to itself.
    free: Arc<Free>,
}

/// Receipts for the next operations. Dropped, they are removed: the session may go on for long.
#[derive(Debug)]
struct Free {
    client: Client,
    paths: Mutex<Vec<(String, Room)>>,
}

impl Free {
    fn paths(&self) -> MutexGuard<'_, Vec<(String, Room)>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a receipt for the next operation, unless there are enough.
    fn push(&self, path: String, room: Room) {
        let mut paths = self.paths();
        let bytes: usize = paths.iter().map(|(path, _)| path.len()).sum();
        let is_needed = paths.len() < FREE_MAX && bytes + path.len() <= FREE_BYTES_MAX;
        match is_needed || paths.is_empty() {
            true => paths.push((path, room)),
            false => self.client.janitor().remove(Litter::Node(path)),
        }
    }

    fn sweep(&self) {
        for (path, _) in self.paths().drain(..) {
            self.client.janitor().remove(Litter::Node(path));
        }
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        self.sweep();
    }
}

/// How a write ended that was made once.
#[derive(Debug)]
pub(crate) enum Written {
    /// With the answer of the server.
    Answered(Vec<zk::MultiResult>),
    /// The answer was lost, and the receipt shows that it was made.
    ByReceipt,
}

/// Why a write that is to happen once did not, or may not have.
#[derive(Debug)]
pub(crate) enum OnceError {
    /// The server refused; nothing was written. The index counts the receipt as 0.
    Refused(zk::MultiError),
    /// The session ended before it was sent; nothing was written.
    SessionEnded,
    /// The session ended before the answer; it may have been written or not.
    OutcomeUnknown(zk::Error),
    /// A receipt does not fit beside the other ephemeral nodes of the session; nothing was written.
    TooManyEphemerals { bytes: usize },
}

impl Receipts {
    pub(crate) fn new(client: &Client, dir: NodePath, access: Access) -> Self {
        Self {
            client: client.clone(),
            dir,
            access,
            free: Arc::new(Free {
                client: client.clone(),
                paths: Mutex::default(),
            }),
        }
    }

    /// Makes the writes that `fill` adds, all or nothing, exactly once. The directory has to be there.
    ///
    /// Dropped before it returns, they may have been made or not.
    pub(crate) async fn once(
        &self,
        fill: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<Written, OnceError> {
        let operation = AcquisitionId::new().to_string();
        let zk = self.client.zk();
        let mut receipt = self.take()?;
        let mut in_doubt = false;
        let blindly = self.client.is_sabotaged(Sabotage::RetryBlindly);
        loop {
            if in_doubt && !blindly {
                match caught_up(zk, &receipt.path, || zk.get(&receipt.path)).await {
                    Ok((data, _)) if data == operation.as_bytes() => {
                        receipt.exists = true;
                        receipt.give_back();
                        return Ok(Written::ByReceipt);
                    }
                    Ok(_) => receipt.exists = true,
                    // It would be there if it had been written now. One that was there before is nobody's to delete.
                    Err(error @ zk::Error::NO_NODE) if receipt.exists => {
                        return Err(OnceError::OutcomeUnknown(error));
                    }
                    Err(zk::Error::NO_NODE) => {}
                    Err(error) if outcome(&error) == Outcome::Unknown => continue,
                    Err(error) => return Err(OnceError::OutcomeUnknown(error)),
                }
            }
            if !in_doubt && self.client.is_ended() {
                return Err(OnceError::SessionEnded);
            }
            let mut writer = zk.new_multi();
            // The receipt goes first, so that a failure of it can be told from one of the writes.
            match blindly {
                // Something that passes, so that indexes stay what they are.
                true => writer.check("/", None),
                false => receipt.add(&mut writer, &operation),
            }
            fill(&mut writer);
            match writer.commit().await {
                Ok(mut results) => {
                    results.remove(0);
                    receipt.exists |= !blindly;
                    receipt.give_back();
                    return Ok(Written::Answered(results));
                }
                Err(error) => match &error {
                    // Another hand has deleted the receipt since it was last used.
                    zk::MultiError::Refused {
                        index: 0,
                        code: zk::ErrorCode::NoNode,
                    } if receipt.exists => receipt.exists = false,
                    zk::MultiError::Refused { .. } => {
                        receipt.give_back();
                        return Err(OnceError::Refused(error));
                    }
                    zk::MultiError::Request(source) => match outcome(source) {
                        Outcome::Unknown => in_doubt = true,
                        Outcome::SessionEnded => {
                            return Err(OnceError::OutcomeUnknown(*source));
                        }
                        Outcome::Refused => {
                            receipt.give_back();
                            return Err(OnceError::Refused(error));
                        }
                    },
                },
            }
        }
    }

    /// Removes the receipts that no operation is using: for recipes that seldom write.
    pub(crate) fn sweep(&self) {
        self.free.sweep();
    }

    fn take(&self) -> Result<Receipt<'_>, OnceError> {
        let free = self.free.paths().pop();
        let exists = free.is_some();
        let (path, room) = match free {
            Some(free) => free,
            None => self.make()?,
        };
        Ok(Receipt {
            exists,
            path,
            room: Some(room),
            of: self,
        })
    }

    /// A receipt that the first operation will create.
    fn make(&self) -> Result<(String, Room), OnceError> {
        let session = self.client.session_id();
        let id = AcquisitionId::new();
        let path = self.dir.child(format_args!("{RECEIPT}{session:x}-{id}"));
        match Room::reserve(&self.client, path.len()) {
            Some(room) => Ok((path, room)),
            None => Err(OnceError::TooManyEphemerals {
                bytes: self.client.ephemerals().bytes(),
            }),
        }
    }
}

/// A receipt in use. Dropped with its operation in doubt, the node is removed.
struct Receipt<'a> {
    of: &'a Receipts,
    path: String,
    exists: bool,
    /// `None` once it has been given back.
    room: Option<Room>,
}

impl Receipt<'_> {
    fn add(&self, writer: &mut zk::Multi<'_>, operation: &str) {
        let data = operation.as_bytes();
        let options = zk::CreateMode::Ephemeral.with_acl(self.of.access.acl());
        match self.exists {
            true => writer.set(&self.path, data, None),
            false => writer.create(&self.path, data, options),
        };
    }

    /// For the next operation.
    fn give_back(mut self) {
        let room = self.room.take();
        if let Some(room) = room.filter(|_| self.exists) {
            self.of.free.push(self.path.clone(), room);
        }
    }
}

impl Drop for Receipt<'_> {
    fn drop(&mut self) {
        if self.room.is_some() {
            let litter = Litter::Node(self.path.clone());
            self.of.client.janitor().remove(litter);
        }
    }
}
