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
use bellwether_wire::op::Op;

use crate::client::{Peer, Request};
use crate::clock;
use crate::tree::txn::{Txn, TxnBody};

/// Maximum length of a path in a line. What follows is left out.
const VALUE_BYTES_MAX: usize = 1 << 10;

/// Maximum length of an id in a line, and length of all of them beyond which no further one is added. A client may have 64 KiB of ids, and each
/// part of a transaction has a line.
const ID_BYTES_MAX: usize = 256;
const IDS_BYTES_MAX: usize = 512;

/// Marks what is cut.
const CUT: &str = "...";

/// Length of lines that are written with one call, about: memory for no more is used, however many lines a write has.
const CALL_BYTES: usize = 64 << 10;

/// The file, and the number of lines that could not be written.
#[derive(Debug)]
pub(crate) struct Audit {
    file: Mutex<File>,
    failures: AtomicU64,
}

impl Audit {
    /// Appends to the file at `path`. A new file is readable only by its owner.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self {
            file: Mutex::new(append_to(path)?),
            failures: AtomicU64::new(0),
        })
    }

    /// Opens the file again, which may have been moved away.
    pub(crate) fn reopen(&self, path: &Path) -> io::Result<()> {
        let file = append_to(path)?;
        *self.file.lock().expect("never panics inside") = file;
        Ok(())
    }

    /// Number of lines that could not be written.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Begins lines that are written together.
    pub(crate) fn lines(&self) -> Lines<'_> {
        Lines {
            audit: self,
            text: String::new(),
            count: 0,
            head: String::new(),
        }
    }

    fn write(&self, text: &str, count: u64) {
        let mut file = self.file.lock().expect("never panics inside");
        if let Err(error) = file.write_all(text.as_bytes()) {
            self.failures.fetch_add(count, Relaxed);
            tracing::error!(%error, lines = count, "cannot write the audit log");
        }
    }

    /// Logs an operation of `peer` other than a write, and whether it was allowed.
    pub(crate) fn note(&self, peer: &Peer, operation: &str, is_allowed: bool) {
        self.note_of(peer.session_id(), peer, operation, is_allowed);
    }

    /// As [`note`](Self::note), about a session that `peer` asked for.
    pub(crate) fn note_of(&self, session: i64, peer: &Peer, operation: &str, is_allowed: bool) {
        let mut lines = self.lines();
        let result = if is_allowed { "ok" } else { "refused" };
        lines.begin(Some(peer), session, &peer.ids());
        lines.add(operation, None, result, None);
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.append(true).create(true).mode(0o600).open(path)
}

/// Lines that are written with one call, or with several if they are long. The caller waits for the disk cache: lines are neither queued nor
/// dropped, because what a client could push out of an audit log, by whatever load, would be what it wants to hide.
#[derive(Debug)]
pub(crate) struct Lines<'a> {
    audit: &'a Audit,
    text: String,
    /// Number of lines in `text`.
    count: u64,
    /// How all lines of the current write begin.
    head: String,
}

impl Lines<'_> {
    /// Adds a write, one line per part. `request` is `None` for writes of the server itself.
    pub(crate) fn add_write(&mut self, request: Option<&Request>, peer: Option<&Peer>, txn: &Txn) {
        let ids = match (request, peer) {
            (Some(request), _) => request.ids.clone(),
            (None, Some(peer)) => peer.ids(),
            (None, None) => [].into(),
        };
        let peer = request.map(|request| &*request.peer).or(peer);
        self.begin(peer, txn.session_id, &ids);
        if let TxnBody::Error(code) = &txn.body {
            self.add_failed(request, *code, Some(txn.zxid));
            return;
        }
        let mut add = |operation: &str, path: Option<&str>, result: &str| {
            self.add(operation, path, result, Some(txn.zxid));
        };
        match &txn.body {
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

    /// Adds a write that was refused because the disk is nearly full or the tree too large. It has no zxid, because it is not in the log.
    pub(crate) fn add_refused(&mut self, session: i64, request: &Request) {
        self.begin(Some(&request.peer), session, &request.ids);
        self.add_failed(Some(request), ErrorCode::QuotaExceeded.number(), None);
    }

    fn add_failed(&mut self, request: Option<&Request>, code: i32, zxid: Option<i64>) {
        let op = request.and_then(|request| request.op);
        let path = match op {
            // It has several.
            Some(Op::Multi) => None,
            _ => request.and_then(Request::path),
        };
        let operation = op.map_or("unknown", name_of_op);
        self.add(operation, path.as_deref(), &name_of_code(code), zxid);
    }

    /// Begins the lines of one operation.
    fn begin(&mut self, peer: Option<&Peer>, session: i64, ids: &[Id]) {
        let head = &mut self.head;
        head.clear();
        // Writing to a `String` does not fail.
        let _ = write!(
            head,
            "{{\"time_ms\":{},\"session\":\"{session:#x}\"",
            clock::wall_ms()
        );
        if let Some(peer) = peer {
            put(head, "address", &peer.address.to_string());
        }
        head.push_str(",\"ids\":[");
        put_ids(head, ids);
        head.push(']');
    }

    fn add(&mut self, operation: &str, path: Option<&str>, result: &str, zxid: Option<i64>) {
        let text = &mut self.text;
        text.push_str(&self.head);
        put(text, "operation", operation);
        if let Some(path) = path {
            put(text, "path", path);
        }
        put(text, "result", result);
        if let Some(zxid) = zxid {
            let _ = write!(text, ",\"zxid\":\"{zxid:#x}\"");
        }
        text.push_str("}\n");
        self.count += 1;
        if self.text.len() >= CALL_BYTES {
            self.write();
        }
    }

    fn write(&mut self) {
        self.audit.write(&self.text, self.count);
        self.text.clear();
        self.count = 0;
    }
}

impl Drop for Lines<'_> {
    fn drop(&mut self) {
        if self.count > 0 {
            self.write();
        }
    }
}

