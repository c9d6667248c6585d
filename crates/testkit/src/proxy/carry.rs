//! Connections of a proxy, and the faults applied to their frames.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bellwether_wire::connect::ConnectReply;
use bellwether_wire::event::EVENT_XID;
use bellwether_wire::frame;
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::request::{self, RequestHeader};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::interval;

use super::disguise::disguise;
use super::{Answer, Connection, Cut, Gate, Gates, Rule, RuleKind, SeenRequest, Shared};
use crate::raw::ConnectOptions;

/// Attempts of a patient proxy to connect, and their interval: two seconds in all.
const TRIES_MAX: usize = 40;
const TURN: Duration = Duration::from_millis(50);

pub(super) async fn accept(
    listener: TcpListener,
    upstreams: Arc<[SocketAddr]>,
    shared: Arc<Shared>,
) {
    loop {
        // An accept error concerns only the connection that failed.
        let Ok((client, _)) = listener.accept().await else {
            continue;
        };
        let mut state = shared.state();
        if state.refuse {
            // If a reset is not possible, the connection is closed normally.
            let _ = client.set_zero_linger();
            continue;
        }
        let id = state.next_connection;
        state.next_connection += 1;
        let upstream = upstreams[id % upstreams.len()];
        let (cut, cut_off) = oneshot::channel();
        let task = tokio::spawn(serve(id, client, upstream, cut_off, Arc::clone(&shared)));
        state.connections.insert(id, Connection { cut, task });
    }
}

/// Serves one connection from its first to its last byte.
async fn serve(
    id: usize,
    client: TcpStream,
    upstream: SocketAddr,
    cut_off: oneshot::Receiver<Cut>,
    shared: Arc<Shared>,
) {
    // Registered by the accepting task under the lock that it held when it spawned this one.
    let how = match connect(upstream, shared.plain).await {
        Ok(server) => {
            shared.state().connections_made += 1;
            carry(client, server, cut_off, &shared).await
        }
        // Like a server that is down: the client sees its connection closed.
        Err(_) => End::default(),
    };
    shared.state().connections.remove(&id);
    if let Some(happened) = how.happened {
        // An error means that no test waits for the fault.
        let _ = happened.send(());
    }
}

/// Connects to the server. Members of an ensemble retry a refused connection, but this proxy has already accepted theirs. So it retries for
/// them until the server listens.
async fn connect(upstream: SocketAddr, is_patient: bool) -> io::Result<TcpStream> {
    let mut turns = interval(TURN);
    let mut tries = if is_patient { TRIES_MAX } else { 1 };
    loop {
        turns.tick().await;
        tries -= 1;
        match TcpStream::connect(upstream).await {
            Err(_) if tries > 0 => {}
            connected => return connected,
        }
    }
}

/// Why a connection ended.
#[derive(Debug, Default)]
struct End {
    cut: Option<Cut>,
    happened: Option<oneshot::Sender<()>>,
}

/// Copies bytes in both directions until both have ended or a fault cuts them; then the sockets are closed.
async fn carry(
    client: TcpStream,
    server: TcpStream,
    cut_off: oneshot::Receiver<Cut>,
    shared: &Shared,
) -> End {
    for stream in [&client, &server] {
        // Only for speed.
        let _ = stream.set_nodelay(true);
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let link = Link {
        shared,
        plain: AtomicBool::new(shared.plain),
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
            // After the client has closed its side, the server may still reply; after the server has, nothing more follows.
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
            // If a reset is not possible, the connection is closed normally.
            let _ = stream.set_zero_linger();
        }
    }
    end
}

/// State that both directions of a connection share.
struct Link<'a> {
    shared: &'a Shared,
    /// Whether the client sends something other than frames.
    plain: AtomicBool,
    /// Requests in flight: their xids, and the rule that waits for the reply.
    pending: Mutex<VecDeque<(i32, Option<Rule>)>>,
}

/// How a direction ended: normally, or by a fault to report.
type WayEnd = io::Result<Option<oneshot::Sender<()>>>;

