//! The first message of a client: a four-letter word, or a request for a session.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bellwether_wire::connect::{ConnectReply, ConnectRequest};
use bellwether_wire::frame;
use bytes::BytesMut;

use super::connection::Over;
use super::input::Input;
use crate::client::Peer;
use crate::clock;
use crate::config::known_word;
use crate::engine::Engine;
use crate::metrics::Limit;
use crate::session::Session;
use crate::writer::Submission;

/// What a connection is for.
#[derive(Debug)]
pub(super) enum Greeting {
    /// A four-letter word, and the number after `stmk`.
    Word(&'static str, i64),
    /// A session.
    Connect(ConnectRequest),
}

/// Whether the first message has arrived, of which these are the bytes so far. Fails if no message begins like this.
pub(super) fn has_arrived(bytes: &[u8], peer: &Peer, frame_bytes_max: usize) -> Result<bool, Over> {
    if bytes.get(..4).is_some_and(|word| word_of(word).is_some()) {
        return Ok(true);
    }
    match frame::peek(bytes, frame_bytes_max) {
        Ok(None) => Ok(false),
        Ok(Some(frame)) => match ConnectRequest::decode(frame) {
            Ok(_) => Ok(true),
            Err(_) => Err(Over),
        },
        Err(_) => {
            peer.reach(Limit::FrameBytes);
            Err(Over)
        }
    }
}

/// The four-letter word that these bytes are.
fn word_of(bytes: &[u8]) -> Option<&'static str> {
    std::str::from_utf8(bytes).ok().and_then(known_word)
}

/// Reads the first message.
pub(super) async fn greeting(
    input: &mut Input,
    peer: &Peer,
    frame_bytes_max: usize,
) -> Result<Greeting, Over> {
    while input.bytes.len() < 4 {
        input.fill(peer).await?;
    }
    if let Some(word) = word_of(&input.bytes[..4]) {
        let argument = if word == "stmk" {
            mask(input, peer).await?
        } else {
            0
        };
        return Ok(Greeting::Word(word, argument));
    }
    loop {
        match frame::take(&mut input.bytes, frame_bytes_max) {
            Ok(Some(frame)) => {
                return ConnectRequest::decode(&frame)
                    .map(Greeting::Connect)
                    .map_err(|_| Over);
            }
            Ok(None) => input.fill(peer).await?,
            Err(_) => {
                peer.reach(Limit::FrameBytes);
                return Err(Over);
            }
        }
    }
}

async fn mask(input: &mut Input, peer: &Peer) -> Result<i64, Over> {
    loop {
        if let Some(bytes) = input.bytes.get(4..12) {
            return Ok(i64::from_be_bytes(bytes.try_into().expect("eight bytes")));
        }
        input.fill(peer).await?;
    }
}

/// Opens a new session, or resumes an existing one. The reply is sent when the new session is on disk, or the earlier writes of the
/// existing one are.
pub(super) fn open(
    engine: &Engine,
    peer: &Arc<Peer>,
    request: &ConnectRequest,
) -> Result<Arc<Session>, Over> {
    if request.last_zxid_seen > engine.published.last_zxid() {
        // The client has seen a later zxid than this server has. It must not receive "session expired", because it would give up its locks.
        tracing::warn!(address = %peer.address, seen = request.last_zxid_seen, "client has seen a later zxid than this server, connection closed");
        peer.outbox.close();
        return Err(Over);
    }
    let timeout_ms = engine.config().negotiate_timeout_ms(request.timeout_ms);
    peer.stats.established_ms.store(clock::wall_ms(), Relaxed);
    if request.session_id == 0 && engine.sessions.len() >= engine.config().sessions_max {
        // Closed without a reply: a refusal would look like an expired session, and the client would not retry.
        engine.stats.sessions_rejected.fetch_add(1, Relaxed);
        peer.reach(Limit::Sessions);
        tracing::warn!(address = %peer.address, "session limit reached, connection closed");
        peer.outbox.close();
        return Err(Over);
    }
    let session = if request.session_id == 0 {
        create(engine, peer, request, timeout_ms)?
    } else {
        reattach(engine, peer, request, timeout_ms)?
    };
    peer.set_session_id(session.id);
    Ok(session)
}

fn create(
    engine: &Engine,
    peer: &Arc<Peer>,
    request: &ConnectRequest,
    timeout_ms: i32,
) -> Result<Arc<Session>, Over> {
    let (session, password) = engine.sessions.open(timeout_ms, peer.address.user());
    let mut order = session.request_order();
    order.attach(peer.clone());
    order.accept_write();
    let submission = Submission::OpenSession {
        session: session.clone(),
        peer: peer.clone(),
        timeout_ms,
        password,
        has_read_only: request.has_read_only,
    };
    if !engine.submit.submit(submission) {
        peer.outbox.close();
        return Err(Over);
    }
    drop(order);
    tracing::info!(session = format_args!("{:#x}", session.id), address = %peer.address, "session opened");
    Ok(session)
}

fn reattach(
    engine: &Engine,
    peer: &Arc<Peer>,
    request: &ConnectRequest,
    timeout_ms: i32,
) -> Result<Arc<Session>, Over> {
    let note = |is_allowed| {
        if let Some(audit) = &engine.audit {
            audit.note_of(request.session_id, peer, "resumeSession", is_allowed);
        }
    };
    let (id, user) = (request.session_id, peer.address.user());
    // No client can know a session that is not on disk yet: its id and password are guessed.
    let known = engine.published.has_session(id);
    let resumed = known.then(|| engine.sessions.resume(id, user, &request.password));
    if let Some((session, password)) = resumed.flatten() {
        session.set_timeout_ms(timeout_ms);
        let reply = ConnectReply {
            timeout_ms,
            session_id: session.id,
            password,
        };
        let mut frame = BytesMut::new();
        frame::put(&mut frame, |out| reply.encode(request.has_read_only, out));
        if engine.sessions.touch(&session) && engine.published.reattach(&session, peer, frame) {
            note(true);
            return Ok(session);
        }
    }
    note(false);
    peer.outbox.push(|out| {
        frame::put(out, |out| {
            ConnectReply::REFUSED.encode(request.has_read_only, out)
        });
    });
    peer.outbox.finish();
    Err(Over)
}