/// Appends the ids, without the hashes of `digest` ids.
fn put_ids(text: &mut String, ids: &[Id]) {
    let begin = text.len();
    for (number, Id { scheme, id }) in ids.iter().enumerate() {
        if number > 0 {
            text.push(',');
        }
        text.push('"');
        if text.len() - begin > IDS_BYTES_MAX {
            let _ = write!(text, "{CUT} {} more\"", ids.len() - number);
            return;
        }
        let id = match scheme.as_str() {
            "digest" => id.split(':').next().unwrap_or_default(),
            _ => id,
        };
        escape(text, &format!("{scheme}:{id}"), ID_BYTES_MAX);
        text.push('"');
    }
}

fn put(text: &mut String, name: &str, value: &str) {
    let _ = write!(text, ",\"{name}\":\"");
    escape(text, value, VALUE_BYTES_MAX);
    text.push('"');
}

/// Appends a value escaped for JSON, so that no path can break the line. A value that takes more than `bytes_max` is cut, with a mark and its
/// length.
fn escape(text: &mut String, value: &str, bytes_max: usize) {
    let end = text.len() + bytes_max;
    for character in value.chars() {
        if text.len() >= end {
            let _ = write!(text, "{CUT} of {} bytes", value.len());
            return;
        }
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

fn name_of_op(op: Op) -> &'static str {
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

#[cfg(test)]
mod tests {
    use bellwether_testkit::Request as ClientRequest;

    use super::*;
    use crate::server::core::Core;

    /// Longest line that is possible, about: a path, ids, and the rest.
    const LINE_BYTES_MAX: usize = VALUE_BYTES_MAX + IDS_BYTES_MAX + ID_BYTES_MAX + 400;

    fn parts(count: usize, path: &str) -> TxnBody {
        let check = || TxnBody::Check {
            path: path.into(),
            version: 1,
        };
        TxnBody::Multi((0..count).map(|_| check()).collect())
    }

    #[test]
    fn neither_long_ids_nor_long_paths_nor_many_parts_take_more_than_their_share() {
        const PARTS: usize = 5000;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("audit.log");
        let audit = Audit::open(&file).unwrap();
        let client = Core::new().connect();
        let ids = (0..60).map(|number| Id::new("digest", format!("{number}\u{1}").repeat(500)));
        client.peer.set_ids(ids.collect());
        let request = client.request(&ClientRequest::Multi(Vec::new()));
        let mut lines = audit.lines();
        for path in ["/short", &format!("/{}", "\u{7f}".repeat(10_000))] {
            let txn = Txn {
                session_id: 1,
                cxid: 1,
                zxid: 1,
                time_ms: 0,
                body: parts(PARTS, path),
            };
            lines.add_write(Some(&request), None, &txn);
            assert!(
                lines.text.capacity() <= 2 * (CALL_BYTES + LINE_BYTES_MAX),
                "{} bytes of memory",
                lines.text.capacity()
            );
        }
        drop(lines);
        let text = std::fs::read_to_string(file).unwrap();
        assert_eq!(text.lines().count(), 2 * PARTS);
        for line in text.lines() {
            assert!(line.len() <= LINE_BYTES_MAX, "{} bytes: {line}", line.len());
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let ids = line["ids"].as_array().unwrap();
            assert!(ids[0].as_str().unwrap().ends_with("... of 1007 bytes"));
            assert!(ids.last().unwrap().as_str().unwrap().ends_with(" more"));
            let path = line["path"].as_str().unwrap();
            assert!(
                path == "/short" || path.ends_with("... of 10001 bytes"),
                "{path}"
            );
        }
        assert_eq!(audit.failures(), 0);
    }
}
