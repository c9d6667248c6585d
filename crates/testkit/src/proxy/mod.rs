//! A proxy that injects faults.

mod carry;
mod disguise;

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bytes::Bytes;
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::carry::accept;
use crate::raw::request::Request;
use crate::raw::{ConnectOptions, RawClient};

/// How long [`Fault::happened`] waits.
const FAULT_MAX: Duration = Duration::from_secs(30);

/// Attempts of [`FaultProxy::expire_session`] to take a session over from a client that reattaches to it.
const EXPIRE_TRIES_MAX: usize = 10;

/// A proxy between clients and any server that injects faults.
///
/// It understands frames, so that a fault can affect one kind of request. Four-letter words and
/// other bytes pass unchanged. Dropping it closes its connections.
///
/// ```no_run
/// # async fn example() -> anyhow::Result<()> {
/// use bellwether_wire::op::Op;
/// use bellwether_testkit::FaultProxy;
///
/// let proxy = FaultProxy::start("127.0.0.1:2181").await?;
/// let lost = proxy.swallow_reply(Op::Create);
/// // A client of `proxy.connect_string()` creates a node here.
/// lost.happened().await?; // The node is there, and the client does not know.
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    /// Connections go to one after the other.
    upstreams: Arc<[SocketAddr]>,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Direction {
    ToServer,
    ToClient,
    Both,
}

/// How a connection is ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cut {
    /// In order (FIN), as if the other side had closed it.
    Close,
    /// By a reset, as if the other side had crashed.
    Reset,
}

/// A request on its way to the server.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// The operation.
    pub op: Op,
    /// The bytes after the header.
    pub body: Bytes,
}

impl SeenRequest {
    /// The path with which most bodies begin.
    pub fn path(&self) -> Option<String> {
        let path = Reader::new(&self.body).ustring().ok()??;
        Some(path.into_owned())
    }
}

/// A fault for one request.
#[derive(Debug)]
#[must_use = "tells when it has happened"]
pub struct Fault(oneshot::Receiver<()>);

impl Fault {
    /// Waits until the fault has happened and, if the fault includes it, the connection is cut.
    ///
    /// # Errors
    ///
    /// If the connection ended by itself during the fault, or if nothing happened within
    /// thirty seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future or the fault does not cancel the fault.
    pub async fn happened(self) -> Result<()> {
        timeout(FAULT_MAX, self.0)
            .await
            .with_context(|| format!("the fault did not happen within {FAULT_MAX:?}"))?
            .context("the connection ended before the fault")
    }
}

impl FaultProxy {
    /// Listens on a free port of the loopback, in front of `upstream`.
    pub async fn start(upstream: impl ToSocketAddrs) -> Result<Self> {
        Self::start_with(&[resolve(upstream).await?], false).await
    }

    /// Listens in front of several servers: each new connection goes to the next one, so that a session moves whenever it reconnects.
    pub async fn in_turn(upstreams: &[SocketAddr]) -> Result<Self> {
        Self::start_with(upstreams, false).await
    }

    /// Like [`Self::start`], for any protocol over TCP: it does not parse frames, so there are no faults of single requests.
    pub async fn of_bytes(upstream: impl ToSocketAddrs) -> Result<Self> {
        Self::start_with(&[resolve(upstream).await?], true).await
    }

