//! One connection: reads requests, hands them on, and writes the replies.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bellwether_wire::code::ErrorCode;
use bellwether_wire::frame;
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::request::{RequestHeader, skip_reconfig};
use bytes::BytesMut;
use tokio::sync::watch;
use tokio::time::{timeout, timeout_at};

use super::authentication;
use super::handshake::{self, Greeting};
use super::input::Input;
use crate::client::sasl::Negotiation;
use crate::client::{Admitted, Newcomer, Opened, Peer, Request};
use crate::config::Config;
use crate::engine::Engine;
use crate::four_letter;
use crate::metrics::Limit;
use crate::publish::Rearming;
use crate::session::Session;
use crate::writer::Submission;

/// Time that a client has to read its last replies before the connection is closed.
const LINGER: Duration = Duration::from_secs(5);

/// The xid of every reply to a ping.
const PING_XID: i32 = -2;

/// Bytes of requests that a connection handles before others get their turn, each request with [`REQUEST_BYTES`] more.
const TURN_BYTES: usize = 32 << 10;

/// Cost of a request besides its length.
const REQUEST_BYTES: usize = 64;

/// The connection is over. A last reply, if any, is in the outbox.
#[derive(Debug)]
pub(super) struct Over;

/// A connection that is ready to be served.
#[derive(Debug)]
pub(crate) struct Ready {
    pub(crate) opened: Opened,
    pub(crate) admitted: Admitted,
    /// Bytes received so far.
    pub(crate) received: BytesMut,
    /// When the first message must have arrived.
    pub(crate) greeted_by: tokio::time::Instant,
}

/// Serves one connection until it ends. However this ends, even by a panic, `admitted` and [`Connection`] clean up.
pub(crate) async fn serve(engine: Arc<Engine>, ready: Ready) {
    let Ready {
        opened,
        mut admitted,
        received,
        greeted_by,
    } = ready;
    let newcomer = admitted.take_newcomer();
    let peer = admitted.clone();
    if let Some(subject) = opened.client_name {
        authentication::certified(&engine.config(), &peer, subject);
    }
    let mut settings = engine.settings.subscribe();
    let config = settings.borrow_and_update().clone();
    let mut connection = Connection {
        engine,
        settings,
        config,
        peer: peer.clone(),
        newcomer,
        session: None,
        input: Input::new(opened.reading, admitted.share()),
        sasl: Negotiation::default(),
        turn_bytes: 0,
    };
    connection.input.resume(received);
    let mut written = pin!(peer.outbox.write_to(opened.writing));
    let all_written = tokio::select! {
        biased;
        () = connection.converse(greeted_by) => false,
        () = &mut written => true,
    };
    drop(connection);
    if !all_written && timeout(LINGER, written).await.is_err() {
        tracing::debug!(address = %peer.address, "client did not read its last replies in time");
    }
}

struct Connection {
    engine: Arc<Engine>,
    settings: watch::Receiver<Arc<Config>>,
    /// The settings in force when the last request arrived.
    config: Arc<Config>,
    peer: Arc<Peer>,
    newcomer: Option<Newcomer>,
    session: Option<Arc<Session>>,
    input: Input,
    sasl: Negotiation,
    /// Bytes of requests handled in this turn.
    turn_bytes: usize,
}

impl Connection {
    /// Handles requests until the connection is over. By then its outbox is closed, or closes when everything in it is written.
    async fn converse(&mut self, greeted_by: tokio::time::Instant) {
        if let Err(Over) = self.greet(greeted_by).await {
            return;
        }
        while let Ok(()) = self.requests().await {}
    }

    /// Handles the first message, which must arrive in time: a four-letter word or a session.
    async fn greet(&mut self, by: tokio::time::Instant) -> Result<(), Over> {
        let frame_bytes_max = self.engine.frame_bytes_max.load(Relaxed);
        let greeting = handshake::greeting(&mut self.input, &self.peer, frame_bytes_max);
        let greeting = timeout_at(by, greeting);
        match greeting.await {
            Ok(Ok(Greeting::Word(word, argument))) => {
                self.engine.stats.received.fetch_add(1, Relaxed);
                let text = four_letter::answer(&self.engine, &self.peer, word, argument);
                let is_change = matches!(word, "crst" | "srst" | "stmk");
                if let (Some(audit), true) = (&self.engine.audit, is_change) {
                    let is_allowed = four_letter::is_allowed(&self.engine, &self.peer, word);
                    audit.note(&self.peer, word, is_allowed);
                }
                self.peer
                    .outbox
                    .push(|out| out.extend_from_slice(text.as_bytes()));
                self.peer.outbox.finish();
                Err(Over)
            }
            Ok(Ok(Greeting::Connect(request))) => {
                self.engine.stats.received.fetch_add(1, Relaxed);
                // A session that is resumed needs no write.
                let _opening = match request.session_id {
                    0 => Some(self.engine.connections.opening(&self.peer).await),
                    _ => None,
                };
                self.peer.request_waits();
                self.session = Some(handshake::open(&self.engine, &self.peer, &request)?);
                // Requests that arrived with the connect request are answered after it, even auth and sasl, which have no order.
                self.peer.drained().await;
                self.newcomer = None;
                Ok(())
            }
            Ok(Err(Over)) | Err(_) => {
                self.peer.outbox.close();
                Err(Over)
            }
        }
    }

