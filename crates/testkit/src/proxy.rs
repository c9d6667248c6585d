//! A proxy that breaks things on purpose.

mod carry;

use std::collections::{HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_server::proto::jute::Reader;
use bellwether_server::proto::op::Op;
use bytes::Bytes;
use tokio::net::{TcpListener, ToSocketAddrs};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::carry::accept;
use crate::raw::{ConnectOptions, RawClient};
use crate::request::Request;

/// How long [`Fault::happened`] waits.
const FAULT_MAX: Duration = Duration::from_secs(30);

/// Stands between clients and a server, whichever it is, and loses what it is told to lose.
///
/// It understands frames, so that a fault can be put on one kind of request. Four-letter words and
/// what is not a frame pass as they are. Dropping it ends its connections.
///
/// ```no_run
/// # async fn example() -> anyhow::Result<()> {
/// use bellwether_server::proto::op::Op;
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
    upstream: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

/// Which way bytes go.
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
    /// In order, as if the other side had closed it.
    Close,
    /// By a reset, as if the other side had crashed.
    Reset,
}

/// A request on its way to the server.
#[derive(Debug, Clone)]
pub struct SeenRequest {
    /// The operation.
    pub op: Op,
    /// What follows the header.
    pub body: Bytes,
}

impl SeenRequest {
    /// The text that most bodies begin with.
    pub fn path(&self) -> Option<String> {
        let path = Reader::new(&self.body).ustring().ok()??;
        Some(path.into_owned())
    }
}

/// A fault that will happen to one request.
#[derive(Debug)]
#[must_use = "tells when it has happened"]
pub struct Fault(oneshot::Receiver<()>);

impl Fault {
    /// Waits until the fault has happened and, if that is part of it, the connection is cut.
    ///
    /// # Errors
    ///
    /// If the connection ended by itself while the fault was under way, or if nothing happened within
    /// thirty seconds.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future or the fault does not take the fault back.
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
        Self::start_with(upstream, false).await
    }

    /// As [`Self::start`], for whatever goes over TCP: it looks for no frames, so there are no faults of single requests.
    pub async fn of_bytes(upstream: impl ToSocketAddrs) -> Result<Self> {
        Self::start_with(upstream, true).await
    }

    async fn start_with(upstream: impl ToSocketAddrs, plain: bool) -> Result<Self> {
        let upstream = tokio::net::lookup_host(upstream)
            .await?
            .next()
            .context("no address of the server")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            gates: watch::Sender::default(),
            plain,
        });
        let accepting = tokio::spawn(accept(listener, upstream, Arc::clone(&shared)));
        Ok(Self {
            address,
            upstream,
            shared,
            accepting,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The address as clients want it.
    pub fn connect_string(&self) -> String {
        self.address.to_string()
    }

    /// Ends all connections there are, on both sides, and waits until their sockets are closed.
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

    /// From now on resets new connections as soon as they are made, or no longer does.
    pub fn refuse(&self, refuse: bool) {
        self.shared.state().refuse = refuse;
    }

    /// Keeps what goes this way from now on, ends included; connections stay open.
    pub fn hold(&self, direction: Direction) {
        self.set_gates(direction, |gate| gate.held = true);
    }

    /// Lets go what was held, and what follows.
    pub fn resume(&self, direction: Direction) {
        self.set_gates(direction, |gate| gate.held = false);
    }

    /// Lets each frame wait before it goes on, one after the other. Zero ends it.
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

    /// Loses the reply to the next `op`: the server gets the request, and when it has answered, the
    /// connection is cut instead. (TCP loses no single frame: where a reply is lost, so is the rest.)
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

    /// Loses the next `op`: the server does not get it, and the connection is cut.
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

    /// Answers the next request that `matches` with this error code. The server does not get it, and the connection stays.
    pub fn answer_with(
        &self,
        code: i32,
        matches: impl Fn(&SeenRequest) -> bool + Send + 'static,
    ) -> Fault {
        self.add_rule(RuleKind::AnswerWith(code), matches)
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

    /// From now on the server does not know this operation, and answers as one does that was made before it came: on its
    /// way the request gets a number that no server knows. It is no fault, so [`Self::calm`] does not end it.
    pub fn hide(&self, op: Op) {
        self.shared.state().hidden.insert(op);
    }

    /// Ends all faults, also those that wait for their request. What was cut stays cut.
    pub fn calm(&self) {
        {
            let mut state = self.shared.state();
            state.refuse = false;
            state.rules.clear();
        }
        // Behind the rules: one of them may hold what comes when the gates are open.
        self.shared.gates.send_replace(Gates::default());
    }

    /// Ends the session that was last granted through here, on any server: past all faults a client takes it
    /// over and closes it. The client that had it hears of it when it connects again.
    pub async fn expire_session(&self) -> Result<()> {
        let session = self.shared.state().session.clone();
        let options = session.context("no session yet")?;
        let mut client = RawClient::connect_with(self.upstream, &options).await?;
        // If it was refused, there is no such session any more, which is as good.
        if !client.is_refused() {
            client.call(Request::CloseSession).await?.ok()?;
        }
        Ok(())
    }

    /// How many requests of this kind have gone to the server.
    pub fn count(&self, op: Op) -> usize {
        self.shared.state().counts.get(&op).copied().unwrap_or(0)
    }

    /// How many requests of each kind have gone to the server.
    pub fn counts(&self) -> HashMap<Op, usize> {
        self.shared.state().counts.clone()
    }

    /// How many connections have been made to the server.
    pub fn connections(&self) -> usize {
        self.shared.state().connections_made
    }

    /// How many connections there are now.
    pub fn connections_now(&self) -> usize {
        self.shared.state().connections.len()
    }

    /// How many events have gone to clients.
    pub fn events(&self) -> usize {
        self.shared.state().events
    }

    /// How many requests of one connection were unanswered at most.
    pub fn in_flight_max(&self) -> usize {
        self.shared.state().in_flight_max
    }

    /// Counts requests, connections and events from zero again.
    pub fn reset_counts(&self) {
        let mut state = self.shared.state();
        state.counts.clear();
        state.connections_made = 0;
        state.events = 0;
        state.in_flight_max = 0;
    }
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
    state: Mutex<State>,
    gates: watch::Sender<Gates>,
    /// Whether nobody speaks frames here.
    plain: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics under this lock")
    }
}

#[derive(Debug, Default)]
struct State {
    refuse: bool,
    connections: HashMap<usize, Connection>,
    next_connection: usize,
    rules: Vec<Rule>,
    hidden: HashSet<Op>,
    counts: HashMap<Op, usize>,
    connections_made: usize,
    events: usize,
    in_flight_max: usize,
    /// What the session that was granted last is taken over with.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RuleKind {
    SwallowReply,
    DropRequest,
    /// The server gets a harmless request instead, so that answers stay in order, and its answer gets this code.
    AnswerWith(i32),
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