    async fn start_with(upstreams: &[SocketAddr], plain: bool) -> Result<Self> {
        let upstreams: Arc<[SocketAddr]> = upstreams.into();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            gates: watch::Sender::default(),
            plain,
        });
        let accepting = accept(listener, Arc::clone(&upstreams), Arc::clone(&shared));
        let accepting = tokio::spawn(accepting);
        Ok(Self {
            address,
            upstreams,
            shared,
            accepting,
        })
    }

    /// The address of the proxy.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connect string for clients.
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// Ends all connections, on both sides, and waits until their sockets are closed.
    pub async fn cut(&self, how: Cut) {
        let connections = std::mem::take(&mut self.shared.state().connections);
        let mut ends = Vec::new();
        for connection in connections.into_values() {
            // An error means that it has just ended.
            let _ = connection.cut.send(how);
            ends.push(connection.task);
        }
        for end in ends {
            let _ = end.await;
        }
    }

    /// Resets new connections at once, or stops doing so.
    pub fn refuse(&self, refuse: bool) {
        self.shared.state().refuse = refuse;
    }

    /// Holds back all bytes in this direction from now on, and also closes; connections stay open.
    pub fn hold(&self, direction: Direction) {
        self.set_gates(direction, |gate| gate.held = true);
    }

    /// Releases held bytes, and stops holding.
    pub fn resume(&self, direction: Direction) {
        self.set_gates(direction, |gate| gate.held = false);
    }

    /// Delays each frame, one after the other. Zero ends it.
    pub fn delay(&self, direction: Direction, delay: Duration) {
        self.set_gates(direction, |gate| gate.delay = delay);
    }

    fn set_gates(&self, direction: Direction, set: impl Fn(&mut Gate)) {
        self.shared.gates.send_modify(|gates| {
            if direction != Direction::ToClient {
                set(&mut gates.to_server);
            }
            if direction != Direction::ToServer {
                set(&mut gates.to_client);
            }
        });
    }

    /// Swallows the reply to the next `op`: the server receives the request, and when it has replied, the connection is cut instead. (TCP
    /// loses no single frame: when a reply is lost, so is everything after it.)
    pub fn swallow_reply(&self, op: Op) -> Fault {
        self.swallow_reply_where(move |request| request.op == op)
    }

    /// As [`Self::swallow_reply`], for the next request that `matches`.
    pub fn swallow_reply_where(
        &self,
        matches: impl Fn(&SeenRequest) -> bool + Send + 'static,
    ) -> Fault {
        self.add_rule(RuleKind::SwallowReply, matches)
    }

    /// Drops the next `op`: the server does not receive it, and the connection is cut.
    pub fn drop_request(&self, op: Op) -> Fault {
        self.drop_request_where(move |request| request.op == op)
    }

    /// As [`Self::drop_request`], for the next request that `matches`.
    pub fn drop_request_where(
        &self,
        matches: impl Fn(&SeenRequest) -> bool + Send + 'static,
    ) -> Fault {
        self.add_rule(RuleKind::DropRequest, matches)
    }

    /// Answers the next request that `matches` with this error code. The server does not receive it, and the connection stays open.
    pub fn answer_with(
        &self,
        code: i32,
        matches: impl Fn(&SeenRequest) -> bool + Send + 'static,
    ) -> Fault {
        let answer = Answer {
            code,
            zxid: None,
            body: Bytes::new(),
        };
        self.add_rule(RuleKind::Answer(answer), matches)
    }

    /// As [`Self::answer_with`], with the zxid and the body of a successful answer.
    pub fn answer_as(
        &self,
        zxid: i64,
        body: impl Into<Bytes>,
        matches: impl Fn(&SeenRequest) -> bool + Send + 'static,
    ) -> Fault {
        let answer = Answer {
            code: 0,
            zxid: Some(zxid),
            body: body.into(),
        };
        self.add_rule(RuleKind::Answer(answer), matches)
    }

    fn add_rule(
        &self,
        kind: RuleKind,
        matches: impl Fn(&SeenRequest) -> bool + Send + 'static,
    ) -> Fault {
        let (happened, fault) = oneshot::channel();
        self.shared.state().rules.push(Rule {
            kind,
            matches: Box::new(matches),
            happened,
        });
        Fault(fault)
    }

    /// Replaces a text in the first bytes that each client sends by another of the same length. For protocols that send an address for
    /// connecting back.
    pub fn rewrite_opening(&self, from: impl Into<Vec<u8>>, to: impl Into<Vec<u8>>) {
        let (from, to) = (from.into(), to.into());
        assert_eq!(from.len(), to.len(), "lengths may be part of the protocol");
        self.shared.state().opening = Some((from, to));
    }

    /// Hides an operation, also in the list of a multi: the server answers like an older one that does not have it, because the
    /// proxy replaces its number with an unknown one. It is not a fault, so [`Self::calm`] does not end it.
    pub fn hide(&self, op: Op) {
        self.shared.state().hidden.insert(op);
    }

    /// Ends all faults, including those that wait for their request. Closed connections stay closed.
    pub fn calm(&self) {
        {
            let mut state = self.shared.state();
            state.refuse = false;
            state.rules.clear();
        }
        // After the rules: one of them may hold what arrives once the gates are open.
        self.shared.gates.send_replace(Gates::default());
    }

    /// Ends the session that was last granted through this proxy, on any server: a client that bypasses all faults takes it
    /// over and closes it. The previous client notices when it connects again.
    pub async fn expire_session(&self) -> Result<()> {
        let session = self.shared.state().session.clone();
        let options = session.context("no session yet")?;
        let take_over_and_close = async |server: SocketAddr| {
            let mut client = RawClient::connect_with(server, &options).await?;
            // A refusal means that the session no longer exists, which is the goal.
            if !client.is_refused() {
                client.call(Request::CloseSession).await?.ok()?;
            }
            Ok(())
        };
        let mut ended = Ok(());
        for server in self.upstreams.iter().cycle().take(EXPIRE_TRIES_MAX) {
            ended = take_over_and_close(*server).await;
            if ended.is_ok() {
                break;
            }
            // The client may have reattached at the same moment, and the server closes the earlier connection.
        }
        ended
    }

    /// The number of requests of this kind that were sent to the server.
    pub fn count(&self, op: Op) -> usize {
        self.shared.state().counts.get(&op).copied().unwrap_or(0)
    }

    /// The number of requests of each kind that were sent to the server.
    pub fn counts(&self) -> HashMap<Op, usize> {
        self.shared.state().counts.clone()
    }

    /// The number of connections to the server so far.
    pub fn connections(&self) -> usize {
        self.shared.state().connections_made
    }

    /// The number of open connections.
    pub fn connections_now(&self) -> usize {
        self.shared.state().connections.len()
    }

    /// The number of events that were sent to clients.
    pub fn events(&self) -> usize {
        self.shared.state().events
    }

    /// The highest number of unanswered requests of one connection.
    pub fn in_flight_max(&self) -> usize {
        self.shared.state().in_flight_max
    }

    /// Resets the counts of requests, connections and events.
    pub fn reset_counts(&self) {
        let mut state = self.shared.state();
        state.counts.clear();
        state.connections_made = 0;
        state.events = 0;
        state.in_flight_max = 0;
    }
}

