//! The data of nodes, for programs and for people: JSON of contenders, owners, marks of directories, payloads and reasons.
//!
//! A directory carries the mark of its recipe. Servers delete empty containers, so directories inside a recipe may be missing, and the
//! remaining ones may not identify the recipe. The mark lives as long as the recipe's own directory.

use std::error::Error;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use bellwether_client::environment;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::node::now_ms;

/// The largest description of a contender in its node. Every client that asks for the holder reads it.
pub(crate) const DATA_BYTES_MAX: usize = 64 << 10;

/// The data by which programs that follow ZooKeeper's documentation ask a holder to release.
const UNLOCK: &[u8] = b"unlock";

/// The text that Curator's `Revoker` writes for the same purpose.
pub(crate) const CURATOR_REVOKE: &[u8] = b"__REVOKE__";

/// A request to a holder to release. The holder may release, or ignore it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Revocation {
    /// The asking user; `None` for requests of other libraries, which do not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<Who>,
    /// A message to the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// After how many milliseconds the hold will be broken by force, if it will.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u64>,
}

impl Revocation {
    pub(crate) fn new(by: Who, message: Option<String>, grace: Option<Duration>) -> Self {
        let in_ms = |grace: Duration| u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        Self {
            by: Some(by),
            message,
            grace_ms: grace.map(in_ms),
        }
    }

    /// After which time the hold will be broken by force; `None` if it is only asked for.
    #[must_use]
    pub fn grace(&self) -> Option<Duration> {
        self.grace_ms.map(Duration::from_millis)
    }

    /// The request in the data of a node.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        match data {
            UNLOCK | CURATOR_REVOKE => Some(Self::default()),
            data => NodeData::from_data(data)?.revoke,
        }
    }
}

/// The data of a contender's node: its identity, and what was added later.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeData {
    #[serde(flatten)]
    pub(crate) who: Who,
    /// The writer reads from now on, and readers may join it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) downgraded: bool,
    /// The contender has its permits, and the next contender is now the first waiter.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) granted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) revoke: Option<Revocation>,
    /// Fields of a single recipe, kept as they are.
    #[serde(flatten)]
    other: Map<String, Value>,
}

impl NodeData {
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    /// Does the same as [`from_data`](Self::from_data), for a node of `who` whose data another library may have written over.
    pub(crate) fn of(who: &Who, data: &[u8]) -> Self {
        Self::from_data(data).unwrap_or_else(|| Self {
            who: who.clone(),
            revoke: Revocation::from_data(data),
            ..Self::default()
        })
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_false(flag: &bool) -> bool {
    !flag
}

/// The creator of a node, and the reason: what people see when they ask who holds a lock. It is not authenticated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Who {
    version: u32,
    /// The owner, by which a search for deadlocks tells waiters and holders apart: the session, unless `owner` was set.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    /// The name of the machine.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The id of the process.
    #[serde(default)]
    pub pid: u32,
    /// The user, by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The command under the hold, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The time of joining the line, in milliseconds since 1970 by the clock of its machine.
    #[serde(default)]
    pub since_ms: u64,
    /// A message for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// A value for programs: such as the address that a candidate or leader publishes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl Who {
    /// The name of the user that this process runs as, or `uid N` for a user without a name. The environment is not used, since it may
    /// contain anything.
    #[must_use]
    pub fn user_of_process() -> &'static str {
        static USER: OnceLock<String> = OnceLock::new();
        // Looked up once, before the first hold of the process: the user database may be slow to answer.
        USER.get_or_init(|| {
            let uid = nix::unistd::geteuid();
            match nix::unistd::User::from_uid(uid) {
                Ok(Some(user)) => user.name,
                _ => format!("uid {uid}"),
            }
        })
    }

    /// The name of the host on which this process runs.
    #[must_use]
    pub fn host_of_process() -> &'static str {
        static HOST: OnceLock<String> = OnceLock::new();
        HOST.get_or_init(|| {
            let system = nix::sys::utsname::uname().expect("every system has a name");
            system.nodename().to_string_lossy().into_owned()
        })
    }

    /// Returns the identity of this process, now.
    pub(crate) fn here(session: i64) -> Self {
        let (host, user, pid) = environment::identity().unwrap_or_else(|| {
            let (host, user) = (Self::host_of_process(), Self::user_of_process());
            (host.to_owned(), user.to_owned(), std::process::id())
        });
        Self {
            version: 1,
            owner: format!("{session:x}"),
            host,
            pid,
            user: Some(user),
            command: None,
            since_ms: now_ms(),
            message: None,
            value: None,
        }
    }

    /// Decodes the data of a node; `None` if another program wrote it.
    #[must_use]
    pub fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// Returns the time of joining the line, by the clock of its machine.
    #[must_use]
    pub fn since(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.since_ms)
    }
}

/// The recipe that a directory belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RecipeMark {
    Queue,
    Tasks,
}

/// The order of the items of a queue, as its directory records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum RecordedOrder {
    /// First in, first out: a [`Queue`](crate::Queue).
    Arrival,
    /// Items by priority: a [`PriorityQueue`](crate::PriorityQueue).
    Priority,
    /// Items by due time: a [`DelayQueue`](crate::DelayQueue).
    Due,
}

impl fmt::Display for RecordedOrder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Arrival => "arrival",
            Self::Priority => "priority",
            Self::Due => "due time",
        })
    }
}

#[derive(Serialize, Deserialize)]
struct Data {
    version: u32,
    recipe: RecipeMark,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    order: Option<RecordedOrder>,
}

