//! Removes the nodes of holds and waits that ended.
//!
//! A delete that is sent once and forgotten may be lost in a reconnect while the session lives on, and every contender behind that node
//! would wait for ever. So one task per session deletes until the server says that the node is gone.
//!
//! The first request is sent on the thread that gives a node up, so that it is sent even if the process exits right after.
//!
//! A create that got no answer may still be on its way through a slow server, and arrive behind the deletion. So the cleaner looks for such
//! latecomers again. Neither ZooKeeper's documents nor Apache's code bound the delay. Two session timeouts are an assumption: a session
//! survives an outage that is shorter than its timeout, and TCP sends again at the latest after as long again.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};

use bellwether_client as zk;
use bellwether_client::log;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tracing::warn;

use crate::node::{ClaimData, NodePath};
use crate::session::retry::read_linearizable;
use crate::session::runtime::SessionRuntime;
use crate::session::{Reserved, Session, WeakSession};

/// After this many session timeouts, no write of an earlier connection arrives any more.
const LATE_TIMEOUTS: u32 = 2;

/// The number of looks for a node whose create may arrive late, within that time. The first pause is a sixteenth of the session timeout,
/// and each is twice the one before. So the node blocks others for about as long as it was late.
const LATE_LOOKS: u32 = 5;
const FIRST_PAUSE_PART: u32 = 16;

/// The way to the cleaner of a session. The task ends when this is dropped and the work is done.
#[derive(Debug)]
pub(crate) struct Cleaner {
    runtime: SessionRuntime,
    zk: zk::Client,
    removals: mpsc::UnboundedSender<Job>,
    /// The number of leftovers that were given to it.
    given: AtomicU64,
    /// The number of them that are done, in the order of the queue.
    done: watch::Receiver<u64>,
}

/// A removal under way, and what is to be done later. That is no longer needed when the session ends.
type Job = BoxFuture<'static, Option<BoxFuture<'static, ()>>>;

/// Something to remove. There is never more than this session has made, so the queue needs no limit of its own.
pub(crate) trait Cleanup: fmt::Debug + Send + Sync {
    /// Makes one try, which may be repeated: it checks what is still there.
    fn remove<'a>(&'a self, zk: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>>;
}

impl Cleaner {
    /// Starts the task. It keeps the session open until it has done its work.
    pub(crate) fn start(runtime: &SessionRuntime, zk: zk::Client) -> Self {
        let (sender, receiver) = mpsc::unbounded_channel();
        let (tell, done) = watch::channel(0);
        runtime.spawn_detached(work(receiver, tell));
        Self {
            runtime: runtime.clone(),
            zk,
            removals: sender,
            given: AtomicU64::new(0),
            done,
        }
    }

    pub(crate) fn remove(&self, removal: impl Cleanup + 'static) {
        let removed = perform(Arc::new(removal), self.zk.clone());
        self.begin(removed.map(|()| None).boxed());
    }

    /// Removes what a create has made or may still make that was sent through the connection of this number.
    pub(crate) fn remove_late(&self, removal: impl Cleanup + 'static, connection: u64) {
        let removal: Arc<dyn Cleanup> = Arc::new(removal);
        let (runtime, zk) = (self.runtime.clone(), self.zk.clone());
        let removed = async move {
            perform(removal.clone(), zk.clone()).await;
            // A server answers the requests of one connection in their order: the create was ahead of the removal.
            let is_late = zk.connections() != connection;
            is_late.then(|| remove_again(removal, runtime, zk).boxed())
        };
        self.begin(removed.boxed());
    }

    /// Removes a node when no late request can need it any more. Until then its path takes `reserved`.
    pub(crate) fn remove_later(&self, removal: impl Cleanup + 'static, reserved: Reserved) {
        let (runtime, zk) = (self.runtime.clone(), self.zk.clone());
        let later = async move {
            runtime.timer(zk.session_timeout() * LATE_TIMEOUTS).await;
            perform(Arc::new(removal), zk).await;
            drop(reserved);
        };
        self.begin(ready(Some(later.boxed())).boxed());
    }

