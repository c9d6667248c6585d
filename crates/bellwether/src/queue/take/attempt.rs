//! One try to claim an item, over lost replies.

use std::pin::pin;

use bellwether_client as zk;
use bytes::Bytes;

use crate::hold::Hold;
use crate::hold::crash_mark::Previous;
use crate::hold::ephemeral_node::{EphemeralNode, Naming};
use crate::line::Failure;
use crate::line::contender::Contender;
use crate::node::{ClaimData, OperationId};
use crate::queue::core::QueueCore;
use crate::queue::take::claimed_item::ClaimedItem;
use crate::queue::take::item_cache::Ready;
use crate::session::cleaner::{Is, Leftover};
use crate::session::retry::{Retry, read_linearizable, until_answered};

/// How a try to claim ended.
pub(super) enum ClaimOutcome<T> {
    Claimed(T),
    /// Another consumer has it, or had it.
    Lost,
    /// An item that may have to be taken first was put since the list was read.
    Overtaken,
}

/// A claim that is being made. If it is dropped before it has become a [`ClaimedItem`], the claim is deleted, if it may exist.
pub(super) struct ClaimAttempt<'a> {
    core: &'a QueueCore,
    ready: Option<Ready>,
    unless_newer: bool,
    acquisition: String,
    /// Whether the claim is ours, or may be.
    may_be_there: bool,
    /// The number of the connection that sent the first try.
    connection: u64,
    /// Whether a try got no answer: it may still make the claim.
    may_be_late: bool,
}

impl<'a> ClaimAttempt<'a> {
    pub(super) fn new(core: &'a QueueCore, ready: Ready, unless_newer: bool) -> Self {
        Self {
            core,
            ready: Some(ready),
            unless_newer,
            acquisition: OperationId::new().to_string(),
            may_be_there: false,
            connection: core.session().zk().connections(),
            may_be_late: false,
        }
    }

    fn ready(&self) -> &Ready {
        self.ready.as_ref().expect("it is there until the end")
    }

    /// The token, if the item is ours.
    pub(super) async fn run(
        &mut self,
        place: Option<&Contender>,
    ) -> Result<ClaimOutcome<i64>, Failure> {
        let core = self.core;
        let session = core.session();
        let data = ClaimData::new(core.who(), &self.acquisition).to_data();
        let (item, claim) = {
            let item = self.ready().pick.item();
            (core.item_path(item), core.claim_path(item))
        };
        let place = place.and_then(|place| Some(place.dir().child(place.name()?)));
        let ephemerals = session.ephemeral_quota();
        if !ephemerals.has_room(claim.len()) {
            // The receipt of a claim that has ended may have taken its room.
            core.receipts().sweep();
        }
        if !ephemerals.has_room(claim.len()) {
            let bytes = ephemerals.bytes();
            return Err(Failure::TooManyEphemerals { bytes });
        }
        let mut retry = Retry::limited();
        loop {
            if self.may_be_there {
                match self.find(&claim).await {
                    Ok((found, stat)) => {
                        let ours = ClaimData::is_of(&found, &self.acquisition)
                            && stat.ephemeral_owner == session.session_id();
                        self.may_be_there = ours;
                        return Ok(match ours {
                            true => ClaimOutcome::Claimed(stat.czxid),
                            false => ClaimOutcome::Lost,
                        });
                    }
                    Err(zk::Error::NO_NODE) => self.may_be_there = false,
                    Err(error) => return Err(error.into()),
                }
            }
            self.may_be_there = true;
            let result = self.send(&item, &claim, &data, place.as_deref()).await;
            let (index, error) = match result {
                Ok(token) => return Ok(ClaimOutcome::Claimed(token)),
                Err(zk::MultiError::Refused { index, code }) => {
                    self.may_be_there = false;
                    (index, zk::Error::Refused(code))
                }
                Err(zk::MultiError::Request(source)) => {
                    self.may_be_there = source == zk::Error::Unknown;
                    self.may_be_late |= self.may_be_there;
                    retry.again(source)?;
                    continue;
                }
            };
            match (index, error) {
                // Claimed by another consumer since it was read, or acknowledged.
                (0, zk::Error::BAD_VERSION | zk::Error::NO_NODE) | (1, zk::Error::NODE_EXISTS) => {
                    return Ok(ClaimOutcome::Lost);
                }
                (2, zk::Error::BAD_VERSION) => return Ok(ClaimOutcome::Overtaken),
                (1, zk::Error::NO_NODE) => {
                    core.make(&[core.dir("claims")]).await?;
                    retry.again_after(Ok(()))?;
                }
                (2, zk::Error::NO_NODE) => return Err(Failure::Removed),
                (_, error) => return Err(error.into()),
            }
        }
    }

