//! Clients of a real ensemble, which record what they send and receive, and faults of its members.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bellwether_server::files::LogReader;
use bellwether_server::files::txn::Txn;
use bellwether_testkit::{
    Apache, ConnectOptions, Create, Ensemble, Frame, RawClient, Reply, Request, WatchEvent,
    WatchLists,
};
use bellwether_wire::connect::ConnectReply;
use bellwether_wire::event::EventKind;
use bytes::BytesMut;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::timeout;

use super::super::tests::some_request;
use super::history::{Connection, Fault, Greeting, History, Received, Sent, now};
use super::{MEMBERS, TICK, TIMEOUT_MAX};

const CLIENTS: usize = 6;

/// Every third client is often silent, and its sessions expire.
const MORTAL: usize = 3;
const MORTAL_TIMEOUT: Duration = Duration::from_millis(1_600);
const TIMEOUT: Duration = Duration::from_secs(40);

/// How long a client waits for one frame before it gives up its connection.
const PATIENCE: Duration = Duration::from_secs(6);

/// The time limit of a phase.
const PHASE_MAX: Duration = Duration::from_secs(60);

/// The xid of a request that restores watches, as clients have it.
const SET_WATCHES_XID: i32 = -8;

/// Runs clients against a real ensemble with faults.
pub(super) async fn record(seed: u64) -> Result<History> {
    let builder = Apache::builder()
        .tick(TICK)
        .session_timeout_max(TIMEOUT_MAX);
    let mut ensemble = builder.ensemble(MEMBERS).await?;
    let mut history = History::default();
    let leader = ensemble.leader().await?;
    let shared = Arc::new(Shared::default());
    let addresses: Vec<_> = (0..MEMBERS).map(|index| ensemble.address(index)).collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|index| {
            let client = Client::new(index, seed, addresses.clone(), shared.clone());
            tokio::spawn(client.run())
        })
        .collect();
    let mut leaders = vec![leader];
    let faults = disturb(&mut ensemble, &shared, &mut leaders).await;
    shared.is_over.store(true, Ordering::Relaxed);
    for client in clients {
        history.connections.extend(client.await??);
    }
    history.faults = faults?;
    let leader = ensemble.leader().await?;
    ensemble.stop().await?;
    ensure!(
        leaders.last() == Some(&leader),
        "{leader} leads after {leaders:?}: there was an election without a fault"
    );
    let txns = read_log(&ensemble.data_dir(leader).join("version-2"))?;
    // What was written before the clients began are sessions that changed nothing.
    let sessions: BTreeSet<i64> = history
        .connections
        .iter()
        .filter_map(Connection::granted)
        .collect();
    let before = txns
        .iter()
        .take_while(|txn| !sessions.contains(&txn.session_id));
    history.txns = txns[before.count()..].to_vec();
    let mut epochs: Vec<i64> = history.txns.iter().map(|txn| txn.zxid >> 32).collect();
    epochs.dedup();
    ensure!(
        epochs.len() == leaders.len(),
        "leaders {leaders:?} in epochs {epochs:?}: there was an election without a fault"
    );
    history.leaders = epochs.into_iter().zip(leaders).collect();
    Ok(history)
}

#[derive(Debug, Default)]
struct Shared {
    is_over: AtomicBool,
    /// Number of replies.
    replies: AtomicUsize,
}

impl Shared {
    /// Waits until clients have received some more replies.
    async fn replies(&self, more: usize) -> Result<()> {
        let until = self.replies.load(Ordering::Relaxed) + more;
        timeout(PHASE_MAX, async {
            while self.replies.load(Ordering::Relaxed) < until {
                pause(Duration::from_millis(20)).await;
            }
        })
        .await
        .context("clients make no progress")
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the duration of a fault, or the pace of a poll"
)]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// One fault after the other, with calm between them.
async fn disturb(
    ensemble: &mut Ensemble,
    shared: &Shared,
    leaders: &mut Vec<usize>,
) -> Result<Vec<Fault>> {
    let mut faults = Vec::new();
    let leader = leaders[0];
    let follower = (leader + 1) % MEMBERS;
    shared.replies(300).await?;

    // It serves an old state, until it would give up the leader after `syncLimit` ticks.
    let from = now();
    ensemble.block(leader, follower);
    pause(Duration::from_millis(3_000)).await;
    ensemble.heal();
    faults.push(Fault::Deaf {
        member: follower,
        from,
        to: now() + 500_000,
    });
    shared.replies(300).await?;

    // Commits take long.
    for member in 0..MEMBERS {
        ensemble.slow(member, Duration::from_millis(15));
    }
    shared.replies(200).await?;
    ensemble.heal();
    shared.replies(200).await?;

    ensemble.kill(follower);
    let from = now();
    shared.replies(100).await?;
    let to = now();
    ensemble.restart(follower).await?;
    faults.push(Fault::Killed {
        member: follower,
        from,
        to,
    });
    shared.replies(200).await?;

    ensemble.kill(leader);
    let from = now();
    shared.replies(200).await?;
    leaders.push(ensemble.leader().await?);
    let to = now();
    ensemble.restart(leader).await?;
    faults.push(Fault::Killed {
        member: leader,
        from,
        to,
    });
    shared.replies(200).await?;
    Ok(faults)
}