    /// Writes `fence` repeatedly, as long as a request may still arrive that it makes the servers refuse; then removes the node that the
    /// fence or the request has made. `connection` is the number of the connection of that request; `None` if an earlier one has sent a
    /// request like that too.
    pub(crate) fn fence_off(
        &self,
        fence: impl Cleanup + 'static,
        connection: Option<u64>,
        made: impl Cleanup + 'static,
        reserved: Reserved,
    ) {
        let fence: Arc<dyn Cleanup> = Arc::new(fence);
        let made: Arc<dyn Cleanup> = Arc::new(made);
        let (runtime, zk) = (self.runtime.clone(), self.zk.clone());
        let fenced = async move {
            perform(fence.clone(), zk.clone()).await;
            // A server answers the requests of one connection in their order: the request was ahead of the fence.
            if connection == Some(zk.connections()) {
                perform(made, zk).await;
                drop(reserved);
                return None;
            }
            let later = async move {
                // The removal comes last: a fence that is written after it would stay.
                let again = remove_again(fence, runtime.clone(), zk.clone());
                tokio::join!(again, runtime.timer(zk.session_timeout() * LATE_TIMEOUTS));
                perform(made, zk).await;
                drop(reserved);
            };
            Some(later.boxed())
        };
        self.begin(fenced.boxed());
    }

    fn begin(&self, mut job: Job) {
        // Counted before it is queued, so that a later `swept` waits for it.
        self.given.fetch_add(1, Ordering::SeqCst);
        if let Poll::Ready(later) = job.poll_unpin(&mut Context::from_waker(Waker::noop())) {
            job = ready(later).boxed();
        }
        // The task is gone only with its runtime, and then the session is too.
        let _ = self.removals.send(job);
    }

    /// Waits until everything given to it before this call is deleted, but for what is looked for again or deleted later. Callers that count
    /// nodes do this first, because nodes that this session has given up must not count.
    pub(crate) async fn swept(&self) {
        let given = self.given.load(Ordering::SeqCst);
        // Gone with its runtime: there is no session left that a node could belong to.
        let _ = self.done.clone().wait_for(|&done| done >= given).await;
    }
}

/// The task of a cleaner. What it does later are timers and requests, which wake it in the order in which they end, so that simulated runs
/// repeat.
async fn work(mut jobs: mpsc::UnboundedReceiver<Job>, done: watch::Sender<u64>) {
    let mut later = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            job = jobs.recv() => match job {
                Some(job) => {
                    later.extend(job.await);
                    done.send_modify(|done| *done += 1);
                }
                // No recipe uses the session any more: it is closed, and its nodes are deleted with it.
                None => return,
            },
            Some(()) = later.next() => {}
        }
    }
}

/// Looks for a late node with growing pauses, and removes it.
async fn remove_again(removal: Arc<dyn Cleanup>, runtime: SessionRuntime, zk: zk::Client) {
    let mut pause = zk.session_timeout() / FIRST_PAUSE_PART;
    for _ in 0..LATE_LOOKS {
        runtime.timer(pause).await;
        perform(removal.clone(), zk.clone()).await;
        pause *= 2;
    }
}

/// Tries until it is gone. It does not spin: see `session/retry.rs`.
async fn perform(removal: Arc<dyn Cleanup>, zk: zk::Client) {
    loop {
        match removal.remove(&zk).await {
            Err(error) if error.is_transient() => {}
            Ok(()) | Err(zk::Error::SessionEnded(_)) => return,
            Err(error) => {
                return log::emit(move || {
                    warn!(?removal, %error, "node stays until the session ends");
                });
            }
        }
    }
}

