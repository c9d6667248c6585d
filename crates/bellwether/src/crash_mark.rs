//! The crash mark: whether the holder before released, or died holding, and how far it had got.
//!
//! A holder writes a persistent node `held` beside the contenders when it is granted and deletes it, in one multi with
//! its own node, when it releases. Whoever finds `held` at its grant follows one that did not.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use zookeeper_client as zk;

use crate::access::Access;
use crate::catch_up::caught_up;
use crate::contender::{Failure, TRIES_MAX};
use crate::error::{Outcome, WriteError, outcome};
use crate::fenced_write::FencedWrite;
use crate::name::Name;
use crate::own_node::OwnNode;
use crate::path::NodePath;
use crate::who::{self, Who};

/// The name of the mark in the directory.
pub(crate) const HELD: &str = "held";

/// How the hold before this one ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one for each hold, and callers match on it"
)]
pub enum Previous {
    /// Not asked for, so nobody knows.
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
    pub token: Option<i64>,
    /// How far it had got, if it said so.
    pub note: Option<Vec<u8>>,
    /// How it ended, if the holder could still say so; `None` if it vanished.
    pub ended: Option<Ended>,
}

/// How a hold ended that was not released, by the words of its holder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Ended {
    /// Such as `killed (SIGKILL)`.
    pub how: String,
    /// When, in milliseconds since 1970 by the clock of the holder.
    pub at_ms: u64,
}

impl Crash {
    fn from_mark(data: &[u8]) -> Self {
        match Record::from_data(data) {
            Some(record) => Self {
                note: record.note(),
                token: Some(record.token),
                ended: record.ended,
                who: record.who,
            },
            None => Self {
                who: None,
                token: None,
                note: None,
                ended: None,
            },
        }
    }
}

/// The name of the node that a mark names, and what its holder has left if it is gone; `None` if it is no mark.
pub(crate) fn read(data: &[u8]) -> Option<(String, Crash)> {
    let record = Record::from_data(data)?;
    Some((record.node, Crash::from_mark(data)))
}

/// The mark of a hold that is held.
#[derive(Debug)]
pub(crate) struct CrashMark {
    marking: Marking,
    record: Mutex<Record>,
}

/// A mark that was or may have been written, and what stood there before.
#[derive(Clone, Debug)]
pub(crate) struct Marking {
    path: String,
    before: Option<Vec<u8>>,
}

impl Marking {
    pub(crate) fn of(dir: &NodePath) -> Self {
        Self {
            path: dir.child(HELD),
            before: None,
        }
    }

    fn previous(&self) -> Previous {
        match &self.before {
            Some(data) => Previous::Crashed(Crash::from_mark(data)),
            None => Previous::Clean,
        }
    }

    /// Puts back what was there and removes the node: the hold never was.
    pub(crate) async fn undo(&self, zk: &zk::Client, node: &str) -> Result<(), zk::Error> {
        // A server that lags may not show our mark yet, and it would stay: a crash that never was.
        let version = match caught_up(zk, &self.path, || zk.get_data(&self.path)).await {
            Ok((data, stat)) if names(&data, node) => stat.version,
            Ok(_) | Err(zk::Error::NoNode) => {
                return match zk.delete(node, None).await {
                    Err(zk::Error::NoNode) => Ok(()),
                    result => result,
                };
            }
            Err(error) => return Err(error),
        };
        let mut writer = zk.new_multi_writer();
        self.add_restore(&mut writer, Some(version))?;
        writer.add_delete(node, None)?;
        match writer.commit().await {
            // The node went by another hand, and the mark is still ours.
            Err(zk::MultiWriteError::OperationFailed {
                index: 1,
                source: zk::Error::NoNode,
            }) => {
                let mut writer = zk.new_multi_writer();
                self.add_restore(&mut writer, Some(version))?;
                writer.commit().await?;
            }
            committed => drop(committed?),
        }
        Ok(())
    }

    fn add_restore(
        &self,
        writer: &mut zk::MultiWriter<'_>,
        version: Option<i32>,
    ) -> Result<(), zk::Error> {
        match &self.before {
            Some(before) => writer.add_set_data(&self.path, before, version),
            None => writer.add_delete(&self.path, version),
        }
    }
}

