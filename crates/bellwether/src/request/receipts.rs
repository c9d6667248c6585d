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

use std::sync::{Arc, Mutex, MutexGuard};

use bellwether_client as zk;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use crate::error::{ErrorKind, Failure};
use crate::node::{Access, NodePath, OperationId};
use crate::session::cleaner::{Cleanup, Leftover};
use crate::session::retry::Retry;
use crate::session::{Reserved, Session, lock};

/// The first part of the names of receipts; recipes ignore such children.
pub(crate) const RECEIPT: &str = "receipt-";

/// The bytes of a receipt in a request, besides its directory and its access list.
pub(crate) const RECEIPT_BYTES: usize = 200;

/// The number of receipts that are kept for later operations, and the size of their paths. Further receipts are deleted.
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
    /// True if a try to create it got no answer, and may arrive late.
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
        lock(&self.spares)
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

/// The outcome of an exactly-once write.
#[derive(Debug)]
pub(crate) enum Written {
    /// The answer of the server.
    Answered(Vec<zk::MultiResult>),
    /// The answer was lost, and the receipt shows that the write was made.
    ByReceipt,
}

/// The reason why an exactly-once write did not take effect, or may not have.
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

impl From<OnceError> for Failure {
    fn from(error: OnceError) -> Self {
        match error {
            OnceError::Refused(error) => zk::Error::from(error).into(),
            OnceError::SessionEnded => ErrorKind::SessionEnded.into(),
            OnceError::OutcomeUnknown(error) => ErrorKind::OutcomeUnknown(error).into(),
            OnceError::TooManyEphemerals { bytes } => ErrorKind::TooManyEphemerals { bytes }.into(),
        }
    }
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

    /// Does the same as [`operation`](Self::operation), for writes that delete another ephemeral node of this session, so that there is
    /// room for the receipt.
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

/// One exactly-once operation, and the receipt that it uses. Dropped before it returns, the writes may have been made or not; a try that
/// arrives behind the cleaner's fence has no effect.
#[derive(Debug)]
pub(crate) struct Operation<'a> {
    of: &'a Receipts,
    id: String,
    path: String,
    /// The version of the receipt before this operation; `None` if the operation creates it.
    version: Option<i32>,
    /// `None` only while it is dropped.
    reserved: Option<Reserved>,
    /// True if a try may have taken effect, or may still do so.
    in_doubt: bool,
    /// True if a try was sent and is not answered.
    is_under_way: bool,
    /// True if a try to create the receipt got no answer.
    was_in_doubt: bool,
    /// The zxid of the writes, if the answer has shown it: that of a create does not.
    zxid: Option<i64>,
    /// The number of the connection that sent the first try.
    connection: u64,
}