/// A node to remove.
#[derive(Debug)]
pub(crate) enum Leftover {
    /// A node with a unique name.
    Node(String),
    /// The node at a path, if this session owns it.
    Own(String),
    /// The node at a path, if it is still the same.
    At(String, Is),
    /// The node of a member that has left, if the session owns it and has no member of that name now.
    Departed { path: String, session: WeakSession },
    /// The node at a path, if another node has this version, which it has only as long as ours exists.
    Pinned {
        path: String,
        pin: String,
        version: i32,
    },
    /// The claim at a path, if it is of this acquisition, which the item had this version for. The next claim changes the version, so that
    /// a late deletion does not hit it.
    Claim {
        path: String,
        acquisition: Is,
        item: String,
        version: i32,
    },
    /// The node at a path that was created together with a receipt, if it is still that node.
    Receipted { path: String, receipt: String },
    /// The nodes of an acquisition, whose creates may or may not have taken effect: only their names have this prefix. One of them may be
    /// in use.
    Acquisition {
        dir: NodePath,
        prefix: String,
        except: Option<String>,
    },
}

/// The property that tells a node from others that were at its path before or after it.
#[derive(Debug)]
pub(crate) enum Is {
    /// The zxid at which it was created.
    Created(i64),
    /// The id of an acquisition in its data.
    Of(String),
}

impl Cleanup for Leftover {
    fn remove<'a>(&'a self, zk: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>> {
        self.try_remove(zk).boxed()
    }
}

impl Leftover {
    async fn try_remove(&self, zk: &zk::Client) -> Result<(), zk::Error> {
        match self {
            Self::Node(path) => delete(zk, path).await,
            Self::Own(path) => delete_own(zk, path).await,
            Self::Departed { path, session } => match session.upgrade() {
                Some(session) if !session.member_names().contains(path) => {
                    delete_own(zk, path).await
                }
                _ => Ok(()),
            },
            Self::At(path, is) => match find(zk, path, is).await {
                Ok(()) => delete(zk, path).await,
                Err(zk::Error::NO_NODE) => Ok(()),
                Err(error) => Err(error),
            },
            Self::Pinned { path, pin, version } => delete_pinned(zk, path, pin, *version).await,
            Self::Claim {
                path,
                acquisition,
                item,
                version,
            } => match find(zk, path, acquisition).await {
                Ok(()) => delete_pinned(zk, path, item, *version).await,
                Err(zk::Error::NO_NODE) => Ok(()),
                Err(error) => Err(error),
            },
            Self::Receipted { path, receipt } => remove_receipted(zk, path, receipt).await,
            Self::Acquisition {
                dir,
                prefix,
                except,
            } => remove_acquisition(zk, dir, prefix, except.as_deref()).await,
        }
    }
}

/// Deletes a node, which may be gone already.
pub(crate) async fn delete(zk: &zk::Client, path: &str) -> Result<(), zk::Error> {
    gone_is_done(zk.delete(path, None).await)
}

fn gone_is_done(deleted: Result<(), zk::Error>) -> Result<(), zk::Error> {
    match deleted {
        Err(zk::Error::NO_NODE) => Ok(()),
        result => result,
    }
}

/// Deletes a node if this session owns it.
async fn delete_own(zk: &zk::Client, path: &str) -> Result<(), zk::Error> {
    match zk.exists(path).await? {
        Some(stat) if stat.ephemeral_owner == zk.session_id() => delete(zk, path).await,
        Some(_) | None => Ok(()),
    }
}

