//! This project's lock written by hand: the same requests on a blocking socket, without a library.
//!
//! It shows the best that a client library could reach. It is not a library: a lost connection is an error, and no heartbeat is sent.
//! The requests are those of the table *The line* in `docs/recipes.md`.

use std::collections::HashSet;

use anyhow::{Context, Result, anyhow, bail, ensure};
use bellwether_wire::acl::Acl;
use bellwether_wire::code::ErrorCode;
use bellwether_wire::event::{self, EVENT_XID, EventKind};
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::reply::ReplyHeader;
use bellwether_wire::request;
use bytes::BytesMut;

use crate::wire::Wire;

/// Replies come in the order of the requests, so xids are not needed.
const XID: i32 = 1;

/// The same number of bytes as the library's data about the owner.
const DATA: [u8; 130] = [b'x'; 130];

/// The version that matches any version of a node.
const ANY_VERSION: i32 = -1;

/// The flags of creates.
const EPHEMERAL_SEQUENTIAL: i32 = 3;
const CONTAINER: i32 = 4;

/// A contender for one lock, with a session of its own.
#[derive(Debug)]
pub struct Contender {
    wire: Wire,
    /// Requests that are sent together.
    out: BytesMut,
    dir: String,
    acl: [Acl; 1],
    acquisitions: u64,
    /// Events about deleted nodes that have not been consumed.
    deleted: HashSet<String>,
}

/// The body of a reply, or the refusal of the server.
type RawAnswer = Result<Vec<u8>, ErrorCode>;

/// The contenders before a node, as the latest list showed them.
#[derive(Debug, Default)]
struct Ahead {
    count: usize,
    /// The last of them, and its number.
    nearest: Option<(i32, String)>,
}

impl Contender {
    /// Opens a session for the lock at `dir`.
    pub fn connect(address: &str, dir: &str) -> Result<Self> {
        Ok(Self {
            wire: Wire::connect(address)?,
            out: BytesMut::new(),
            dir: dir.to_owned(),
            acl: [Acl::open()],
            acquisitions: 0,
            deleted: HashSet::new(),
        })
    }

    /// Waits for the lock. Returns the node that holds it.
    pub fn acquire(&mut self) -> Result<String> {
        let (node, mut ahead) = self.enter()?;
        let mut watches_own = false;
        while let Some((_, blocker)) = ahead.nearest.take() {
            let blocker = format!("{}/{blocker}", self.dir);
            let is_alone = ahead.count == 1;
            let arms_own = is_alone && !watches_own;
            self.put_watch(&blocker);
            if arms_own {
                // Sent together: without this watch, the deletion of the last node ahead would prove nothing.
                self.put_watch(&node);
            }
            self.send()?;
            let blocker_is_there = self.found("getData of a predecessor")?;
            if arms_own {
                ensure!(self.found("getData of the own node")?, "{node} is gone");
                watches_own = true;
            }
            if blocker_is_there {
                self.until_deleted(&blocker)?;
                if is_alone {
                    break;
                }
            }
            self.put_list();
            self.send()?;
            let list = self.success("getChildren")?;
            ahead = Ahead::of(&node, &list)?;
        }
        Ok(node)
    }

    /// Deletes the node and waits until the server has acknowledged that.
    pub fn release(&mut self, node: &str) -> Result<()> {
        request::put(&mut self.out, XID, Op::Delete, |out| {
            request::put_path_version(out, node, ANY_VERSION);
        });
        self.send()?;
        self.success("delete")?;
        // The watch on the own node fired too, and no other is armed.
        self.deleted.clear();
        Ok(())
    }

    /// Creates the node and lists the line in one write.
    fn enter(&mut self) -> Result<(String, Ahead)> {
        loop {
            self.acquisitions += 1;
            let prefix = format!(
                "{}/lock-{:x}-{:016x}-",
                self.dir, self.wire.session_id, self.acquisitions
            );
            request::put(&mut self.out, XID, Op::Create2, |out| {
                let (data, flags) = (Some(&DATA[..]), EPHEMERAL_SEQUENTIAL);
                request::put_create(out, &prefix, data, &self.acl, flags, None);
            });
            self.put_list();
            self.send()?;
            match (self.answer()?, self.answer()?) {
                (Ok(created), Ok(list)) => {
                    let node = Reader::new(&created).string()?;
                    let ahead = Ahead::of(&node, &list)?;
                    return Ok((node, ahead));
                }
                // The server deletes an empty container.
                (Err(ErrorCode::NoNode), _) => self.make_directory()?,
                (Err(error), _) | (_, Err(error)) => return Err(error).context("create2 and list"),
            }
        }
    }

