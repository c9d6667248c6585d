//! The crash mark: whether the previous holder released or crashed, and how far its work was.
//!
//! A holder writes a persistent node `held` beside the contenders when it is granted and deletes it, in one multi with its own node, when
//! it releases. A holder that finds `held` when it is granted follows a holder that crashed.

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bellwether_client as zk;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, Failure};
use crate::hold::ephemeral_node::EphemeralNode;
use crate::hold::fence::{FencedWrite, FencingToken};
use crate::node::data::Who;
use crate::node::{Access, NodePath, now_ms};
use crate::session::cleaner::{Cleanup, delete};
use crate::session::lock;
use crate::session::retry::{Retry, found, read_linearizable, until_answered};

/// The mark of a hold that is held.
#[derive(Debug)]
pub(crate) struct CrashMark {
    marking: Marking,
    record: Mutex<CrashRecord>,
}

impl CrashMark {
    /// Marks the hold of a node whose turn it is. Until this returns, `marking` tells what there is to undo.
    pub(crate) async fn set(
        node: &EphemeralNode,
        who: Option<Who>,
        access: &Access,
        marking: &mut Marking,
    ) -> Result<(Self, Previous), zk::Error> {
        let zk = node.session().zk();
        let timeout = node.session().session_timeout();
        let record = CrashRecord::new(node.path(), node.czxid().into(), who, timeout);
        let data = record.to_data();
        let options = zk::CreateMode::Persistent.with_acl(access.acl());
        // Most of the time there was no crash, and the first try is enough.
        let mut version = None;
        let mut retry = Retry::limited();
        loop {
            let mut writer = zk.new_multi();
            writer.check(node.path(), None);
            match version {
                None => writer.create(&marking.path, &data, &options),
                Some(_) => writer.set(&marking.path, &data, version),
            };
            let error = match writer.commit().await {
                Ok(_) => return Ok(Self::done(marking, record)),
                Err(zk::MultiError::Refused { index: 0, code }) => {
                    return Err(zk::Error::Refused(code));
                }
                Err(error) => zk::Error::from(error),
            };
            match error {
                zk::Error::NODE_EXISTS | zk::Error::BAD_VERSION | zk::Error::NO_NODE => {}
                error => retry.again(error)?,
            }
            // A mark that names this node is of an earlier try, whose reply was lost.
            (marking.before, version) = match read_mark(zk, &marking.path).await? {
                Some((found, _)) if names(&found, node.path()) => {
                    return Ok(Self::done(marking, record));
                }
                Some((found, stat)) => (Some(found.to_vec()), Some(stat.version)),
                None => (None, None),
            };
        }
    }

    fn done(marking: &Marking, record: CrashRecord) -> (Self, Previous) {
        let mark = Self {
            marking: marking.clone(),
            record: Mutex::new(record),
        };
        (mark, marking.previous())
    }

    /// Records how far the work is, for the next holder, which may have to repair it.
    pub(crate) async fn note(&self, write: FencedWrite<'_>, note: &[u8]) -> Result<(), Failure> {
        self.update(write, |record| record.set_note(note)).await
    }

    /// Records how the hold ended that will not be released.
    pub(crate) async fn tell_ending(
        &self,
        write: FencedWrite<'_>,
        how: &str,
    ) -> Result<(), Failure> {
        let ended = Ended {
            how: how.to_owned(),
            at_ms: now_ms(),
        };
        self.update(write, |record| record.ended = Some(ended))
            .await
    }

    async fn update(
        &self,
        mut write: FencedWrite<'_>,
        change: impl FnOnce(&mut CrashRecord),
    ) -> Result<(), Failure> {
        let data = {
            let mut record = lock(&self.record);
            change(&mut record);
            record.to_data()
        };
        write.set_resolved(&self.marking.path, &data, None);
        write.send().await
    }

    pub(crate) fn into_marking(self) -> Marking {
        self.marking
    }

    /// The multi that ends a hold cleanly.
    pub(crate) fn clean_end(&self) -> Parting {
        Parting::Cleared(Marking {
            path: self.marking.path.clone(),
            before: None,
        })
    }

    /// The multi that ends a hold and leaves the mark that it found.
    pub(crate) fn unrepaired_end(&self) -> Parting {
        Parting::Cleared(self.marking.clone())
    }
}