/// All writes in the log of the stopped leader. Others may have some that did not survive: a member deletes them when it returns.
fn read_log(folder: &Path) -> Result<Vec<Txn>> {
    let mut txns = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("log.") {
            let mut log = LogReader::open(File::open(&path)?)?;
            while let Some(record) = log.next()? {
                txns.push(record.txn);
            }
        }
    }
    txns.sort_by_key(|txn| txn.zxid);
    txns.dedup_by_key(|txn| txn.zxid);
    Ok(txns)
}

/// Deletes the node of a leaf instead.
///
/// Until a leader has applied the end of a session, it counts the session's ephemeral nodes as children, and refuses to delete their parents
/// (`PrepRequestProcessor`, closeSession). The model does not.
fn without_delete_of_parents(request: Request) -> Request {
    match request {
        Request::Delete { path, version } if ["/a", "/b", "/a/a"].contains(&path.as_str()) => {
            let path = "/a/a/a".to_owned();
            Request::Delete { path, version }
        }
        Request::Multi(parts) => {
            let parts = parts.into_iter().map(without_delete_of_parents);
            Request::Multi(parts.collect())
        }
        other => other,
    }
}

/// A client, which connects to any member.
struct Client {
    index: usize,
    random: StdRng,
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    timeout: Duration,
    session: i64,
    password: Vec<u8>,
    seen: i64,
    last_xid: i32,
    watches: WatchLists,
    connections: Vec<Connection>,
}

impl Client {
    fn new(index: usize, seed: u64, addresses: Vec<SocketAddr>, shared: Arc<Shared>) -> Self {
        Self {
            index,
            random: StdRng::seed_from_u64(seed * 100 + index as u64),
            addresses,
            shared,
            timeout: match index % MORTAL {
                0 => MORTAL_TIMEOUT,
                _ => TIMEOUT,
            },
            session: 0,
            password: vec![0; 16],
            seen: 0,
            last_xid: 0,
            watches: WatchLists::default(),
            connections: Vec::new(),
        }
    }

    fn is_mortal(&self) -> bool {
        self.timeout == MORTAL_TIMEOUT
    }

    async fn run(mut self) -> Result<Vec<Connection>> {
        let mut member = self.index % MEMBERS;
        while !self.shared.is_over.load(Ordering::Relaxed) {
            if let Some(mut raw) = self.connect(member).await? {
                // An error is the end of the connection.
                let _ = self.converse(&mut raw).await;
            } else {
                pause(Duration::from_millis(20)).await;
            }
            member = self.random.random_range(0..MEMBERS);
        }
        Ok(self.connections)
    }

    /// Connects with its session, or opens one.
    async fn connect(&mut self, member: usize) -> Result<Option<RawClient>> {
        let Ok(mut raw) = RawClient::open(self.addresses[member]).await else {
            return Ok(None);
        };
        raw.set_deadline(PATIENCE);
        let options = ConnectOptions {
            timeout: self.timeout,
            session_id: self.session,
            password: self.password.clone(),
            last_zxid_seen: self.seen,
            read_only_byte: true,
        };
        self.connections.push(Connection {
            client: self.index,
            member,
            at: now(),
            seen: self.seen,
            session: self.session,
            timeout_ms: i32::try_from(self.timeout.as_millis())?,
            greeting: None,
            requests: Vec::new(),
            received: Vec::new(),
        });
        if raw.send_bytes(&options.encode()).await.is_err() {
            return Ok(None);
        }
        let Ok(frame) = raw.receive_raw().await else {
            return Ok(None);
        };
        let reply = ConnectReply::decode(&frame)?;
        let granted = reply
            .is_session()
            .then_some((reply.session_id, reply.timeout_ms));
        if let Some(connection) = self.connections.last_mut() {
            let at = now();
            connection.greeting = Some(Greeting { at, granted });
        }
        if granted.is_none() {
            self.forget_session();
            return Ok(None);
        }
        self.session = reply.session_id;
        self.password = reply.password.to_vec();
        Ok(Some(raw))
    }

    fn forget_session(&mut self) {
        self.session = 0;
        self.password = vec![0; 16];
        self.watches = WatchLists::default();
    }