    fn make_directory(&mut self) -> Result<()> {
        request::put(&mut self.out, XID, Op::CreateContainer, |out| {
            request::put_create(out, &self.dir, Some(&[]), &self.acl, CONTAINER, None);
        });
        self.send()?;
        match self.answer()? {
            Ok(_) | Err(ErrorCode::NodeExists) => Ok(()),
            Err(error) => Err(error).context("createContainer"),
        }
    }

    fn put_list(&mut self) {
        request::put(&mut self.out, XID, Op::GetChildren, |out| {
            request::put_path_watch(out, &self.dir, false);
        });
    }

    /// getData and not exists: on a deleted node it leaves no watch.
    fn put_watch(&mut self, node: &str) {
        request::put(&mut self.out, XID, Op::GetData, |out| {
            request::put_path_watch(out, node, true);
        });
    }

    fn send(&mut self) -> Result<()> {
        self.wire.send(&self.out)?;
        self.out.clear();
        Ok(())
    }

    /// The next reply. Events before it are kept.
    fn answer(&mut self) -> Result<RawAnswer> {
        loop {
            if let Some(answer) = self.receive()? {
                return Ok(answer);
            }
        }
    }

    /// The body of the next reply, which must be a success.
    fn success(&mut self, request: &'static str) -> Result<Vec<u8>> {
        self.answer()?.context(request)
    }

    /// Whether the node of the next answered request exists.
    fn found(&mut self, request: &'static str) -> Result<bool> {
        match self.answer()? {
            Ok(_) => Ok(true),
            Err(ErrorCode::NoNode) => Ok(false),
            Err(error) => Err(error).context(request),
        }
    }

    fn until_deleted(&mut self, node: &str) -> Result<()> {
        while !self.deleted.remove(node) {
            ensure!(self.receive()?.is_none(), "a reply without a request");
        }
        Ok(())
    }

    /// Reads one frame: a reply, or an event, which is kept.
    fn receive(&mut self) -> Result<Option<RawAnswer>> {
        let frame = self.wire.receive()?;
        let mut reader = Reader::new(&frame);
        let header = ReplyHeader::decode(&mut reader)?;
        if header.xid == EVENT_XID {
            match event::decode(&mut reader)? {
                (EventKind::NodeDeleted, path) => self.deleted.insert(path),
                (kind, path) => bail!("{kind:?} at {path}"),
            };
            return Ok(None);
        }
        match header.err {
            0 => Ok(Some(Ok(reader.rest().to_vec()))),
            err => match ErrorCode::from_number(err) {
                Some(code) => Ok(Some(Err(code))),
                None => bail!("error {err}"),
            },
        }
    }
}

impl Ahead {
    /// Reads the reply to a getChildren, in which `node` must be.
    fn of(node: &str, list: &[u8]) -> Result<Self> {
        let own = sequence(node)?;
        let mut ahead = Self::default();
        let mut is_listed = false;
        let mut nearest = None;
        let names = Reader::new(list).vector(Reader::ustring)?;
        for name in names.iter().flatten().flatten() {
            let number = sequence(name)?;
            is_listed |= number == own;
            if number < own {
                ahead.count += 1;
                nearest = nearest.max(Some((number, name)));
            }
        }
        ensure!(is_listed, "{node} is gone");
        ahead.nearest = nearest.map(|(number, name)| (number, name.to_string()));
        Ok(ahead)
    }
}

