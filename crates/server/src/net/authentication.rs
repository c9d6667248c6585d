//! Who a client is. Handled when it comes, outside the order of the session, as in Apache.

use std::sync::atomic::Ordering::Relaxed;

use super::connection::Over;
use crate::config::Config;
use crate::engine::Engine;
use crate::proto::acl::Id;
use crate::proto::code::ErrorCode;
use crate::proto::jute::{Reader, Writer as _};
use crate::proto::request::Auth;
use crate::request::Request;
use crate::tree::access;

/// The zxid in answers to these packets.
const NO_ZXID: i64 = 0;

/// How many ids a connection has at most: each request is checked against all of them. One more is
/// refused like one that was not proven.
const IDS_MAX: usize = 100;

/// How long all of them may be: each `auth` in an access list becomes all that were proven. Beyond it, another is
/// refused as well.
const IDS_BYTES_MAX: usize = 64 << 10;

/// Adds what the client proves to the ids of its connection.
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
            if engine.config.super_digest.as_ref() == Some(&id) {
                ids = access::with_id(&ids, Id::new("super", ""));
            }
            peer.set_ids(access::with_id(&ids, Id::new("digest", id)));
        }
        // The address was known before.
        (Some("ip"), _) => {}
        _ => {
            engine.stats.auth_failures.fetch_add(1, Relaxed);
            tracing::warn!(address = %peer.address, scheme = ?auth.scheme, "authentication failed");
            peer.reply(request, NO_ZXID, Err(ErrorCode::AuthFailed), |_| {});
            peer.outbox.finish();
            return Err(Over);
        }
    }
    peer.reply(request, NO_ZXID, Ok(()), |_| {});
    Ok(())
}

/// Whether a connection with these ids may have another of so many bytes.
fn has_room(ids: &[Id], bytes: usize) -> bool {
    let used: usize = ids.iter().map(Id::encoded_bytes).sum();
    ids.len() < IDS_MAX && used + bytes <= IDS_BYTES_MAX
}

/// No mechanism is set up: any token is answered with none, as Apache does then.
pub(super) fn sasl(request: &Request) -> Result<(), Over> {
    match Reader::new(&request.body).buffer() {
        Ok(Some(_)) => {
            request
                .peer
                .reply(request, NO_ZXID, Ok(()), |out| out.put_buffer(None));
            Ok(())
        }
        _ => {
            request.peer.outbox.close();
            Err(Over)
        }
    }
}

/// Whether a connection with these ids may ask for anything.
pub(super) fn suffices(config: &Config, ids: &[Id]) -> bool {
    let schemes = &config.enforce_auth_schemes;
    schemes.is_empty() || ids.iter().any(|id| schemes.contains(&id.scheme))
}
