//! Holders, waiters and crashed holders as JSON.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use bellwether::Who;
use bellwether::hold::Crash;
use bellwether::inspect::{QueueEntry, Wants};
use serde_json::{Value, json};

use super::{hex, ms};

/// A holder or a waiter.
#[must_use]
pub fn entry(entry: &QueueEntry) -> Value {
    json!({
        "node": entry.node,
        "path": entry.path,
        "wants": wants(entry),
        "token": entry.token,
        "owner": entry.owner(),
        "session": hex(entry.session.number()),
        "since_ms": ms(entry.since),
        "who": entry.who.as_ref().map(who),
        "data": data(entry.who.is_none().then_some(&*entry.data)),
        "asked_to_let_go": entry.revocation.is_some(),
    })
}

/// Identity that a process reports of itself.
#[must_use]
pub fn who(who: &Who) -> Value {
    json!({
        "host": who.host,
        "pid": who.pid,
        "user": who.user,
        "command": who.command,
        "message": who.message,
        "value": who.value,
        "since_ms": who.since_ms,
    })
}

/// Crash mark of a holder that never released.
#[must_use]
pub fn crash(crash: &Crash) -> Value {
    json!({
        "who": crash.who.as_ref().map(who),
        "token": crash.token,
        "note": data(crash.note.as_deref()),
        "ended": crash.ended.as_ref().map(|ended| json!({
            "how": ended.how,
            "at_ms": ended.at_ms,
        })),
    })
}

/// Data as an object: `text` if it is UTF-8, otherwise `base64`; null for null.
#[must_use]
pub fn data(data: Option<&[u8]>) -> Value {
    match data.map(|data| (std::str::from_utf8(data), data)) {
        None => Value::Null,
        Some((Ok(text), _)) => json!({"text": text}),
        Some((Err(_), data)) => json!({"base64": BASE64.encode(data)}),
    }
}

fn wants(entry: &QueueEntry) -> Value {
    match entry.wants {
        Wants::Lock => "lock".into(),
        Wants::Read => "read".into(),
        Wants::Write if entry.is_downgraded => "read".into(),
        Wants::Write => "write".into(),
        Wants::Permits(permits) => json!({"permits": permits}),
        Wants::Leadership => "lead".into(),
        Wants::Barrier => "meet".into(),
        Wants::Item => "item".into(),
        _ => Value::Null,
    }
}