impl<'a> Operation<'a> {
    /// An operation that creates its receipt.
    fn first(of: &'a Receipts, path: String, reserved: Reserved) -> Self {
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
    fn again(of: &'a Receipts, spare: Spare) -> Self {
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
                    true => return self.read_receipt(error.into()).await,
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

    /// Returns whether it creates its receipt.
    pub(crate) fn is_first(&self) -> bool {
        self.version.is_none()
    }

    /// The zxid of the writes, which is that of the nodes they have created. `None` if the answer has not shown it.
    pub(crate) fn zxid(&self) -> Option<i64> {
        self.zxid
    }

    /// Returns whether a try may have taken effect, or may still do so.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt
    }

    fn add_receipt(&self, writer: &mut zk::Multi<'_>) {
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
    async fn read_receipt(&mut self, refusal: zk::Error) -> Result<Written, OnceError> {
        let zk = self.of.session.zk();
        let found = Retry::unlimited().answer(|| zk.get(&self.path)).await;
        self.judge(found, refusal)
    }

    /// Returns whether the receipt shows that an earlier try took effect.
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
    async fn withdraw(&mut self, refusal: zk::MultiError) -> Result<Written, OnceError> {
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

#[cfg(test)]
mod tests {
    use bellwether_testkit::TestServer;
    use futures_util::FutureExt as _;

    use super::*;

    use crate::session::liveness::pretended_ensemble::session;

    const NODE: &str = "/dir/node-";

    fn create(writer: &mut zk::Multi<'_>) {
        writer.create(NODE, b"", zk::CreateMode::PersistentSequential);
    }

    struct Scene {
        _server: TestServer,
        receipts: Receipts,
    }

    impl Scene {
        /// Starts an operation with a receipt that was used before, or without any.
        async fn new(is_used: bool) -> Self {
            let server = TestServer::start().await.unwrap();
            let session = session(server.connect_string()).await;
            let dir = NodePath::parse("/dir").unwrap();
            let container = zk::CreateMode::Persistent;
            session.zk().create("/dir", b"", container).await.unwrap();
            let receipts = Receipts::new(&session, dir, Access::default());
            if is_used {
                let mut operation = receipts.operation().unwrap();
                let written = operation.send(|writer| writer.check("/dir", None));
                written.await.unwrap();
            }
            Self {
                _server: server,
                receipts,
            }
        }

        /// A try that was sent and got no answer: it is on its way.
        fn sent<'a>(&'a self, operation: &mut Operation<'_>) -> zk::Multi<'a> {
            let mut late = self.receipts.session.zk().new_multi();
            operation.add_receipt(&mut late);
            create(&mut late);
            operation.in_doubt = true;
            // The connection was lost, and the session has another one.
            operation.connection = 0;
            late
        }

        async fn nodes(&self) -> usize {
            let names = self.receipts.session.zk().children("/dir").await.unwrap();
            let is_receipt = |name: &String| name.starts_with(RECEIPT);
            names.len() - names.iter().filter(|name| is_receipt(name)).count()
        }
    }

    fn is_refused(late: Result<Vec<zk::MultiResult>, zk::MultiError>) -> bool {
        matches!(late, Err(zk::MultiError::Refused { index: 0, .. }))
    }

    #[tokio::test]
    async fn try_that_arrives_after_a_later_one_has_no_effect() {
        for is_used in [false, true] {
            let scene = Scene::new(is_used).await;
            let mut operation = scene.receipts.operation().unwrap();
            let late = scene.sent(&mut operation);
            let written = operation.send(create).await;
            assert!(matches!(written, Ok(Written::Answered(_))), "{written:?}");
            assert!(is_refused(late.commit().await));
            assert_eq!(scene.nodes().await, 1);
        }
    }

    #[tokio::test]
    async fn try_that_arrives_when_the_receipt_is_no_longer_needed_has_no_effect() {
        for is_used in [false, true] {
            let scene = Scene::new(is_used).await;
            let mut operation = scene.receipts.operation().unwrap();
            let late = scene.sent(&mut operation);
            operation.send(create).await.unwrap();
            drop(operation);
            scene.receipts.sweep();
            scene.receipts.session.cleaner().swept().await;
            assert!(is_refused(late.commit().await));
            assert_eq!(scene.nodes().await, 1);
        }
    }

    #[tokio::test]
    async fn try_that_arrives_when_its_caller_has_given_up_has_no_effect() {
        for is_used in [false, true] {
            let scene = Scene::new(is_used).await;
            let mut operation = scene.receipts.operation().unwrap();
            let late = scene.sent(&mut operation);
            drop(operation);
            scene.receipts.session.cleaner().swept().await;
            assert!(is_refused(late.commit().await));
            assert_eq!(scene.nodes().await, 0);
        }
    }

    #[tokio::test]
    async fn try_to_create_a_receipt_has_no_effect_when_a_later_operation_is_given_up() {
        let scene = Scene::new(false).await;
        let mut operation = scene.receipts.operation().unwrap();
        let late = scene.sent(&mut operation);
        operation.send(create).await.unwrap();
        drop(operation);
        let mut next = scene.receipts.operation().unwrap();
        let next_late = scene.sent(&mut next);
        drop(next);
        scene.receipts.session.cleaner().swept().await;
        assert!(is_refused(late.commit().await));
        assert!(is_refused(next_late.commit().await));
        assert_eq!(scene.nodes().await, 1);
    }

    /// The later operation is dropped while its request is under way, and all its requests have one connection.
    #[tokio::test]
    async fn try_to_create_a_receipt_has_no_effect_when_a_later_call_is_dropped() {
        let scene = Scene::new(false).await;
        let mut operation = scene.receipts.operation().unwrap();
        let late = scene.sent(&mut operation);
        operation.send(create).await.unwrap();
        drop(operation);
        let mut next = scene.receipts.operation().unwrap();
        assert!(next.send(create).now_or_never().is_none());
        drop(next);
        let session = &scene.receipts.session;
        session.cleaner().swept().await;
        // What the cleaner does next would be ahead of this.
        session.zk().sync("/dir").await.unwrap();
        assert!(is_refused(late.commit().await));
        assert_eq!(scene.nodes().await, 2);
    }

    #[tokio::test]
    async fn withdrawal_whose_reply_was_lost_is_no_change_by_another_client() {
        for is_used in [false, true] {
            let scene = Scene::new(is_used).await;
            let mut operation = scene.receipts.operation().unwrap();
            let late = scene.sent(&mut operation);
            let zk = scene.receipts.session.zk();
            // What the withdrawal has written before its reply was lost.
            match is_used {
                true => drop(zk.set(&operation.path, b"", None).await.unwrap()),
                false => {
                    let mode = zk::CreateMode::Ephemeral;
                    zk.create(&operation.path, b"", mode).await.unwrap();
                }
            }
            let refusal = zk::MultiError::Refused {
                index: 1,
                code: zk::ErrorCode::NoNode,
            };
            let withdrawn = operation.withdraw(refusal).await;
            assert!(
                matches!(withdrawn, Err(OnceError::Refused(_))),
                "{withdrawn:?}"
            );
            assert!(is_refused(late.commit().await));
        }
    }

    #[tokio::test]
    async fn try_that_took_effect_is_found() {
        for is_used in [false, true] {
            let scene = Scene::new(is_used).await;
            let mut operation = scene.receipts.operation().unwrap();
            scene.sent(&mut operation).commit().await.unwrap();
            let written = operation.send(create).await;
            assert!(matches!(written, Ok(Written::ByReceipt)), "{written:?}");
            assert_eq!(scene.nodes().await, 1);
            drop(operation);
            // The receipt can be used again.
            let mut next = scene.receipts.operation().unwrap();
            next.send(create).await.unwrap();
            assert_eq!(scene.nodes().await, 2);
        }
    }

    #[tokio::test]
    async fn receipt_that_stays_for_late_tries_keeps_its_room() {
        for was_in_doubt in [false, true] {
            let scene = Scene::new(false).await;
            let mut operation = scene.receipts.operation().unwrap();
            let late = was_in_doubt.then(|| scene.sent(&mut operation));
            operation.send(create).await.unwrap();
            drop((operation, late));
            scene.receipts.sweep();
            let session = &scene.receipts.session;
            session.cleaner().swept().await;
            let names = session.zk().children("/dir").await.unwrap();
            let is_there = names.iter().any(|name| name.starts_with(RECEIPT));
            assert_eq!(is_there, was_in_doubt);
            assert_eq!(session.ephemeral_quota().bytes() > 0, was_in_doubt);
        }
    }

    #[tokio::test]
    async fn try_that_arrives_after_a_refusal_has_no_effect() {
        for is_used in [false, true] {
            let scene = Scene::new(is_used).await;
            let mut operation = scene.receipts.operation().unwrap();
            let late = scene.sent(&mut operation);
            let written = operation
                .send(|writer| writer.delete("/missing", None))
                .await;
            assert!(matches!(written, Err(OnceError::Refused(_))), "{written:?}");
            assert!(is_refused(late.commit().await));
            assert_eq!(scene.nodes().await, 0);
        }
    }

    #[tokio::test]
    async fn refusal_of_a_try_whose_predecessor_took_effect_is_its_success() {
        for is_used in [false, true] {
            let scene = Scene::new(is_used).await;
            let mut operation = scene.receipts.operation().unwrap();
            scene.sent(&mut operation).commit().await.unwrap();
            let written = operation
                .send(|writer| writer.delete("/missing", None))
                .await;
            assert!(matches!(written, Ok(Written::ByReceipt)), "{written:?}");
        }
    }

    #[tokio::test]
    async fn receipt_that_another_client_deleted_is_replaced_or_leaves_the_outcome_unknown() {
        for is_in_doubt in [false, true] {
            let scene = Scene::new(true).await;
            let mut operation = scene.receipts.operation().unwrap();
            let zk = scene.receipts.session.zk();
            zk.delete(&operation.path, None).await.unwrap();
            operation.in_doubt = is_in_doubt;
            let written = operation.send(create).await;
            match is_in_doubt {
                false => assert!(matches!(written, Ok(Written::Answered(_))), "{written:?}"),
                true => assert!(
                    matches!(written, Err(OnceError::OutcomeUnknown(zk::Error::NO_NODE))),
                    "{written:?}"
                ),
            }
        }
    }

    #[tokio::test]
    async fn call_that_is_dropped_while_it_waits_leaves_no_receipt() {
        for is_used in [false, true] {
            let scene = Scene::new(is_used).await;
            let session = &scene.receipts.session;
            let mut operation = scene.receipts.operation().unwrap();
            // Polled once: the request is sent, and not answered.
            assert!(operation.send(create).now_or_never().is_none());
            drop(operation);
            scene.receipts.sweep();
            session.cleaner().swept().await;
            let names = session.zk().children("/dir").await.unwrap();
            assert!(!names.iter().any(|name| name.starts_with(RECEIPT)));
            assert_eq!(session.ephemeral_quota().bytes(), 0);
        }
    }

    #[tokio::test]
    async fn refusal_after_which_the_directory_is_missing_too_can_be_mended() {
        let scene = Scene::new(false).await;
        let zk = scene.receipts.session.zk();
        let mut operation = scene.receipts.operation().unwrap();
        operation.in_doubt = true;
        zk.delete("/dir", None).await.unwrap();
        let refusal = zk::MultiError::Refused {
            index: 1,
            code: zk::ErrorCode::NoNode,
        };
        let withdrawn = operation.withdraw(refusal).await;
        let missing = zk::MultiError::Refused {
            index: 0,
            code: zk::ErrorCode::NoNode,
        };
        assert!(
            matches!(withdrawn, Err(OnceError::Refused(error)) if error == missing),
            "the caller makes the directory"
        );
        let persistent = zk::CreateMode::Persistent;
        zk.create("/dir", b"", persistent).await.unwrap();
        operation.send(create).await.unwrap();
        assert_eq!(scene.nodes().await, 1);
    }
}