/// Returns how the last exclusive hold ended, for a shared holder, which does not change the mark.
pub(crate) async fn read_previous(zk: &zk::Client, dir: &NodePath) -> Result<Previous, zk::Error> {
    Ok(match read_mark(zk, &dir.child(HELD)).await? {
        Some((data, _)) => Previous::Crashed(Crash::from_mark(&data)),
        None => Previous::Clean,
    })
}

/// The mark that is there now. A lagging server may show the mark of a holder that has released since.
async fn read_mark(zk: &zk::Client, path: &str) -> Result<Option<(Bytes, zk::Stat)>, zk::Error> {
    found(until_answered(|| read_linearizable(zk, path, || zk.get(path))).await)
}

/// Returns whether a mark is among the children of a directory.
pub(crate) fn is_among(children: &[String]) -> bool {
    children.iter().any(|child| child == HELD)
}

/// Since when a contender holds, if the mark is its own. The request leaves when this is called.
pub(crate) fn held_since(
    zk: &zk::Client,
    dir: &NodePath,
    holder: &str,
) -> impl Future<Output = Option<SystemTime>> + use<> {
    let read = zk.get(&dir.child(HELD));
    let holder = holder.to_owned();
    async move {
        let (data, _) = read.await.ok()?;
        let record = CrashRecord::from_data(&data)?;
        let since = Duration::from_millis(record.since_ms?);
        (record.node == holder).then(|| SystemTime::UNIX_EPOCH + since)
    }
}

/// Clears a crash: deletes the mark unless its holder is still in the line. Returns whether there was a mark.
///
/// Marks are told apart by their version only, and each new mark starts at zero. If one holder releases and the next one is granted between
/// the read and the deletion, the mark of the latter may be deleted. It would be missed only if that holder crashed. A check of the czxid would
/// prevent it, but a multi has none, and no other node changes with the mark.
pub(crate) async fn clear(zk: &zk::Client, dir: &NodePath) -> Result<bool, Failure> {
    let path = dir.child(HELD);
    // Versions start at zero with each mark, so the version of an old mark that a lagging server shows could equal that of a later mark.
    let Some((data, stat)) = read_mark(zk, &path).await? else {
        return Ok(false);
    };
    if let Some(record) = CrashRecord::from_data(&data)
        && zk.exists(&dir.child(&record.node)).await?.is_some()
    {
        return Err(ErrorKind::Held {
            who: record.who.map(Box::new),
        }
        .into());
    }
    match zk.delete(&path, Some(stat.version)).await {
        Ok(()) | Err(zk::Error::NO_NODE) => Ok(true),
        // The next holder was quicker, and has seen the crash.
        Err(zk::Error::BAD_VERSION) => Ok(true),
        Err(error) => Err(error.into()),
    }
}

/// The name of the mark in the directory.
pub(crate) const HELD: &str = "held";

/// The end of the previous hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each hold, and callers match on it"
)]
pub enum Previous {
    /// Unknown: no crash mark was requested.
    Unknown,
    /// Released, or there was none.
    Clean,
    /// Crashed: its holder died, was cut off, or dropped the guard without a release: what it guarded may be half done.
    Crashed(Crash),
}

/// The traces of a holder that never released.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Crash {
    /// The holder; `None` if the mark cannot be read.
    pub who: Option<Who>,
    /// The holder's fencing token.
    pub token: Option<FencingToken>,
    /// The holder's last note: how far it had got, if it said so.
    pub note: Option<Vec<u8>>,
    /// The end of the hold, if the holder could still say so, or was broken; `None` if it vanished.
    pub ended: Option<Ended>,
    /// The session timeout of the holder: if it vanished, the servers did not hear of it for this long.
    pub session_timeout: Option<Duration>,
}

/// The end of a hold that was not released, by the words of its holder, or of the client that broke it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// The kind of end, such as `killed (SIGKILL)`.
    pub how: String,
    /// The time, in milliseconds since 1970 by the clock of that client.
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
    /// The time of the grant, in milliseconds since 1970 by the clock of the holder.
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

/// Returns whether the mark names the holder that has this node.
pub(crate) fn names(mark: &[u8], node: &str) -> bool {
    CrashRecord::from_data(mark).is_some_and(|record| record.node == node_name(node))
}