impl RecipeMark {
    pub(crate) fn to_data(self, order: Option<RecordedOrder>) -> Vec<u8> {
        let data = Data {
            version: 1,
            recipe: self,
            order,
        };
        serde_json::to_vec(&data).expect("strings and numbers are JSON")
    }

    /// The order that the data of a directory records.
    pub(crate) fn order_of(data: &[u8]) -> Option<RecordedOrder> {
        let data: Data = serde_json::from_slice(data).ok()?;
        data.order
    }

    /// Reads the data of a directory; `None` if it is no mark.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        let data: Data = serde_json::from_slice(data).ok()?;
        Some(data.recipe)
    }
}

/// A value that a node can carry: bytes, text, or with [`Json`] any type that serde can serialize.
pub trait Payload: Sized {
    /// Encodes the value.
    ///
    /// # Errors
    ///
    /// If the value cannot be encoded. Nothing is written then.
    fn to_bytes(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>>;

    /// Decodes what [`to_bytes`](Self::to_bytes) returned.
    ///
    /// # Errors
    ///
    /// If the bytes cannot be decoded. An item of a queue becomes a dead letter then.
    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Box<dyn Error + Send + Sync>>;
}

impl Payload for Vec<u8> {
    fn to_bytes(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(self.clone())
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(bytes)
    }
}

impl Payload for String {
    fn to_bytes(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(self.as_bytes().to_owned())
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self::from_utf8(bytes)?)
    }
}

/// A value of the user's own type, stored as JSON.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Json<T>(pub T);

impl<T: Serialize + DeserializeOwned> Payload for Json<T> {
    fn to_bytes(&self) -> Result<Vec<u8>, Box<dyn Error + Send + Sync>> {
        Ok(serde_json::to_vec(&self.0)?)
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self, Box<dyn Error + Send + Sync>> {
        Ok(Self(serde_json::from_slice(&bytes)?))
    }
}

pub(crate) fn to_data(header: &impl Serialize, bytes: &[u8]) -> Vec<u8> {
    let mut data = serde_json::to_vec(header).expect("strings and numbers are JSON");
    data.push(b'\n');
    data.extend_from_slice(bytes);
    data
}

/// The header and the bytes; `None` if another program wrote the data.
pub(crate) fn from_data<T: DeserializeOwned>(data: &[u8]) -> Option<(T, &[u8])> {
    let end = data.iter().position(|&byte| byte == b'\n')?;
    let header = serde_json::from_slice(&data[..end]).ok()?;
    Some((header, &data[end + 1..]))
}

/// The number of bytes of a reason that are kept. It is part of a request, and servers accept at most 1 MiB.
pub(crate) const REASON_BYTES_MAX: usize = 4 << 10;

/// The beginning of a reason that is too long.
pub(crate) fn cut_reason(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_forms_of_a_request_are_understood() {
        assert_eq!(
            Revocation::from_data(b"unlock"),
            Some(Revocation::default())
        );
        assert_eq!(
            Revocation::from_data(b"__REVOKE__"),
            Some(Revocation::default())
        );
        let grace = Some(Duration::from_secs(3));
        let asked = Revocation::new(Who::here(7), Some("please".into()), grace);
        let data = NodeData {
            revoke: Some(asked.clone()),
            ..NodeData::of(&Who::here(8), b"")
        };
        let read = Revocation::from_data(&data.to_data()).unwrap();
        assert_eq!(read, asked);
        assert_eq!(read.grace(), grace);
    }

    #[test]
    fn payload_stays_readable_beside_the_words() {
        let who = Who::here(8);
        let mut data = NodeData::of(&who, &who.to_data());
        assert_eq!(data.to_data(), who.to_data(), "no word, no change");
        data.downgraded = true;
        data.revoke = Some(Revocation::default());
        assert_eq!(Who::from_data(&data.to_data()), Some(who));
    }

    #[test]
    fn ordinary_data_asks_for_nothing() {
        for data in [b"".as_slice(), b"unlock ", b"{}", &Who::here(1).to_data()] {
            assert_eq!(Revocation::from_data(data), None);
        }
    }

    #[test]
    fn mark_is_read_as_it_was_written_and_nothing_else_is_a_mark() {
        assert_eq!(
            RecipeMark::Queue.to_data(None),
            br#"{"version":1,"recipe":"queue"}"#
        );
        assert_eq!(
            RecipeMark::Queue.to_data(Some(RecordedOrder::Due)),
            br#"{"version":1,"recipe":"queue","order":"due"}"#
        );
        for mark in [RecipeMark::Queue, RecipeMark::Tasks] {
            for order in [None, Some(RecordedOrder::Priority)] {
                let data = mark.to_data(order);
                assert_eq!(RecipeMark::from_data(&data), Some(mark));
                assert_eq!(RecipeMark::order_of(&data), order);
            }
        }
        for data in [&b""[..], b"5", br#"{"version":1}"#, br#"{"recipe":"stew"}"#] {
            assert_eq!(RecipeMark::from_data(data), None);
        }
    }

    #[test]
    fn long_reasons_are_cut_between_characters() {
        assert_eq!(cut_reason("short"), "short");
        let long = format!("a{}", "\u{e4}".repeat(REASON_BYTES_MAX));
        let kept = cut_reason(&long);
        assert_eq!(kept.len(), REASON_BYTES_MAX - 1);
        assert!(long.starts_with(kept));
    }
}