fn sequence(node: &str) -> Result<i32> {
    let number = node.rsplit_once('-').map(|(_, number)| number.parse());
    Ok(number.ok_or_else(|| anyhow!("{node} has no number"))??)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use bellwether_testkit::{FaultProxy, TestServer};
    use tokio::task::{JoinHandle, JoinSet, spawn_blocking};

    use super::*;

    const DIR: &str = "/lock";

    async fn contender(address: String) -> Contender {
        let connected = spawn_blocking(move || Contender::connect(&address, DIR)).await;
        connected.unwrap().unwrap()
    }

    fn acquire(mut contender: Contender) -> JoinHandle<(Contender, String)> {
        spawn_blocking(move || {
            let node = contender.acquire().unwrap();
            (contender, node)
        })
    }

    async fn release((mut contender, node): (Contender, String)) -> Contender {
        let released = spawn_blocking(move || contender.release(&node).map(|()| contender));
        released.await.unwrap().unwrap()
    }

    /// Create2, getChildren, getData and delete, as a proxy has passed them on.
    fn requests(proxy: &FaultProxy) -> [usize; 4] {
        let requests = [Op::Create2, Op::GetChildren, Op::GetData, Op::Delete];
        requests.map(|op| proxy.count(op))
    }

    async fn until_sent(proxy: &FaultProxy, expected: [usize; 4]) {
        let sent = async {
            while requests(proxy) != expected {
                tokio::task::yield_now().await;
            }
        };
        let sent = tokio::time::timeout(Duration::from_secs(10), sent).await;
        assert!(sent.is_ok(), "{:?}", requests(proxy));
    }

    /// Waits until the directory has `count` children.
    async fn until_in_line(server: &TestServer, count: i32) {
        let mut look = contender(server.connect_string()).await;
        let look = move || loop {
            look.put_list();
            look.send().unwrap();
            if look.success("getChildren").unwrap()[..4] == count.to_be_bytes() {
                return;
            }
        };
        spawn_blocking(look).await.unwrap();
    }

    /// `crates/bellwether/tests/it/line/counts.rs` asserts the same numbers of the library.
    #[tokio::test(flavor = "multi_thread")]
    async fn cycle_is_the_requests_of_the_library() {
        let server = TestServer::start().await.unwrap();
        let proxy = FaultProxy::start(server.address()).await.unwrap();
        let before = acquire(contender(server.connect_string()).await);
        let before = release(before.await.unwrap()).await;
        let counted = contender(proxy.connect_string()).await;

        let counted = release(acquire(counted).await.unwrap()).await;
        assert_eq!(requests(&proxy), [1, 1, 0, 1]);

        proxy.reset_counts();
        let holder = acquire(before).await.unwrap();
        let waiter = acquire(counted);
        until_sent(&proxy, [1, 1, 2, 0]).await;
        let before = release(holder).await;
        let counted = release(waiter.await.unwrap()).await;
        assert_eq!(requests(&proxy), [1, 1, 2, 1], "behind one");

        proxy.reset_counts();
        let holder = acquire(before).await.unwrap();
        let between = acquire(contender(server.connect_string()).await);
        until_in_line(&server, 2).await;
        let waiter = acquire(counted);
        until_sent(&proxy, [1, 1, 1, 0]).await;
        release(holder).await;
        release(between.await.unwrap()).await;
        release(waiter.await.unwrap()).await;
        assert_eq!(requests(&proxy), [1, 2, 1, 1], "behind two");
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn contenders_exclude_each_other() {
        const CONTENDERS: usize = 5;
        const TURNS: usize = 50;
        let server = TestServer::start().await.unwrap();
        let is_held = Arc::new(AtomicBool::new(false));
        let mut contenders = JoinSet::new();
        for _ in 0..CONTENDERS {
            let mut contender = contender(server.connect_string()).await;
            let is_held = Arc::clone(&is_held);
            contenders.spawn_blocking(move || {
                for _ in 0..TURNS {
                    let node = contender.acquire().unwrap();
                    assert!(!is_held.swap(true, Ordering::SeqCst));
                    std::thread::yield_now();
                    is_held.store(false, Ordering::SeqCst);
                    contender.release(&node).unwrap();
                }
            });
        }
        while let Some(contender) = contenders.join_next().await {
            contender.unwrap();
        }
        until_in_line(&server, 0).await;
    }
}