fn node_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// The change in one multi with the deletion of the own node.
#[derive(Debug)]
pub(crate) enum Parting {
    /// Nothing.
    Plain,
    /// The crash mark is deleted, or restored to what it was before.
    Cleared(Marking),
}

impl Parting {
    pub(crate) async fn delete(&self, zk: &zk::Client, node: &str) -> Result<(), zk::Error> {
        match self {
            Self::Plain => zk.delete(node, None).await,
            Self::Cleared(marking) => {
                let change = |multi: &mut zk::Multi<'_>| multi.delete(node, None);
                marking.restore_with(zk, change).await
            }
        }
    }

    /// Writes the node instead of deleting it: an exclusive hold ends, and continues as a shared hold.
    pub(crate) async fn rewrite(
        &self,
        zk: &zk::Client,
        node: &str,
        data: &[u8],
        version: i32,
    ) -> Result<(), zk::Error> {
        match self {
            Self::Plain => zk.set(node, data, Some(version)).await.map(drop),
            Self::Cleared(marking) => {
                let change = |multi: &mut zk::Multi<'_>| multi.set(node, data, Some(version));
                marking.restore_with(zk, change).await
            }
        }
    }
}

/// A crash mark that was or may have been written, and the mark that was there before.
#[derive(Clone, Debug)]
pub(crate) struct Marking {
    pub(super) path: String,
    pub(super) before: Option<Vec<u8>>,
}

impl Marking {
    pub(crate) fn of(dir: &NodePath) -> Self {
        Self {
            path: dir.child(HELD),
            before: None,
        }
    }

    pub(super) fn previous(&self) -> Previous {
        match &self.before {
            Some(data) => Previous::Crashed(Crash::from_mark(data)),
            None => Previous::Clean,
        }
    }

    /// Changes the node and restores the mark in one multi; the node alone if another client has cleared the mark.
    async fn restore_with(
        &self,
        zk: &zk::Client,
        change: impl Fn(&mut zk::Multi<'_>),
    ) -> Result<(), zk::Error> {
        let mut both = zk.new_multi();
        change(&mut both);
        self.add_restore(&mut both, None);
        match both.commit().await {
            Err(zk::MultiError::Refused {
                index: 1,
                code: zk::ErrorCode::NoNode,
            }) => {
                let mut alone = zk.new_multi();
                change(&mut alone);
                Ok(alone.commit().await.map(drop)?)
            }
            done => Ok(done.map(drop)?),
        }
    }

    /// Restores the mark and deletes the node, as if the hold had never existed.
    async fn undo(&self, zk: &zk::Client, node: &str) -> Result<(), zk::Error> {
        // A lagging server may not show our mark yet, and the mark would stay and report a crash that never happened.
        let version = match read_linearizable(zk, &self.path, || zk.get(&self.path)).await {
            Ok((data, stat)) if names(&data, node) => stat.version,
            Ok(_) | Err(zk::Error::NO_NODE) => {
                return delete(zk, node).await;
            }
            Err(error) => return Err(error),
        };
        let mut writer = zk.new_multi();
        self.add_restore(&mut writer, Some(version));
        writer.delete(node, None);
        match writer.commit().await {
            // Another client deleted the node, and the mark is still ours.
            Err(zk::MultiError::Refused {
                index: 1,
                code: zk::ErrorCode::NoNode,
            }) => {
                let mut writer = zk.new_multi();
                self.add_restore(&mut writer, Some(version));
                writer.commit().await?;
            }
            committed => drop(committed?),
        }
        Ok(())
    }

    fn add_restore(&self, writer: &mut zk::Multi<'_>, version: Option<i32>) {
        match &self.before {
            Some(before) => writer.set(&self.path, before, version),
            None => writer.delete(&self.path, version),
        };
    }
}

/// A node whose holder was about to mark its hold.
#[derive(Debug)]
pub(crate) struct Marked {
    pub(crate) node: String,
    pub(crate) marking: Marking,
}

impl Cleanup for Marked {
    fn remove<'a>(&'a self, zk: &'a zk::Client) -> BoxFuture<'a, Result<(), zk::Error>> {
        self.marking.undo(zk, &self.node).boxed()
    }
}