async fn resolve(upstream: impl ToSocketAddrs) -> Result<SocketAddr> {
    let mut found = tokio::net::lookup_host(upstream).await?;
    found.next().context("no address of the server")
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.abort();
        for connection in self.shared.state().connections.values() {
            connection.task.abort();
        }
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<ProxyState>,
    gates: watch::Sender<Gates>,
    /// Whether the proxy does not parse frames.
    plain: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().expect("nothing panics under this lock")
    }
}

#[derive(Debug, Default)]
struct ProxyState {
    refuse: bool,
    connections: HashMap<usize, Connection>,
    next_connection: usize,
    rules: Vec<Rule>,
    hidden: HashSet<Op>,
    /// Replacement in the first bytes from a client.
    opening: Option<(Vec<u8>, Vec<u8>)>,
    counts: HashMap<Op, usize>,
    connections_made: usize,
    events: usize,
    in_flight_max: usize,
    /// The handshake that takes over the session that was granted last.
    session: Option<ConnectOptions>,
}

#[derive(Debug)]
struct Connection {
    cut: oneshot::Sender<Cut>,
    task: JoinHandle<()>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Gates {
    to_server: Gate,
    to_client: Gate,
}

#[derive(Debug, Clone, Copy, Default)]
struct Gate {
    held: bool,
    delay: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum RuleKind {
    SwallowReply,
    DropRequest,
    /// The server gets a harmless request instead, so that replies stay in order, and its reply is replaced by this answer.
    Answer(Answer),
}

/// An answer that the proxy gives instead of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    code: i32,
    /// The server's own unless given.
    zxid: Option<i64>,
    body: Bytes,
}

struct Rule {
    kind: RuleKind,
    matches: Box<dyn Fn(&SeenRequest) -> bool + Send>,
    happened: oneshot::Sender<()>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rule")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