    /// Handles all complete requests, then waits for more.
    async fn requests(&mut self) -> Result<(), Over> {
        loop {
            let frame_bytes_max = self.engine.frame_bytes_max.load(Relaxed);
            let frame = match frame::take(&mut self.input.bytes, frame_bytes_max) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(address = %self.peer.address, %error, "connection closed");
                    self.peer.reach(Limit::FrameBytes);
                    self.peer.outbox.close();
                    return Err(Over);
                }
            };
            let Some((header, body)) = frame.split_at_checked(RequestHeader::LENGTH) else {
                self.peer.outbox.close();
                return Err(Over);
            };
            let header = RequestHeader::decode(&mut Reader::new(header)).map_err(|_| Over)?;
            self.request(header, frame.slice_ref(body)).await?;
            self.hold_back().await;
            self.end_turn(frame.len()).await;
        }
        self.input.fill(&self.peer).await
    }

    /// Lets other connections run after enough requests. Waiting for more bytes does not when a client sends them as fast as they are read.
    async fn end_turn(&mut self, bytes: usize) {
        self.turn_bytes += REQUEST_BYTES + bytes;
        if self.turn_bytes >= TURN_BYTES {
            self.turn_bytes = 0;
            self.peer.outbox.flush();
            tokio::task::yield_now().await;
        }
    }

    async fn request(&mut self, header: RequestHeader, body: bytes::Bytes) -> Result<(), Over> {
        let session = self
            .session
            .as_ref()
            .expect("requests are read only with a session");
        self.engine.stats.received.fetch_add(1, Relaxed);
        self.peer.stats.received.fetch_add(1, Relaxed);
        let bytes = frame::LENGTH_BYTES + RequestHeader::LENGTH + body.len();
        let meters = &self.engine.stats.meters;
        meters.received_bytes.fetch_add(bytes as u64, Relaxed);
        self.peer.traffic.add_request(bytes);
        // A session that has ended stays ended, and its requests get no more replies.
        if !self.engine.sessions.touch(session) {
            return Ok(());
        }
        let op = Op::from_number(header.op);
        let request = Request {
            peer: self.peer.clone(),
            xid: if op == Some(Op::Ping) {
                PING_XID
            } else {
                header.xid
            },
            op,
            ids: self.peer.ids(),
            body,
            received: Instant::now(),
        };
        match op {
            Some(Op::Auth) => return authentication::auth(&self.engine, &request),
            Some(Op::Sasl) => return authentication::sasl(&self.engine, &mut self.sasl, &request),
            _ => {}
        }
        // One load of an atomic, unless there was a reload.
        if self.settings.has_changed().unwrap_or(false) {
            self.config = self.settings.borrow_and_update().clone();
        }
        if !authentication::suffices(&self.config, &self.peer, &request.ids) {
            self.peer
                .reply(&request, 0, Err(ErrorCode::AuthRequired), |_| {});
            self.peer.outbox.finish();
            return Err(Over);
        }
        // No request after these is read: their replies are the last.
        let is_last = matches!(op, None | Some(Op::CloseSession));
        if is_write(&request) {
            self.write(request)?;
        } else if Rearming::is_long(&request) {
            self.rearm(session, &request).await;
        } else if !self.engine.published.read(session, request) {
            self.peer.outbox.flush();
            self.peer.drained().await;
        }
        if is_last {
            self.peer.outbox.ended().await;
            // Earlier reads may still be running.
            self.peer.drained().await;
            return Err(Over);
        }
        Ok(())
    }

    /// Submits a write, in the order of this session.
    fn write(&self, request: Request) -> Result<(), Over> {
        let session = self
            .session
            .as_ref()
            .expect("requests are read only with a session");
        let mut order = session.request_order();
        if !order.belongs_to(&self.peer) || session.has_ended() {
            return Ok(());
        }
        if request.op == Some(Op::CloseSession) {
            session.end();
        }
        let behind_reads = order.accept_write();
        self.engine.published.wait(&request);
        if self.engine.submit.submit(Submission::Request {
            session: session.clone(),
            request,
            behind_reads,
        }) {
            Ok(())
        } else {
            self.peer.outbox.close();
            Err(Over)
        }
    }

    /// Arms many watches, in parts, and lets other requests pass between two parts.
    async fn rearm(&self, session: &Session, request: &Request) {
        // Earlier requests are answered first, so that no part has to wait for a write of this session.
        self.peer.outbox.flush();
        self.peer.drained().await;
        let mut rearming = Rearming::decode(request);
        while !self.engine.published.rearm(session, request, &mut rearming) {
            tokio::task::yield_now().await;
        }
    }

    /// Backpressure: stops reading while too many requests wait for the disk, or too many replies for this client.
    async fn hold_back(&self) {
        let outbox = &self.peer.outbox;
        let (stats, config) = (&self.engine.stats, &self.config);
        let is_too_much = stats.outstanding.load(Relaxed) > config.outstanding_max as u64
            || stats.outstanding_bytes.load(Relaxed) > config.outstanding_bytes_max as u64;
        if is_too_much && self.peer.outstanding() > 0 {
            self.peer.reach(Limit::Outstanding);
            outbox.flush();
            self.peer.drained().await;
        }
        if outbox.is_crowded() {
            outbox.flush();
            // Its pings are not read meanwhile. That it reads shows that it lives.
            let touch = || {
                if let Some(session) = &self.session {
                    self.engine.sessions.touch(session);
                }
            };
            outbox.room(touch).await;
        }
    }
}

impl Drop for Connection {
    /// Detaches the session from this connection.
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.engine.published.disconnect(session, &self.peer);
        }
    }
}

/// Whether a request takes a zxid. A `reconfig` takes one if it can be decoded.
fn is_write(request: &Request) -> bool {
    match request.op {
        Some(Op::Reconfig) => skip_reconfig(&mut Reader::new(&request.body)).is_ok(),
        Some(op) => op.is_write(),
        None => false,
    }
}