/// One direction of a connection.
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
            let chunk = match connected {
                true => self.replace(self.disguise(chunk)),
                false => self.rewrite(chunk),
            };
            connected = true;
            if !self.forward(chunk).await? {
                return Ok(None);
            }
        }
    }

    async fn carry_replies(&mut self) -> WayEnd {
        let mut connected = false;
        loop {
            let mut chunk = self.next_chunk(false).await?;
            if let Some(frame) = chunk.frame().filter(|_| !connected) {
                self.note_session(&frame);
            }
            if let Some(frame) = chunk.frame().filter(|_| connected)
                && let Some(Rule { kind, happened, .. }) = self.note_reply(&frame)
            {
                match kind {
                    RuleKind::Answer(answer) => {
                        chunk = answer.instead_of(&frame);
                        // An error means that no test waits for the fault.
                        let _ = happened.send(());
                    }
                    RuleKind::SwallowReply | RuleKind::DropRequest => return Ok(Some(happened)),
                }
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

    /// Reads the next frame, or any bytes if they are not frames.
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

    /// Waits for the delay, and until nothing holds this direction.
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

    /// Forwards a chunk; false at the end.
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

    /// Counts a request and remembers its xid. Returns a fault to report if the request must not be forwarded.
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
        // The reply to a ping has this xid, whatever the xid of the ping.
        let xid = if op == Op::Ping { -2 } else { header.xid };
        let mut pending = self.link.pending();
        pending.push_back((xid, rule));
        state.in_flight_max = state.in_flight_max.max(pending.len());
        None
    }

    /// Replaces the numbers of hidden operations by an unknown one.
    fn disguise(&self, chunk: Chunk) -> Chunk {
        let state = self.link.shared.state();
        match chunk.frame().filter(|_| !state.hidden.is_empty()) {
            None => chunk,
            Some(request) => {
                let disguised = disguise(&request, &state.hidden);
                let mut bytes = BytesMut::new();
                frame::put(&mut bytes, |out| out.extend_from_slice(&disguised));
                Chunk::Frame(bytes.freeze())
            }
        }
    }

    /// Replaces a text in the first bytes of a connection without frames.
    fn rewrite(&self, chunk: Chunk) -> Chunk {
        let state = self.link.shared.state();
        let Some(((from, to), Chunk::Plain(bytes))) = state.opening.as_ref().zip(Some(&chunk))
        else {
            return chunk;
        };
        let Some(at) = bytes.windows(from.len()).position(|window| window == from) else {
            return chunk;
        };
        let mut bytes = BytesMut::from(&bytes[..]);
        bytes[at..at + to.len()].copy_from_slice(to);
        Chunk::Plain(bytes.freeze())
    }

    /// Replaces a request that the proxy answers by a read of the root. The request was noted right before.
    fn replace(&self, chunk: Chunk) -> Chunk {
        let frame = chunk.frame();
        match (
            self.link.pending().back(),
            frame.as_deref().and_then(xid_of),
        ) {
            (Some((noted, Some(rule))), Some(xid))
                if *noted == xid && matches!(rule.kind, RuleKind::Answer(_)) =>
            {
                let mut look = BytesMut::new();
                request::put(&mut look, xid, Op::Exists, |out| {
                    request::put_path_watch(out, "/", false);
                });
                Chunk::Frame(look.freeze())
            }
            _ => chunk,
        }
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

    /// Removes a reply from the expected ones, and returns the rule that waited for it, if any.
    fn note_reply(&self, frame: &Bytes) -> Option<Rule> {
        let xid = xid_of(frame)?;
        let mut pending = self.link.pending();
        let place = pending.iter().position(|sent| sent.0 == xid)?;
        let (_, rule) = pending.remove(place)?;
        rule
    }
}

impl Link<'_> {
    fn pending(&self) -> MutexGuard<'_, VecDeque<(i32, Option<Rule>)>> {
        self.pending.lock().expect("nothing panics under this lock")
    }
}

/// A unit to forward: a frame with its length, or other bytes.
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

impl Answer {
    /// The reply with this answer to the same request.
    fn instead_of(&self, reply: &Bytes) -> Chunk {
        let (xid, zxid) = (&reply[..4], &reply[4..12]);
        let mut frame = BytesMut::new();
        frame::put(&mut frame, |out| {
            out.extend_from_slice(xid);
            match self.zxid {
                Some(zxid) => out.extend_from_slice(&zxid.to_be_bytes()),
                None => out.extend_from_slice(zxid),
            }
            out.extend_from_slice(&self.code.to_be_bytes());
            out.extend_from_slice(&self.body);
        });
        Chunk::Frame(frame.freeze())
    }
}

fn xid_of(frame: &[u8]) -> Option<i32> {
    Reader::new(frame).int().ok()
}