    /// Looks for a claim whose reply was lost. The server that answers now may lag behind the server that made the claim.
    async fn find(&self, claim: &str) -> Result<(Bytes, zk::Stat), zk::Error> {
        let session = self.core.session();
        until_answered(|| read_linearizable(session.zk(), claim, || session.zk().get(claim))).await
    }

    async fn send(
        &self,
        item: &str,
        claim: &str,
        data: &[u8],
        place: Option<&str>,
    ) -> Result<i64, zk::MultiError> {
        let core = self.core;
        let Ready {
            pick,
            data: payload,
            stat,
            ..
        } = self.ready();
        let mut writer = core.session().zk().new_multi();
        writer.set(item, payload, Some(stat.version));
        let options = zk::CreateMode::Ephemeral.with_acl(core.access.acl());
        writer.create(claim, data, &options);
        // Never both: a consumer with a place in line has just read the list.
        if let Some(place) = place {
            writer.delete(place, None);
        } else if self.unless_newer {
            writer.check(core.dir("items").as_str(), Some(pick.list_version()));
        }
        let results = pin!(writer.commit()).await?;
        match results.first() {
            // All writes of a multi have one zxid, so this zxid created the claim. Servers before 3.8.2 do not return it for the create
            // itself (ZOOKEEPER-4026).
            Some(zk::MultiResult::Set(stat)) => Ok(stat.mzxid),
            _ => Err(zk::Error::Unknown.into()),
        }
    }

    pub(super) fn into_held(mut self, czxid: i64) -> ClaimedItem {
        let core = self.core;
        let ready = self.ready.take().expect("it is there until the end");
        let Ready { pick, stat, .. } = &ready;
        let version = stat.version + 1;
        let naming = Naming::Pinned {
            path: core.item_path(pick.item()),
            version,
        };
        let claim = core.claim_path(pick.item());
        let node = EphemeralNode::new(core.session(), claim, czxid, naming);
        let hold = Hold::start(core.path(), node, None, None, Previous::Unknown, None)
            .with_receipts(core.receipts().clone());
        ClaimedItem::new(core.clone(), hold, ready)
    }

    pub(super) fn lost(mut self) {
        self.remove_late();
        if let Some(ready) = self.ready.take() {
            ready.pick.gone();
        }
    }

    /// Deletes the claim that a try without an answer may have made, or may still make.
    fn remove_late(&self) {
        let session = self.core.session();
        let Some(ready) = &self.ready else {
            return;
        };
        let is_possible = self.may_be_there || self.may_be_late;
        if !is_possible {
            return;
        }
        let item = ready.pick.item();
        let leftover = Leftover::Claim {
            path: self.core.claim_path(item),
            acquisition: Is::Of(self.acquisition.clone()),
            item: self.core.item_path(item),
            version: ready.stat.version + 1,
        };
        session.cleaner().remove_late(leftover, self.connection);
    }
}

impl Drop for ClaimAttempt<'_> {
    fn drop(&mut self) {
        self.remove_late();
    }
}
