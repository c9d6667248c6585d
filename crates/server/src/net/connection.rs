//! One connection: reads requests and hands them on, and writes what comes back.

use std::io::ErrorKind;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tokio::time::timeout;

use super::handshake::{self, Greeting};
use super::socket::{ReadHalf, Socket};
use super::{authentication, words};
use crate::connections::Admitted;
use crate::engine::Engine;
use crate::outbox::KEPT_BYTES;
use crate::peer::Peer;
use crate::proto::code::ErrorCode;
use crate::proto::frame;
use crate::proto::jute::Reader;
use crate::proto::op::Op;
use crate::proto::request::{RequestHeader, skip_reconfig};
use crate::request::Request;
use crate::session::Session;
use crate::writer::Submission;

/// How long a client has to take its last replies.
const LINGER: Duration = Duration::from_secs(5);

/// How much is read from a socket at once.
const READ_BYTES: usize = 16 << 10;

/// The xid of every answer to a ping.
const PING_XID: i32 = -2;

/// The connection is over; if anything was to be said, it is in the outbox.
#[derive(Debug)]
pub(super) struct Over;

/// Serves one connection to its end. Whatever ends this, a panic too, `admitted` and [`Connection`] forget it.
pub(crate) async fn serve(engine: Arc<Engine>, socket: Socket, admitted: Admitted) {
    let peer = admitted.clone();
    let (reading, writing) = socket.into_split();
    let mut connection = Connection {
        engine,
        peer: peer.clone(),
        session: None,
        input: Input {
            socket: reading,
            bytes: BytesMut::new(),
            is_large: false,
        },
    };
    let mut written = pin!(peer.outbox.write_to(writing));
    let all_written = tokio::select! {
        () = connection.converse() => false,
        () = &mut written => true,
    };
    drop(connection);
    if !all_written && timeout(LINGER, written).await.is_err() {
        tracing::debug!(address = %peer.address, "client did not take its last replies");
    }
}

struct Connection {
    engine: Arc<Engine>,
    peer: Arc<Peer>,
    session: Option<Arc<Session>>,
    input: Input,
}

impl Connection {
    /// Reads until there is nothing more to read. Whatever ends it ends the outbox too.
    async fn converse(&mut self) {
        if let Err(Over) = self.greet().await {
            return;
        }
        while let Ok(()) = self.requests().await {}
    }

    /// The start: a four-letter word, or a session.
    async fn greet(&mut self) -> Result<(), Over> {
        let limit = self.engine.config.handshake_timeout;
        let frame_bytes_max = self.engine.frame_bytes_max.load(Relaxed);
        let greeting = timeout(
            limit,
            handshake::greeting(&mut self.input, &self.peer, frame_bytes_max),
        );
        match greeting.await {
            Ok(Ok(Greeting::Word(word, argument))) => {
                self.engine.stats.received.fetch_add(1, Relaxed);
                let text = words::answer(&self.engine, &self.peer, word, argument);
                self.peer
                    .outbox
                    .push(|out| out.extend_from_slice(text.as_bytes()));
                self.peer.outbox.finish();
                Err(Over)
            }
            Ok(Ok(Greeting::Connect(request))) => {
                self.engine.stats.received.fetch_add(1, Relaxed);
                self.peer.request_waits();
                self.session = Some(handshake::open(&self.engine, &self.peer, &request)?);
                // What came with the request is answered behind it, even what has no order.
                self.peer.drained().await;
                Ok(())
            }
            Ok(Err(Over)) | Err(_) => {
                self.peer.outbox.close();
                Err(Over)
            }
        }
    }