/// Deletes a node, if another node has this version.
pub(crate) async fn delete_pinned(
    zk: &zk::Client,
    path: &str,
    pin: &str,
    version: i32,
) -> Result<(), zk::Error> {
    let mut multi = zk.new_multi();
    multi.check(pin, Some(version));
    multi.delete(path, None);
    match multi.commit().await.map_err(zk::Error::from) {
        Ok(_) | Err(zk::Error::NO_NODE | zk::Error::BAD_VERSION) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Deletes a node and the receipt that was created together with it. A request that arrives late finds no receipt, and leaves the node of
/// the next client. `NoNode` if one of them is gone.
pub(crate) async fn delete_receipted(
    zk: &zk::Client,
    path: &str,
    receipt: &str,
) -> Result<(), zk::Error> {
    let mut multi = zk.new_multi();
    multi.delete(receipt, None);
    multi.delete(path, None);
    Ok(multi.commit().await.map(drop)?)
}

/// `NoNode` unless this very node is at the path. A lagging server would still show our node where the next holder's is.
pub(crate) async fn find(zk: &zk::Client, path: &str, is: &Is) -> Result<(), zk::Error> {
    let is_there = match is {
        Is::Created(czxid) => {
            let found = read_linearizable(zk, path, || zk.exists(path)).await?;
            found.is_some_and(|stat| stat.czxid == *czxid)
        }
        Is::Of(acquisition) => {
            let (data, _) = read_linearizable(zk, path, || zk.get(path)).await?;
            ClaimData::is_of(&data, acquisition)
        }
    };
    match is_there {
        true => Ok(()),
        false => Err(zk::Error::NO_NODE),
    }
}

/// Deletes a node and its receipt. One multi has created both, so their zxids tell whether the node is still the same.
async fn remove_receipted(zk: &zk::Client, path: &str, receipt: &str) -> Result<(), zk::Error> {
    let found = read_linearizable(zk, receipt, || zk.exists(receipt)).await?;
    let Some(created) = found else {
        return Ok(());
    };
    match find(zk, path, &Is::Created(created.czxid)).await {
        Ok(()) => gone_is_done(delete_receipted(zk, path, receipt).await),
        // Another client has deleted the node. The receipt alone is not deleted here: such a request, if it is late, could leave the node
        // of a late create without its receipt.
        result => gone_is_done(result),
    }
}

async fn remove_acquisition(
    zk: &zk::Client,
    dir: &NodePath,
    prefix: &str,
    except: Option<&str>,
) -> Result<(), zk::Error> {
    let list = || zk.children(dir.as_str());
    let children = match read_linearizable(zk, dir.as_str(), list).await {
        Err(zk::Error::NO_NODE) => return Ok(()),
        children => children?,
    };
    let is_wanted = |name: &&String| name.starts_with(prefix) && except != Some(name.as_str());
    for name in children.iter().filter(is_wanted) {
        delete_own(zk, &dir.child(name)).await?;
    }
    Ok(())
}

/// A node that a create without an answer may have made, or may still make: a slow server may forward the create after its retry. When
/// this is dropped, the cleaner deletes the node, which would otherwise stand for a client that has given up until the session ends.
#[derive(Debug)]
pub(crate) struct Latecomer {
    session: Session,
    leftover: Option<Leftover>,
    /// The number of the connection through which the create was sent.
    connection: u64,
}

impl Latecomer {
    pub(crate) fn new(session: &Session, leftover: Leftover, connection: u64) -> Self {
        Self {
            session: session.clone(),
            leftover: Some(leftover),
            connection,
        }
    }
}

impl Drop for Latecomer {
    fn drop(&mut self) {
        if let Some(leftover) = self.leftover.take() {
            self.session
                .cleaner()
                .remove_late(leftover, self.connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use bellwether_testkit::TestServer;

    use super::*;

    /// A node that can be removed when nobody else sends requests.
    #[derive(Debug)]
    struct Overloaded {
        tries_left: Arc<AtomicU32>,
        error: zk::Error,
    }

    impl Cleanup for Overloaded {
        fn remove<'a>(&'a self, _: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>> {
            let left = self.tries_left.fetch_sub(1, Ordering::SeqCst) - 1;
            ready(if left == 0 { Ok(()) } else { Err(self.error) }).boxed()
        }
    }

    #[tokio::test]
    async fn node_is_removed_when_an_overload_is_over() {
        let server = TestServer::start().await.unwrap();
        let zk = zk::Client::connect(server.connect_string()).await.unwrap();
        let cleaner = Cleaner::start(&SessionRuntime::of(&zk), zk);
        for error in [
            zk::Error::Refused(zk::ErrorCode::ThrottledOp),
            zk::Error::Invalid(zk::Invalid::TooManyRequests),
        ] {
            let tries_left = Arc::new(AtomicU32::new(3));
            cleaner.remove(Overloaded {
                tries_left: tries_left.clone(),
                error,
            });
            cleaner.swept().await;
            assert_eq!(tries_left.load(Ordering::SeqCst), 0, "{error}");
        }
    }
}
