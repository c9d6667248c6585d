//! Audit log: one JSON object per line with client, operation, path and result.
//!
//! A write is logged before it becomes visible. Data and passwords are never logged. Lines are not fsynced one by one: after a power
//! failure the last ones may be missing.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bellwether_wire::acl::Id;
use bellwether_wire::code::ErrorCode;
use bellwether_wire::jute::Reader;

use crate::client::{Peer, Request};
use crate::clock;
use crate::tree::txn::{Txn, TxnBody};

/// The file, and the number of lines that could not be written.
#[derive(Debug)]
pub(crate) struct Audit {
    file: Mutex<File>,
    failures: AtomicU64,
}

impl Audit {
    /// Appends to the file at `path`. A new file is readable only by its owner.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o600)
            .open(path)?;
        Ok(Self {
            file: Mutex::new(file),
            failures: AtomicU64::new(0),
        })
    }

    /// Number of lines that could not be written.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Writes all lines with one call.
    pub(crate) fn write(&self, lines: &Lines) {
        if lines.text.is_empty() {
            return;
        }
        let mut file = self.file.lock().expect("never panics inside");
        if let Err(error) = file.write_all(lines.text.as_bytes()) {
            self.failures.fetch_add(lines.count, Relaxed);
            tracing::error!(%error, lines = lines.count, "cannot write the audit log");
        }
    }

    /// Logs an operation of `peer` other than a write, and whether it was allowed.
    pub(crate) fn note(&self, peer: &Peer, operation: &str, is_allowed: bool) {
        let mut lines = Lines::default();
        let result = if is_allowed { "ok" } else { "refused" };
        lines.add(
            Some(peer),
            peer.session_id(),
            &peer.ids(),
            operation,
            None,
            result,
            None,
        );
        self.write(&lines);
    }
}

/// Lines to be written together.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    text: String,
    count: u64,
}

impl Lines {
    /// Adds a write, one line per part. `request` is `None` for writes of the server itself.
    pub(crate) fn add_write(&mut self, request: Option<&Request>, peer: Option<&Peer>, txn: &Txn) {
        let ids = match (request, peer) {
            (Some(request), _) => request.ids.clone(),
            (None, Some(peer)) => peer.ids(),
            (None, None) => [].into(),
        };
        let peer = request.map(|request| &*request.peer).or(peer);
        let mut add = |operation: &str, path: Option<&str>, result: &str| {
            self.add(
                peer,
                txn.session_id,
                &ids,
                operation,
                path,
                result,
                Some(txn.zxid),
            );
        };
        match &txn.body {
            TxnBody::Error(code) => {
                let operation = request.and_then(|request| request.op);
                let operation = operation.map_or("unknown", name_of_op);
                let body = request.map(|request| &request.body[..]).unwrap_or_default();
                // All writes begin with their path, except those with several paths.
                let path = match operation {
                    "multi" | "createSession" | "closeSession" | "unknown" => None,
                    _ => Reader::new(body).ustring().ok().flatten(),
                };
                add(operation, path.as_deref(), &name_of_code(*code));
            }
            TxnBody::Multi(parts) => match parts.iter().find_map(code_of) {
                Some(code) => add("multi", None, &name_of_code(code)),
                None => {
                    for part in parts {
                        let (operation, path) = name_of(part);
                        add(operation, path, "ok");
                    }
                }
            },
            body => {
                let is_expiry = request.is_none() && matches!(body, TxnBody::CloseSession { .. });
                let (operation, path) = name_of(body);
                add(
                    if is_expiry {
                        "expireSession"
                    } else {
                        operation
                    },
                    path,
                    "ok",
                );
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of a line, each once")]
    fn add(
        &mut self,
        peer: Option<&Peer>,
        session: i64,
        ids: &[Id],
        operation: &str,
        path: Option<&str>,
        result: &str,
        zxid: Option<i64>,
    ) {
        let text = &mut self.text;
        // Writing to a `String` does not fail.
        let _ = write!(
            text,
            "{{\"time_ms\":{},\"session\":\"{session:#x}\"",
            clock::wall_ms()
        );
        if let Some(peer) = peer {
            put(text, "address", &peer.address.to_string());
        }
        text.push_str(",\"ids\":[");
        for (number, Id { scheme, id }) in ids.iter().enumerate() {
            let id = match scheme.as_str() {
                // Omits the hash.
                "digest" => id.split(':').next().unwrap_or_default(),
                _ => id,
            };
            text.push_str(if number == 0 { "\"" } else { ",\"" });
            escape(text, &format!("{scheme}:{id}"));
            text.push('"');
        }
        text.push(']');
        put(text, "operation", operation);
        if let Some(path) = path {
            put(text, "path", path);
        }
        put(text, "result", result);
        if let Some(zxid) = zxid {
            put(text, "zxid", &format!("{zxid:#x}"));
        }
        text.push_str("}\n");
        self.count += 1;
    }
}

fn put(text: &mut String, name: &str, value: &str) {
    let _ = write!(text, ",\"{name}\":\"");
    escape(text, value);
    text.push('"');
}

/// Appends a value escaped for JSON, so that no path can break the line.
fn escape(text: &mut String, value: &str) {
    for character in value.chars() {
        match character {
            '"' | '\\' => {
                text.push('\\');
                text.push(character);
            }
            control if control.is_control() || matches!(control, '\u{2028}' | '\u{2029}') => {
                let mut units = [0; 2];
                for unit in control.encode_utf16(&mut units) {
                    let _ = write!(text, "\\u{unit:04x}");
                }
            }
            _ => text.push(character),
        }
    }
}

/// Error code of `part` if it made its multi fail. The parts after that one have a code too, which only says that another part failed.
fn code_of(part: &TxnBody) -> Option<i32> {
    match part {
        TxnBody::Error(code) if *code != 0 && *code != ErrorCode::RuntimeInconsistency.number() => {
            Some(*code)
        }
        _ => None,
    }
}

fn name_of_code(code: i32) -> String {
    let known = ErrorCode::from_number(code);
    known.map_or_else(|| code.to_string(), |code| format!("{code:?}"))
}

fn name_of(body: &TxnBody) -> (&'static str, Option<&str>) {
    match body {
        TxnBody::Create { path, .. } => ("create", Some(path)),
        TxnBody::Delete { path } => ("delete", Some(path)),
        TxnBody::DeleteContainer { path } => ("deleteContainer", Some(path)),
        TxnBody::SetData { path, .. } => ("setData", Some(path)),
        TxnBody::SetAcl { path, .. } => ("setAcl", Some(path)),
        TxnBody::Check { path, .. } => ("check", Some(path)),
        TxnBody::Multi(_) => ("multi", None),
        TxnBody::Error(_) => ("error", None),
        TxnBody::CreateSession { .. } => ("createSession", None),
        TxnBody::CloseSession { .. } => ("closeSession", None),
    }
}

fn name_of_op(op: bellwether_wire::op::Op) -> &'static str {
    use bellwether_wire::op::Op;
    match op {
        Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => "create",
        Op::Delete => "delete",
        Op::SetData => "setData",
        Op::SetAcl => "setAcl",
        Op::Check => "check",
        Op::Multi => "multi",
        Op::Reconfig => "reconfig",
        Op::CreateSession => "createSession",
        Op::CloseSession => "closeSession",
        _ => "other",
    }
}