    /// Handles all requests that have come, then waits for more.
    async fn requests(&mut self) -> Result<(), Over> {
        loop {
            let frame_bytes_max = self.engine.frame_bytes_max.load(Relaxed);
            let frame = match frame::take(&mut self.input.bytes, frame_bytes_max) {
                Ok(Some(frame)) => frame,
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!(address = %self.peer.address, %error, "connection closed");
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
        }
        self.input.fill(&self.peer).await
    }

    async fn request(&mut self, header: RequestHeader, body: bytes::Bytes) -> Result<(), Over> {
        let session = self
            .session
            .as_ref()
            .expect("requests are read only with a session");
        self.engine.stats.received.fetch_add(1, Relaxed);
        self.peer.stats.received.fetch_add(1, Relaxed);
        // A session that has ended stays so, and nothing of it is answered any more.
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
            Some(Op::Sasl) => return authentication::sasl(&request),
            _ => {}
        }
        if !authentication::suffices(&self.engine.config, &request.ids) {
            self.peer
                .reply(&request, 0, Err(ErrorCode::AuthRequired), |_| {});
            self.peer.outbox.finish();
            return Err(Over);
        }
        // Nothing behind these is read any more: their answers are the last.
        let is_last = matches!(op, None | Some(Op::CloseSession));
        if is_write(&request) {
            self.write(request)?;
        } else if !self.engine.published.read(session, request) {
            self.peer.outbox.flush();
            self.peer.drained().await;
        }
        if is_last {
            self.peer.outbox.ended().await;
            // Reads before it may take long.
            self.peer.drained().await;
            return Err(Over);
        }
        Ok(())
    }

    /// Hands a write to the writer, in the order of this session.
    fn write(&self, request: Request) -> Result<(), Over> {
        let session = self
            .session
            .as_ref()
            .expect("requests are read only with a session");
        let mut lane = session.lane();
        if !lane.belongs_to(&self.peer) || session.has_ended() {
            return Ok(());
        }
        if request.op == Some(Op::CloseSession) {
            session.end();
        }
        let behind_reads = lane.accept_write();
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

    /// Stops reading while too much waits: for the disk, or for this client to read.
    async fn hold_back(&self) {
        let outbox = &self.peer.outbox;
        let (stats, config) = (&self.engine.stats, &self.engine.config);
        let is_too_much = stats.outstanding.load(Relaxed) > config.outstanding_max as u64
            || stats.outstanding_bytes.load(Relaxed) > config.outstanding_bytes_max as u64;
        if is_too_much && self.peer.outstanding() > 0 {
            outbox.flush();
            self.peer.drained().await;
        }
        if outbox.is_crowded() {
            outbox.flush();
            outbox.room().await;
        }
    }
}

impl Drop for Connection {
    /// Leaves the session without a connection.
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.engine.published.disconnect(session, &self.peer);
        }
    }
}

/// Whether a request takes a zxid. reconfig does if it can be read at all.
fn is_write(request: &Request) -> bool {
    match request.op {
        Some(Op::Reconfig) => skip_reconfig(&mut Reader::new(&request.body)).is_ok(),
        Some(op) => op.is_write(),
        None => false,
    }
}

/// What has been read from a socket and not been looked at yet.
#[derive(Debug)]
pub(super) struct Input {
    socket: ReadHalf,
    pub(super) bytes: BytesMut,
    /// Whether more than [`KEPT_BYTES`] were in that buffer: it is given back when it is empty.
    is_large: bool,
}

impl Input {
    /// Sends the answers to what has come, all at once, and waits for more bytes.
    pub(super) async fn fill(&mut self, peer: &Peer) -> Result<(), Over> {
        peer.outbox.flush();
        // A frame that was long is no reason to keep its room for as long as the connection lives.
        if self.bytes.is_empty() && std::mem::take(&mut self.is_large) {
            self.bytes = BytesMut::new();
        }
        loop {
            tokio::select! {
                // An error shows when it is read.
                _ = self.socket.readable() => {}
                () = peer.outbox.ended() => return Err(Over),
            }
            // Idle connections have no room reserved.
            self.bytes.reserve(READ_BYTES);
            match self.socket.try_read_buf(&mut self.bytes) {
                Ok(count) if count > 0 => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The client is gone, and nothing can be said to it any more.
                _ => {
                    peer.outbox.close();
                    return Err(Over);
                }
            }
        }
        self.is_large |= self.bytes.len() > KEPT_BYTES;
        Ok(())
    }
}
