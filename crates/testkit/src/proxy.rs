//! A proxy that breaks things on purpose.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_server::proto::connect::ConnectReply;
use bellwether_server::proto::event::EVENT_XID;
use bellwether_server::proto::jute::Reader;
use bellwether_server::proto::op::Op;
use bellwether_server::proto::request::RequestHeader;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream, ToSocketAddrs};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

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
    /// Waits until the fault has happened and the connection is cut.
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
        let upstream = tokio::net::lookup_host(upstream)
            .await?
            .next()
            .context("no address of the server")?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            gates: watch::Sender::default(),
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

    /// Ends all faults, also those that wait for their request. What was cut stays cut.
    pub fn calm(&self) {
        self.shared.gates.send_replace(Gates::default());
        let mut state = self.shared.state();
        state.refuse = false;
        state.rules.clear();
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

async fn accept(listener: TcpListener, upstream: SocketAddr, shared: Arc<Shared>) {
    loop {
        // Errors of accept concern the connection that was not made.
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let mut state = shared.state();
        if state.refuse {
            // If it cannot be a reset, it is a close.
            let _ = client.set_zero_linger();
            continue;
        }
        let id = state.next_connection;
        state.next_connection += 1;
        let (cut, cut_off) = oneshot::channel();
        let task = tokio::spawn(serve(id, client, upstream, cut_off, Arc::clone(&shared)));
        state.connections.insert(id, Connection { cut, task });
    }
}

/// One connection from its first to its last byte.
async fn serve(
    id: usize,
    client: TcpStream,
    upstream: SocketAddr,
    cut_off: oneshot::Receiver<Cut>,
    shared: Arc<Shared>,
) {
    // Registered by the accepting task under the lock that it held when it spawned this one.
    let how = match TcpStream::connect(upstream).await {
        Ok(server) => {
            shared.state().connections_made += 1;
            carry(client, server, cut_off, &shared).await
        }
        // As a server that is down: the client sees the end of its connection.
        Err(_) => End::default(),
    };
    shared.state().connections.remove(&id);
    if let Some(happened) = how.happened {
        // An error means that nobody waits for the fault.
        let _ = happened.send(());
    }
}

/// Why a connection ended.
#[derive(Debug, Default)]
struct End {
    cut: Option<Cut>,
    happened: Option<oneshot::Sender<()>>,
}

/// Carries bytes both ways until both have ended, or a fault cuts them; the sockets are closed then.
async fn carry(
    client: TcpStream,
    server: TcpStream,
    cut_off: oneshot::Receiver<Cut>,
    shared: &Shared,
) -> End {
    for stream in [&client, &server] {
        // Only a matter of speed.
        let _ = stream.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let link = Link {
        shared,
        plain: AtomicBool::new(false),
        pending: Mutex::default(),
    };
    let mut requests = Pump::new(from_client, to_server, &link);
    let mut replies = Pump::new(from_server, to_client, &link);
    let end = tokio::select! {
        biased;
        cut = cut_off => End { cut: cut.ok(), happened: None },
        end = async {
            let requests = requests.carry_requests();
            tokio::pin!(requests);
            let replies = replies.carry_replies();
            tokio::pin!(replies);
            // When the client has sent its last, the server may still answer; when the server has,
            // there is nothing more to come.
            tokio::select! {
                end = &mut requests => match end {
                    Ok(None) => replies.await,
                    fault => fault,
                },
                end = &mut replies => end,
            }
        } => match end {
            Ok(happened) => End { cut: None, happened },
            Err(_) => End { cut: Some(Cut::Reset), happened: None },
        },
    };
    if end.cut == Some(Cut::Reset) {
        for stream in [requests.from.as_ref(), replies.from.as_ref()] {
            // If it cannot be a reset, it is a close.
            let _ = stream.set_zero_linger();
        }
    }
    end
}

/// What the two ways of one connection share.
struct Link<'a> {
    shared: &'a Shared,
    /// Whether the client speaks no frames.
    plain: AtomicBool,
    /// The requests under way: their xids, and the rule that waits for the reply.
    pending: Mutex<VecDeque<(i32, Option<Rule>)>>,
}

/// How a way ended: in order, or by a fault that is to be reported.
type WayEnd = io::Result<Option<oneshot::Sender<()>>>;

/// One way of a connection.
struct Pump<'a> {
    from: OwnedReadHalf,
    to: OwnedWriteHalf,
    input: BytesMut,
    link: &'a Link<'a>,
}

impl<'a> Pump<'a> {
    fn new(from: OwnedReadHalf, to: OwnedWriteHalf, link: &'a Link<'a>) -> Self {
        Self {
            from,
            to,
            input: BytesMut::new(),
            link,
        }
    }

    async fn carry_requests(&mut self) -> WayEnd {
        let mut connected = false;
        loop {
            let chunk = self.next_chunk(!connected).await?;
            self.pass_gate(|gates| gates.to_server).await;
            if let Some(frame) = chunk.frame().filter(|_| connected)
                && let Some(fault) = self.note_request(&frame)
            {
                return Ok(Some(fault));
            }
            connected = true;
            if !self.forward(chunk).await? {
                return Ok(None);
            }
        }
    }