    /// Uses one connection until it ends.
    async fn converse(&mut self, raw: &mut RawClient) -> Result<()> {
        let lists = std::mem::take(&mut self.watches);
        if lists != WatchLists::default() {
            let lists = WatchLists {
                relative_zxid: self.seen,
                ..lists
            };
            self.send(raw, vec![Request::SetWatches(lists)]).await?;
            self.receive_replies(raw, 1).await?;
        }
        while !self.shared.is_over.load(Ordering::Relaxed) {
            let count = *[1, 1, 2, 3, 4]
                .get(self.random.random_range(0..5))
                .unwrap_or(&1);
            let requests: Vec<Request> = (0..count).map(|_| self.some_request()).collect();
            self.send(raw, requests).await?;
            match self.random.random_range(0..100) {
                // Replies are lost.
                0..2 => return Ok(()),
                _ => self.receive_replies(raw, count).await?,
            }
            match self.random.random_range(0..100) {
                0..4 => return Ok(()),
                4..6 => {
                    self.send(raw, vec![Request::CloseSession]).await?;
                    self.receive_replies(raw, 1).await?;
                    self.forget_session();
                    return Ok(());
                }
                6..10 if self.is_mortal() => {
                    // The server closes the connection when the session has expired.
                    while self.receive(raw).await.is_ok() {}
                    return Ok(());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn some_request(&mut self) -> Request {
        match some_request(&mut self.random) {
            // Empty ones are deleted at a time of the server's choice.
            Request::Create(create) if create.flags == Create::CONTAINER => {
                Request::create(create.path, "")
            }
            request => match self.random.random_range(0..12) {
                0 => Request::Ping,
                1 => Request::Sync {
                    path: "/".to_owned(),
                },
                _ => without_delete_of_parents(request),
            },
        }
    }

    /// Sends requests in one segment.
    async fn send(&mut self, raw: &mut RawClient, requests: Vec<Request>) -> Result<()> {
        let mut bytes = BytesMut::new();
        let at = now();
        let connection = self.connections.last_mut().context("connected")?;
        for request in requests {
            let xid = match request {
                Request::Ping => -2,
                Request::SetWatches(_) => SET_WATCHES_XID,
                _ => {
                    self.last_xid += 1;
                    self.last_xid
                }
            };
            bytes.extend_from_slice(&request.encode(xid));
            connection.requests.push(Sent { at, xid, request });
        }
        raw.send_bytes(&bytes).await
    }

    async fn receive_replies(&mut self, raw: &mut RawClient, count: usize) -> Result<()> {
        let mut left = count;
        while left > 0 {
            if let Frame::Reply(_) = self.receive(raw).await? {
                left -= 1;
            }
        }
        Ok(())
    }

    async fn receive(&mut self, raw: &mut RawClient) -> Result<Frame> {
        let bytes = raw.receive_raw().await?;
        let at = now();
        let connection = self.connections.last_mut().context("connected")?;
        let replies = connection.received.iter();
        let replies = replies.filter(|one| matches!(one.frame, Frame::Reply(_)));
        let sent = connection.requests.get(replies.count()).cloned();
        let op = sent.as_ref().and_then(|sent| sent.request.op());
        let frame = Frame::decode(&bytes, |_| op)?;
        connection.received.push(Received {
            at,
            frame: frame.clone(),
        });
        match &frame {
            Frame::Event(event) => self.disarm(event),
            Frame::Reply(reply) => {
                self.seen = self.seen.max(reply.zxid);
                self.shared.replies.fetch_add(1, Ordering::Relaxed);
                if let Some(sent) = sent {
                    self.arm(&sent.request, reply);
                }
            }
        }
        Ok(frame)
    }

    /// Notes a watch, to restore it on the next connection.
    fn arm(&mut self, request: &Request, reply: &Reply) {
        let WatchLists {
            data, exist, child, ..
        } = &mut self.watches;
        let (list, path) = match request {
            Request::Exists { path, watch: true } if reply.outcome.is_err() => (exist, path),
            Request::Exists { path, watch: true } => (data, path),
            Request::GetData { path, watch: true } if reply.outcome.is_ok() => (data, path),
            Request::GetChildren { path, watch: true }
            | Request::GetChildren2 { path, watch: true }
                if reply.outcome.is_ok() =>
            {
                (child, path)
            }
            _ => return,
        };
        if !list.contains(path) {
            list.push(path.clone());
        }
    }

    fn disarm(&mut self, event: &WatchEvent) {
        let others = |path: &String| *path != event.path;
        if event.kind == EventKind::NodeChildrenChanged {
            return self.watches.child.retain(others);
        }
        self.watches.data.retain(others);
        self.watches.exist.retain(others);
        if event.kind == EventKind::NodeDeleted {
            self.watches.child.retain(others);
        }
    }
}
