//! Exactly-once writes.
//!
//! When the reply to a write is lost, the write may have taken effect, and a retry could apply it twice. So the write is sent in one multi
//! with a receipt: an ephemeral node of this session that stores the id of the operation. Every try creates the receipt, or writes it at
//! the version of its last use. So at most one try takes effect, whichever arrives first: the others are refused, and the receipt shows
//! why. The outcome stays unknown only if the session ends too, and the receipt with it.
//!
//! A look at the receipt before the next try would not be enough. A try may still be on its way through a slow member of an ensemble, and
//! take effect after the look. For the same reason a receipt whose create was in doubt stays for two session timeouts when it is no longer
//! needed: without it, a late try could create it again.

mod operation;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bellwether_client as zk;

use crate::node::access::Access;
use crate::node::operation_id::OperationId;
use crate::node::path::NodePath;
use crate::request::leftover::Leftover;
use crate::session::ephemeral_quota::Reserved;
use crate::session::open_session::Session;

pub(crate) use self::operation::Operation;

/// The first part of the names of receipts; recipes ignore such children.
pub(crate) const RECEIPT: &str = "receipt-";

/// The bytes of a receipt in a request, besides its directory and its access list.
pub(crate) const RECEIPT_BYTES: usize = 200;

/// How many receipts are kept for later operations, and how many bytes their paths may take. Further receipts are deleted.
const FREE_MAX: usize = 32;
const FREE_BYTES_MAX: usize = 64 << 10;

/// The path of a new receipt in a directory.
pub(crate) fn new_path(session: &Session, dir: &NodePath) -> String {
    let (session, id) = (session.session_id(), OperationId::new());
    dir.child(format_args!("{RECEIPT}{session:x}-{id}"))
}

/// The receipts of one recipe in its directory. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Receipts {
    session: Session,
    dir: NodePath,
    access: Access,
    /// Each operation under way has a receipt to itself.
    free: Arc<Free>,
}

/// A receipt that no operation is using.
#[derive(Debug)]
struct Spare {
    path: String,
    version: i32,
    reserved: Reserved,
    /// Whether a try to create it got no answer, and may arrive late.
    was_in_doubt: bool,
}

/// Receipts for later operations. They are deleted when this is dropped, since the session may live for long.
#[derive(Debug)]
struct Free {
    session: Session,
    spares: Mutex<Vec<Spare>>,
}

impl Free {
    fn spares(&self) -> MutexGuard<'_, Vec<Spare>> {
        self.spares.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a receipt for the next operation, unless there are enough.
    fn push(&self, spare: Spare) {
        let mut spares = self.spares();
        let bytes: usize = spares.iter().map(|spare| spare.path.len()).sum();
        let is_needed = spares.len() < FREE_MAX && bytes + spare.path.len() <= FREE_BYTES_MAX;
        match is_needed || spares.is_empty() {
            true => spares.push(spare),
            false => self.delete(spare.path, spare.reserved, spare.was_in_doubt),
        }
    }

    fn sweep(&self) {
        for spare in self.spares().drain(..) {
            self.delete(spare.path, spare.reserved, spare.was_in_doubt);
        }
    }

    /// Deletes a receipt that is no longer needed, but not before a late try to create it has arrived.
    fn delete(&self, path: String, reserved: Reserved, was_in_doubt: bool) {
        let leftover = Leftover::Node(path);
        match was_in_doubt {
            true => self.session.cleaner().remove_later(leftover, reserved),
            false => self.session.cleaner().remove(leftover),
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
                spares: Mutex::default(),
            }),
        }
    }

    /// An operation that has not been sent.
    pub(crate) fn operation(&self) -> Result<Operation<'_>, OnceError> {
        let spare = self.free.spares().pop();
        match spare {
            Some(spare) => Ok(Operation::again(self, spare)),
            None => {
                let (path, reserved) = self.reserve()?;
                Ok(Operation::first(self, path, reserved))
            }
        }
    }

    /// As [`operation`](Self::operation), for writes that delete another ephemeral node of this session, so that there is room for the
    /// receipt.
    pub(crate) fn operation_in_exchange(&self) -> Operation<'_> {
        let spare = self.free.spares().pop();
        match spare {
            Some(spare) => Operation::again(self, spare),
            None => {
                let path = new_path(&self.session, &self.dir);
                let reserved = self.session.ephemeral_quota().take(path.len());
                Operation::first(self, path, reserved)
            }
        }
    }

    /// The path of a new receipt, and room for it.
    fn reserve(&self) -> Result<(String, Reserved), OnceError> {
        let path = new_path(&self.session, &self.dir);
        let ephemerals = self.session.ephemeral_quota();
        match ephemerals.reserve(path.len()) {
            Some(reserved) => Ok((path, reserved)),
            None => Err(OnceError::TooManyEphemerals {
                bytes: ephemerals.bytes(),
            }),
        }
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// The bytes of a receipt in a request.
    pub(crate) fn bytes(&self) -> usize {
        self.dir.as_str().len() + self.access.bytes() + RECEIPT_BYTES
    }

    /// Makes the directory of the receipts. It is idempotent, but gets no answer from a connection that breaks.
    pub(crate) async fn make_directory(&self) -> Result<(), zk::Error> {
        let (dir, access) = (&self.dir, &self.access);
        self.session.make_directory(dir, access).await
    }

    /// Removes the receipts that no operation is using: for recipes that seldom write, and to make room.
    pub(crate) fn sweep(&self) {
        self.free.sweep();
    }
}

#[cfg(test)]
mod tests;
