//! Exactly-once writes.
//!
//! When the reply to a write is lost, the write may have taken effect, and a retry could apply it twice. So the write is sent in one multi
//! with a receipt: an ephemeral node of this session that stores the id of the operation. After a lost reply the receipt shows whether the
//! write took effect. The outcome stays unknown only if the session ends too, and the receipt with it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether_client as zk;

use crate::node::access::Access;
use crate::node::acquisition::AcquisitionId;
use crate::node::path::NodePath;
use crate::request::litter::Litter;
use crate::request::retry::Tries;
use crate::request::synced_read::caught_up_in;
use crate::session::ephemerals::Room;
use crate::session::open_session::Session;
use crate::session::sabotage::Sabotage;

/// The first part of the names of receipts; recipes ignore such children.
pub(crate) const RECEIPT: &str = "receipt-";

/// How many receipts are kept for later operations, and how many bytes their paths may take. Further receipts are deleted.
const FREE_MAX: usize = 32;
const FREE_BYTES_MAX: usize = 64 << 10;

/// The receipts of one recipe in its directory. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Receipts {
    session: Session,
    dir: NodePath,
    access: Access,
    /// Receipts that no operation is using. Each operation under way has one to itself.
    free: Arc<Free>,
}

/// Receipts for later operations. They are deleted when this is dropped, since the session may live for long.
#[derive(Debug)]
struct Free {
    session: Session,
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
            false => self.session.janitor().remove(Litter::Node(path)),
        }
    }

    fn sweep(&self) {
        for (path, _) in self.paths().drain(..) {
            self.session.janitor().remove(Litter::Node(path));
        }
    }
}

impl Drop for Free {
    fn drop(&mut self) {
        self.sweep();
    }
}

/// How an exactly-once write ended.
#[derive(Debug)]
pub(crate) enum Written {
    /// With the answer of the server.
    Answered(Vec<zk::MultiResult>),
    /// The answer was lost, and the receipt shows that the write was made.
    ByReceipt,
}

/// Why an exactly-once write did not take effect, or may not have.
#[derive(Debug)]
pub(crate) enum OnceError {
    /// The server refused; nothing was written. The index counts the receipt as 0.
    Refused(zk::MultiError),
    /// The session ended before it was sent; nothing was written.
    SessionEnded,
    /// The session ended before the answer; it may have been written or not.
    OutcomeUnknown(zk::Error),
    /// There is no room for a receipt beside the other ephemeral nodes of the session; nothing was written.
    TooManyEphemerals { bytes: usize },
}

impl Receipts {
    pub(crate) fn new(session: &Session, dir: NodePath, access: Access) -> Self {
        Self {
            session: session.clone(),
            dir,
            access,
            free: Arc::new(Free {
                session: session.clone(),
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
        let zk = self.session.zk();
        let mut receipt = self.take()?;
        let mut tries = Tries::unlimited();
        let blindly = self.session.is_sabotaged(Sabotage::RetryBlindly);
        loop {
            if tries.in_doubt() && !blindly {
                let found = receipt.is_for(&operation).await;
                if found.map_err(OnceError::OutcomeUnknown)? {
                    receipt.give_back();
                    return Ok(Written::ByReceipt);
                }
                tries.settle();
            }
            if !tries.in_doubt() && self.session.is_ended() {
                return Err(OnceError::SessionEnded);
            }
            let mut writer = zk.new_multi();
            // The receipt comes first, so that its failure can be told from that of a write.
            match blindly {
                // A check that always succeeds, so that the indexes stay the same.
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
                    // Another client has deleted the receipt since it was last used.
                    zk::MultiError::Refused {
                        index: 0,
                        code: zk::ErrorCode::NoNode,
                    } if receipt.exists => receipt.exists = false,
                    zk::MultiError::Refused { .. } => {
                        receipt.give_back();
                        return Err(OnceError::Refused(error));
                    }
                    zk::MultiError::Request(source) => match tries.again(*source) {
                        Ok(()) => {}
                        Err(ended @ zk::Error::SessionEnded(_)) => {
                            return Err(OnceError::OutcomeUnknown(ended));
                        }
                        Err(_) => {
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
        let session = self.session.session_id();
        let id = AcquisitionId::new();
        let path = self.dir.child(format_args!("{RECEIPT}{session:x}-{id}"));
        match Room::reserve(&self.session, path.len()) {
            Some(room) => Ok((path, room)),
            None => Err(OnceError::TooManyEphemerals {
                bytes: self.session.ephemerals().bytes(),
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
    /// Whether it shows that an operation was made, whose reply was lost.
    async fn is_for(&mut self, operation: &str) -> Result<bool, zk::Error> {
        let (session, path) = (&self.of.session, &self.path);
        let read = || caught_up_in(session, path, || session.zk().get(path));
        match Tries::unlimited().answer(read).await {
            Ok((data, _)) => {
                self.exists = true;
                Ok(data == operation.as_bytes())
            }
            // A write that takes effect creates the receipt, so without a receipt there was no write. If the receipt existed before, its absence
            // proves nothing: another client has deleted it.
            Err(zk::Error::NO_NODE) if !self.exists => Ok(false),
            Err(error) => Err(error),
        }
    }

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
            self.of.session.janitor().remove(litter);
        }
    }
}