impl CrashMark {
    /// Marks the hold of a node whose turn it is. Until this returns, `marking` tells what there is to undo.
    pub(crate) async fn set(
        node: &OwnNode,
        who: Option<Who>,
        access: &Access,
        marking: &mut Marking,
    ) -> Result<(Self, Previous), Failure> {
        let zk = node.client().zk();
        let record = Record::new(node, who);
        let data = record.to_data();
        let options = zk::CreateMode::Persistent.with_acls(access.acls());
        // Most of the time nobody has crashed, and the first try is all.
        let mut version = None;
        let mut last = zk::Error::ConnectionLoss;
        for _ in 0..TRIES_MAX {
            let mut writer = zk.new_check_writer(node.path(), None)?;
            match version {
                None => writer.add_create(&marking.path, &data, &options)?,
                Some(_) => writer.add_set_data(&marking.path, &data, version)?,
            }
            let error = match writer.commit().await {
                Ok(_) => return Ok(Self::done(marking, record)),
                Err(zk::CheckWriteError::CheckFailed { source }) => return Err(source.into()),
                Err(
                    zk::CheckWriteError::RequestFailed { source }
                    | zk::CheckWriteError::OperationFailed { source, .. },
                ) => source,
            };
            match error {
                zk::Error::NodeExists | zk::Error::BadVersion | zk::Error::NoNode => {}
                error if outcome(&error) == Outcome::Unknown => last = error,
                error => return Err(error.into()),
            }
            // After a lost reply, a server that lags may show the mark of a holder that has released since.
            let read = || zk.get_data(&marking.path);
            (marking.before, version) = match caught_up(zk, &marking.path, read).await {
                // An earlier try of ours, whose reply was lost.
                Ok((found, _)) if names(&found, node.path()) => {
                    return Ok(Self::done(marking, record));
                }
                Ok((found, stat)) => (Some(found), Some(stat.version)),
                Err(zk::Error::NoNode) => (None, None),
                Err(error) if outcome(&error) == Outcome::Unknown => {
                    last = error;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
        }
        Err(last.into())
    }

    fn done(marking: &Marking, record: Record) -> (Self, Previous) {
        let mark = Self {
            marking: marking.clone(),
            record: Mutex::new(record),
        };
        (mark, marking.previous())
    }

    /// Records how far the work is, for the one who may have to repair it.
    pub(crate) async fn note(&self, node: &OwnNode, note: &[u8]) -> Result<(), WriteError> {
        self.amend(node, |record| record.set_note(note)).await
    }

    /// Records how the hold ended that will not be released.
    pub(crate) async fn tell_ending(&self, node: &OwnNode, how: &str) -> Result<(), WriteError> {
        let ended = Ended {
            how: how.to_owned(),
            at_ms: who::now_ms(),
        };
        self.amend(node, |record| record.ended = Some(ended)).await
    }

    async fn amend(
        &self,
        node: &OwnNode,
        change: impl FnOnce(&mut Record),
    ) -> Result<(), WriteError> {
        let data = {
            let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut record);
            record.to_data()
        };
        let mut write = FencedWrite::new(node);
        write.set_resolved(&self.marking.path, &data, None);
        // Harmless twice.
        write.commit_again().await
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

/// What goes in one multi with the own node at the end of a hold.
#[derive(Debug)]
pub(crate) enum Parting {
    /// Nothing.
    Plain,
    /// The mark: gone, or as it was before.
    Cleared(Marking),
}

impl Parting {
    pub(crate) async fn delete(&self, zk: &zk::Client, node: &str) -> Result<(), zk::Error> {
        let Self::Cleared(marking) = self else {
            return zk.delete(node, None).await;
        };
        let mut writer = zk.new_multi_writer();
        writer.add_delete(node, None)?;
        marking.add_restore(&mut writer, None)?;
        match writer.commit().await {
            Ok(_) => Ok(()),
            // Somebody cleared the mark meanwhile.
            Err(zk::MultiWriteError::OperationFailed {
                index: 1,
                source: zk::Error::NoNode,
            }) => zk.delete(node, None).await,
            Err(error) => Err(error.into()),
        }
    }

    /// Writes the node instead of deleting it: the hold ends as what it was, and goes on as something else.
    pub(crate) async fn rewrite(
        &self,
        zk: &zk::Client,
        node: &str,
        data: &[u8],
        version: i32,
    ) -> Result<(), zk::Error> {
        let Self::Cleared(marking) = self else {
            return zk.set_data(node, data, Some(version)).await.map(drop);
        };
        let mut writer = zk.new_multi_writer();
        writer.add_set_data(node, data, Some(version))?;
        marking.add_restore(&mut writer, None)?;
        match writer.commit().await {
            Ok(_) => Ok(()),
            // Somebody cleared the mark meanwhile.
            Err(zk::MultiWriteError::OperationFailed {
                index: 1,
                source: zk::Error::NoNode,
            }) => zk.set_data(node, data, Some(version)).await.map(drop),
            Err(error) => Err(error.into()),
        }
    }
}

/// How the last exclusive hold ended, for one who shares and leaves the mark alone.
pub(crate) async fn look(zk: &zk::Client, dir: &NodePath) -> Result<Previous, Failure> {
    let path = dir.child(HELD);
    let mut last = zk::Error::ConnectionLoss;
    for _ in 0..TRIES_MAX {
        match caught_up(zk, &path, || zk.get_data(&path)).await {
            Ok((data, _)) => return Ok(Previous::Crashed(Crash::from_mark(&data))),
            Err(zk::Error::NoNode) => return Ok(Previous::Clean),
            Err(error) if outcome(&error) == Outcome::Unknown => last = error,
            Err(error) => return Err(error.into()),
        }
    }
    Err(last.into())
}

/// Whether a mark is among the children of a directory.
pub(crate) fn is_among(children: &[String]) -> bool {
    children.iter().any(|child| child == HELD)
}

/// Since when a contender holds, if the mark is its own. The request leaves when this is called.
pub(crate) fn held_since(
    zk: &zk::Client,
    dir: &NodePath,
    holder: &Name,
) -> impl Future<Output = Option<SystemTime>> + use<> {
    let read = zk.get_data(&dir.child(HELD));
    let holder = holder.as_str().to_owned();
    async move {
        let (data, _) = read.await.ok()?;
        let record = Record::from_data(&data)?;
        let since = Duration::from_millis(record.since_ms?);
        (record.node == holder).then(|| SystemTime::UNIX_EPOCH + since)
    }
}

/// Forgets a crash: deletes the mark unless its holder still stands in the line. Tells whether there was one.
pub(crate) async fn clear(zk: &zk::Client, dir: &NodePath) -> Result<bool, ClearFailure> {
    let path = dir.child(HELD);
    // Versions begin anew with each mark, so an old one that a server still shows could stand for that of a later holder.
    let (data, stat) = match caught_up(zk, &path, || zk.get_data(&path)).await {
        Ok(found) => found,
        Err(zk::Error::NoNode) => return Ok(false),
        Err(error) => return Err(ClearFailure::Zk(error)),
    };
    if let Some(record) = Record::from_data(&data)
        && zk.check_stat(&dir.child(&record.node)).await?.is_some()
    {
        return Err(ClearFailure::Held(record.who));
    }
    match zk.delete(&path, Some(stat.version)).await {
        Ok(()) | Err(zk::Error::NoNode) => Ok(true),
        // The next holder was quicker, and has been told of the crash.
        Err(zk::Error::BadVersion) => Ok(true),
        Err(error) => Err(ClearFailure::Zk(error)),
    }
}

/// Why a mark was not cleared.
#[derive(Debug)]
pub(crate) enum ClearFailure {
    Held(Option<Who>),
    Zk(zk::Error),
}

impl From<zk::Error> for ClearFailure {
    fn from(error: zk::Error) -> Self {
        Self::Zk(error)
    }
}

/// The data of the mark.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: u32,
    /// The name of the holder's node.
    node: String,
    token: i64,
    /// When it was granted, in milliseconds since 1970 by the clock of the holder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    who: Option<Who>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    /// A note that is not text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ended: Option<Ended>,
}

impl Record {
    fn new(node: &OwnNode, who: Option<Who>) -> Self {
        Self {
            version: 1,
            node: node_name(node.path()).to_owned(),
            token: node.czxid(),
            since_ms: Some(who::now_ms()),
            who,
            note: None,
            note_base64: None,
            ended: None,
        }
    }

    fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }

    fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    fn note(&self) -> Option<Vec<u8>> {
        match (&self.note, &self.note_base64) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(base64)) => BASE64_STANDARD.decode(base64).ok(),
            (None, None) => None,
        }
    }

    fn set_note(&mut self, note: &[u8]) {
        (self.note, self.note_base64) = match std::str::from_utf8(note) {
            Ok(text) => (Some(text.to_owned()), None),
            Err(_) => (None, Some(BASE64_STANDARD.encode(note))),
        };
    }
}

/// Whether the mark names the holder that has this node.
fn names(mark: &[u8], node: &str) -> bool {
    Record::from_data(mark).is_some_and(|record| record.node == node_name(node))
}

fn node_name(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}