    async fn carry_replies(&mut self) -> WayEnd {
        let mut connected = false;
        loop {
            let chunk = self.next_chunk(false).await?;
            if let Some(frame) = chunk.frame().filter(|_| !connected) {
                self.note_session(&frame);
            }
            if let Some(frame) = chunk.frame().filter(|_| connected)
                && let Some(fault) = self.note_reply(&frame)
            {
                return Ok(Some(fault));
            }
            self.pass_gate(|gates| gates.to_client).await;
            if let Some(frame) = chunk.frame().filter(|_| connected)
                && xid_of(&frame) == Some(EVENT_XID)
            {
                self.link.shared.state().events += 1;
            }
            connected = true;
            if !self.forward(chunk).await? {
                return Ok(None);
            }
        }
    }

    /// Reads the next frame, or whatever comes if it is not frames.
    async fn next_chunk(&mut self, may_be_word: bool) -> io::Result<Chunk> {
        loop {
            if may_be_word && let Some(word) = self.input.first_chunk::<4>() {
                // No length begins with a letter: that would be more than 1 GB.
                let is_word = word.iter().all(u8::is_ascii_alphabetic);
                self.link.plain.fetch_or(is_word, Ordering::SeqCst);
            }
            if self.link.plain.load(Ordering::SeqCst) {
                if !self.input.is_empty() {
                    return Ok(Chunk::Plain(self.input.split().freeze()));
                }
            } else if let Some(prefix) = self.input.first_chunk::<4>() {
                match usize::try_from(i32::from_be_bytes(*prefix)) {
                    Ok(length) if self.input.len() >= 4 + length => {
                        return Ok(Chunk::Frame(self.input.split_to(4 + length).freeze()));
                    }
                    Ok(_) => {}
                    Err(_) => self.link.plain.store(true, Ordering::SeqCst),
                }
            }
            if self.from.read_buf(&mut self.input).await? == 0 {
                // What is left is part of a frame.
                return Ok(Chunk::End(self.input.split().freeze()));
            }
        }
    }

    /// Waits for the delay and until nothing holds this way.
    async fn pass_gate(&self, gate: fn(&Gates) -> Gate) {
        let mut gates = self.link.shared.gates.subscribe();
        let delay = gate(&gates.borrow()).delay;
        if !delay.is_zero() {
            #[expect(clippy::disallowed_methods, reason = "the delay is what was asked for")]
            tokio::time::sleep(delay).await;
        }
        // Fails only without a sender, and this side has one.
        let _ = gates.wait_for(|gates| !gate(gates).held).await;
    }

    /// Passes on; false at the end.
    async fn forward(&mut self, chunk: Chunk) -> io::Result<bool> {
        match chunk {
            Chunk::Frame(bytes) | Chunk::Plain(bytes) => {
                self.to.write_all(&bytes).await?;
                Ok(true)
            }
            Chunk::End(bytes) => {
                self.to.write_all(&bytes).await?;
                self.to.shutdown().await?;
                Ok(false)
            }
        }
    }

    /// Counts a request and remembers its xid; a fault to be reported if it shall not go on.
    fn note_request(&self, frame: &Bytes) -> Option<oneshot::Sender<()>> {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).ok()?;
        let op = Op::from_number(header.op)?;
        let body = frame.slice_ref(reader.rest());
        let request = SeenRequest { op, body };

        let mut state = self.link.shared.state();
        let place = state.rules.iter().position(|rule| (rule.matches)(&request));
        let rule = place.map(|place| state.rules.remove(place));
        if let Some(Rule {
            kind: RuleKind::DropRequest,
            happened,
            ..
        }) = rule
        {
            return Some(happened);
        }
        *state.counts.entry(op).or_default() += 1;
        // A ping is answered with this xid whatever its own.
        let xid = if op == Op::Ping { -2 } else { header.xid };
        let mut pending = self.link.pending();
        pending.push_back((xid, rule));
        state.in_flight_max = state.in_flight_max.max(pending.len());
        None
    }

    /// Remembers a session, if one was granted.
    fn note_session(&self, frame: &Bytes) {
        let Ok(granted) = ConnectReply::decode(frame) else {
            return;
        };
        if granted != ConnectReply::REFUSED {
            self.link.shared.state().session = Some(ConnectOptions {
                timeout: Duration::from_millis(granted.timeout_ms.unsigned_abs().into()),
                session_id: granted.session_id,
                password: granted.password.to_vec(),
                ..ConnectOptions::default()
            });
        }
    }

    /// Takes a reply off the list of those that are waited for; a fault to be reported if it shall
    /// not go on.
    fn note_reply(&self, frame: &Bytes) -> Option<oneshot::Sender<()>> {
        let xid = xid_of(frame)?;
        let mut pending = self.link.pending();
        let place = pending.iter().position(|sent| sent.0 == xid)?;
        let (_, rule) = pending.remove(place)?;
        Some(rule?.happened)
    }
}

impl Link<'_> {
    fn pending(&self) -> MutexGuard<'_, VecDeque<(i32, Option<Rule>)>> {
        self.pending.lock().expect("nothing panics under this lock")
    }
}

/// What passes at a time, with the length of a frame in front.
#[derive(Debug)]
enum Chunk {
    Frame(Bytes),
    Plain(Bytes),
    End(Bytes),
}

impl Chunk {
    fn frame(&self) -> Option<Bytes> {
        match self {
            Self::Frame(bytes) => Some(bytes.slice(4..)),
            _ => None,
        }
    }
}

fn xid_of(frame: &[u8]) -> Option<i32> {
    Reader::new(frame).int().ok()
}
