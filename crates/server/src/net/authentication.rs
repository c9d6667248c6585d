//! Authenticates clients. Packets are handled on arrival, outside the order of the session, as in Apache.

use std::sync::atomic::Ordering::Relaxed;

use bellwether_wire::acl::Id;
use bellwether_wire::code::ErrorCode;
use bellwether_wire::jute::{Reader, Writer as _};
use bellwether_wire::request::Auth;

use super::connection::Over;
use crate::client::sasl::{Negotiation, Step};
use crate::client::{Peer, PeerAddress, Request};
use crate::config::Config;
use crate::engine::Engine;
use crate::tree::access;

/// The zxid in replies to authentication packets.
const NO_ZXID: i64 = 0;

/// Maximum number of ids per connection: each request is checked against all of them. A further id is refused like an invalid one.
const IDS_MAX: usize = 100;

/// Maximum total length of these ids: each `auth` in an access list expands to all proven ids. A further id is refused as well.
const IDS_BYTES_MAX: usize = 64 << 10;

/// How much of an unknown scheme is logged: it is the client's text, and may be as long as a frame.
const SCHEME_CHARS_LOGGED: usize = 40;

/// Adds the id that the client proves to the ids of its connection.
pub(super) fn auth(engine: &Engine, request: &Request) -> Result<(), Over> {
    let peer = &request.peer;
    let Ok(auth) = Auth::decode(&mut Reader::new(&request.body)) else {
        peer.outbox.close();
        return Err(Over);
    };
    match (auth.scheme.as_deref(), auth.data) {
        (Some("digest"), Some(data)) if has_room(&request.ids, data.len()) => {
            let id = access::digest_id(&String::from_utf8_lossy(data));
            let mut ids = request.ids.clone();
            if engine.config().super_digest.as_ref() == Some(&id) {
                ids = access::with_id(&ids, Id::new("super", ""));
            }
            peer.set_ids(access::with_id(&ids, Id::new("digest", id)));
        }
        // The address of the connection is already among its ids.
        (Some("ip"), _) => {}
        (Some(scheme @ ("x509" | "unix")), _)
            if request.ids.iter().any(|id| id.scheme == scheme) => {}
        _ => {
            note_failure(engine, peer, "addAuth");
            let scheme = auth.scheme.as_deref().unwrap_or_default();
            let scheme: String = scheme.chars().take(SCHEME_CHARS_LOGGED).collect();
            tracing::warn!(address = %peer.address, scheme, "authentication failed");
            peer.reply(request, NO_ZXID, Err(ErrorCode::AuthFailed), |_| {});
            peer.outbox.finish();
            return Err(Over);
        }
    }
    peer.reply(request, NO_ZXID, Ok(()), |_| {});
    Ok(())
}

/// Counts a failed attempt, and writes it to the audit log.
fn note_failure(engine: &Engine, peer: &Peer, operation: &str) {
    engine.stats.auth_failures.fetch_add(1, Relaxed);
    if let Some(audit) = &engine.audit {
        audit.note(peer, operation, false);
    }
}

/// Whether a connection with these ids may get another one of `bytes` bytes.
fn has_room(ids: &[Id], bytes: usize) -> bool {
    let used: usize = ids.iter().map(Id::encoded_bytes).sum();
    ids.len() < IDS_MAX && used + bytes <= IDS_BYTES_MAX
}

/// Adds the subject of a verified certificate to the ids.
pub(super) fn certified(config: &Config, peer: &Peer, subject: String) {
    let mut ids = peer.ids();
    let super_subject = config
        .tls
        .as_ref()
        .and_then(|tls| tls.super_subject.as_ref());
    if super_subject == Some(&subject) {
        ids = access::with_id(&ids, Id::new("super", ""));
    }
    peer.set_ids(access::with_id(&ids, Id::new("x509", subject)));
}

/// Continues the SASL exchange in which a user proves a password. If no users are configured, any token is answered with null, as in
/// Apache.
pub(super) fn sasl(
    engine: &Engine,
    negotiation: &mut Negotiation,
    request: &Request,
) -> Result<(), Over> {
    let peer = &request.peer;
    let Ok(Some(token)) = Reader::new(&request.body).buffer() else {
        peer.outbox.close();
        return Err(Over);
    };
    let answer = |token: Option<&str>| {
        let token = token.map(str::as_bytes);
        peer.reply(request, NO_ZXID, Ok(()), |out| out.put_buffer(token));
    };
    let Some(users) = engine.sasl_users() else {
        answer(None);
        return Ok(());
    };
    match negotiation.step(&users, token) {
        Ok(Step::Challenge(challenge)) => answer(Some(&challenge)),
        Ok(Step::Proven(proof, user)) if has_room(&request.ids, user.len()) => {
            let mut ids = request.ids.clone();
            if engine.config().sasl_super_user.as_ref() == Some(&user) {
                ids = access::with_id(&ids, Id::new("super", ""));
            }
            peer.set_ids(access::with_id(&ids, Id::new("sasl", user)));
            answer(Some(&proof));
        }
        _ => {
            note_failure(engine, peer, "sasl");
            tracing::warn!(address = %peer.address, "SASL authentication failed");
            peer.reply(request, NO_ZXID, Err(ErrorCode::AuthFailed), |out| {
                out.put_buffer(None);
            });
            peer.outbox.finish();
            return Err(Over);
        }
    }
    Ok(())
}

/// Whether a connection with these ids may send requests. This process may: who can use it can read its memory.
pub(super) fn suffices(config: &Config, peer: &Peer, ids: &[Id]) -> bool {
    let schemes = &config.enforce_auth_schemes;
    schemes.is_empty()
        || peer.address == PeerAddress::Inside
        || ids.iter().any(|id| schemes.contains(&id.scheme))
}
