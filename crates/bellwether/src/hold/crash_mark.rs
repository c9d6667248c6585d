//! The crash mark: whether the previous holder released or crashed, and how far its work was.
//!
//! A holder writes a persistent node `held` beside the contenders when it is granted and deletes it, in one multi with its own node, when
//! it releases. A holder that finds `held` when it is granted follows a holder that crashed.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use bytes::Bytes;

use crate::error::WriteError;
use crate::hold::crash_record::{Crash, CrashRecord, Ended, HELD, Previous, names};
use crate::hold::ephemeral_node::EphemeralNode;
use crate::hold::fenced_write::FencedWrite;
use crate::hold::parting::{Marking, Parting};
use crate::node::data::Who;
use crate::node::{Access, NodePath, now_ms};
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
    pub(crate) async fn note(&self, write: FencedWrite<'_>, note: &[u8]) -> Result<(), WriteError> {
        self.update(write, |record| record.set_note(note)).await
    }

    /// Records how the hold ended that will not be released.
    pub(crate) async fn tell_ending(
        &self,
        write: FencedWrite<'_>,
        how: &str,
    ) -> Result<(), WriteError> {
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
    ) -> Result<(), WriteError> {
        let data = {
            let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
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

/// How the last exclusive hold ended, for a shared holder, which does not change the mark.
pub(crate) async fn look(zk: &zk::Client, dir: &NodePath) -> Result<Previous, zk::Error> {
    Ok(match read_mark(zk, &dir.child(HELD)).await? {
        Some((data, _)) => Previous::Crashed(Crash::from_mark(&data)),
        None => Previous::Clean,
    })
}

/// The mark that is there now. A lagging server may show the mark of a holder that has released since.
async fn read_mark(zk: &zk::Client, path: &str) -> Result<Option<(Bytes, zk::Stat)>, zk::Error> {
    found(until_answered(|| read_linearizable(zk, path, || zk.get(path))).await)
}

/// Whether a mark is among the children of a directory.
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
pub(crate) async fn clear(zk: &zk::Client, dir: &NodePath) -> Result<bool, ClearFailure> {
    let path = dir.child(HELD);
    // Versions start at zero with each mark, so the version of an old mark that a lagging server shows could equal that of a later mark.
    let Some((data, stat)) = read_mark(zk, &path).await? else {
        return Ok(false);
    };
    if let Some(record) = CrashRecord::from_data(&data)
        && zk.exists(&dir.child(&record.node)).await?.is_some()
    {
        return Err(ClearFailure::Held(record.who));
    }
    match zk.delete(&path, Some(stat.version)).await {
        Ok(()) | Err(zk::Error::NO_NODE) => Ok(true),
        // The next holder was quicker, and has seen the crash.
        Err(zk::Error::BAD_VERSION) => Ok(true),
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
