//! What a crash mark says: who held, how far the work was, and how the hold ended.

use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};

use crate::hold::fence::FencingToken;
use crate::node::data::Who;
use crate::node::now_ms;

/// The name of the mark in the directory.
pub(crate) const HELD: &str = "held";

/// How the previous hold ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each hold, and callers match on it"
)]
pub enum Previous {
    /// Unknown: no crash mark was requested.
    Unknown,
    /// It was released, or there was none.
    Clean,
    /// Its holder died, was cut off, or dropped the guard without a release: what it guarded may be half done.
    Crashed(Crash),
}

/// What a holder that never released has left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crash {
    /// Who it was; `None` if the mark cannot be read.
    pub who: Option<Who>,
    /// Its fencing token.
    pub token: Option<FencingToken>,
    /// How far it had got, if it said so.
    pub note: Option<Vec<u8>>,
    /// How it ended, if the holder could still say so, or was broken; `None` if it vanished.
    pub ended: Option<Ended>,
    /// The session timeout of the holder: if it vanished, the servers did not hear of it for this long.
    pub session_timeout: Option<Duration>,
}

/// How a hold ended that was not released, by the words of its holder, or of the client that broke it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// Such as `killed (SIGKILL)`.
    pub how: String,
    /// When, in milliseconds since 1970 by the clock of that client.
    pub at_ms: u64,
}

impl Crash {
    pub(crate) fn from_mark(data: &[u8]) -> Self {
        match CrashRecord::from_data(data) {
            Some(record) => Self {
                note: record.note(),
                token: Some(record.token),
                session_timeout: record.timeout_ms.map(Duration::from_millis),
                ended: record.ended,
                who: record.who,
            },
            None => Self {
                who: None,
                token: None,
                note: None,
                ended: None,
                session_timeout: None,
            },
        }
    }
}

/// The name of the node that a mark names, and what its holder has left if it is gone; `None` if it is no mark.
pub(crate) fn read(data: &[u8]) -> Option<(String, Crash)> {
    let record = CrashRecord::from_data(data)?;
    Some((record.node, Crash::from_mark(data)))
}

/// The data of the mark.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CrashRecord {
    version: u32,
    /// The name of the holder's node.
    pub(crate) node: String,
    token: FencingToken,
    /// When it was granted, in milliseconds since 1970 by the clock of the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) since_ms: Option<u64>,
    /// The session timeout at that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    pub(crate) who: Option<Who>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// A note that is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ended: Option<Ended>,
}

impl CrashRecord {
    /// The record of a hold in a session of this timeout.
    pub(crate) fn new(
        node: &str,
        token: FencingToken,
        who: Option<Who>,
        timeout: Duration,
    ) -> Self {
        Self {
            version: 1,
            node: node_name(node).to_owned(),
            token,
            since_ms: Some(now_ms()),
            timeout_ms: u64::try_from(timeout.as_millis()).ok(),
            who,
            note: None,
            note_base64: None,
            ended: None,
        }
    }

    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    fn note(&self) -> Option<Vec<u8>> {
        match (&self.note, &self.note_base64) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(base64)) => BASE64_STANDARD.decode(base64).ok(),
            (None, None) => None,
        }
    }

    pub(crate) fn set_note(&mut self, note: &[u8]) {
        (self.note, self.note_base64) = match std::str::from_utf8(note) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(BASE64_STANDARD.encode(note))),
        };
    }
}

/// Whether the mark names the holder that has this node.
pub(crate) fn names(mark: &[u8], node: &str) -> bool {
    CrashRecord::from_data(mark).is_some_and(|record| record.node == node_name(node))
}

fn node_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
