//! One try to claim an item, over lost replies.

use std::pin::pin;

use bellwether_client as zk;
use bytes::Bytes;

use super::held::Held;
use super::warm::Ready;
use crate::hold::Hold;
use crate::hold::crash_record::Previous;
use crate::hold::own_node::{Naming, OwnNode};
use crate::line::contender::Contender;
use crate::line::failure::Failure;
use crate::node::acquisition::{AcquisitionId, Claim};
use crate::queue::shelf::Shelf;
use crate::request::litter::{Is, Litter};
use crate::request::retry::{Tries, until_answered};
use crate::request::synced_read::linearizable_in;
use crate::session::sabotage::Sabotage;

/// How a try to claim ended.
pub(super) enum Try<T> {
    Claimed(T),
    /// Another consumer has it, or had it.
    Lost,
    /// An item that may have to be taken first was put since the list was read.
    Overtaken,
}

/// A claim that is being made. If it is dropped before it has become a [`Held`], the claim is deleted, if it may exist.
pub(super) struct Attempt<'a> {
    shelf: &'a Shelf,
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

impl<'a> Attempt<'a> {
    pub(super) fn new(shelf: &'a Shelf, ready: Ready, unless_newer: bool) -> Self {
        Self {
            shelf,
            ready: Some(ready),
            unless_newer,
            acquisition: AcquisitionId::new().to_string(),
            may_be_there: false,
            connection: shelf.session().zk().connections(),
            may_be_late: false,
        }
    }

    fn ready(&self) -> &Ready {
        self.ready.as_ref().expect("it is there until the end")
    }

    /// The token, if the item is ours.
    pub(super) async fn run(&mut self, place: Option<&Contender>) -> Result<Try<i64>, Failure> {
        let shelf = self.shelf;
        let session = shelf.session();
        let data = Claim::new(shelf.who(), &self.acquisition).to_data();
        let (item, claim) = {
            let item = self.ready().pick.item();
            (shelf.item_path(item), shelf.claim_path(item))
        };
        let place = place.and_then(|place| Some(place.dir().child(place.name()?)));
        let ephemerals = session.ephemerals();
        if !ephemerals.has_room(claim.len()) {
            // The receipt of a claim that has ended may have taken its room.
            shelf.receipts().sweep();
        }
        if !ephemerals.has_room(claim.len()) {
            let bytes = ephemerals.bytes();
            return Err(Failure::TooManyEphemerals { bytes });
        }
        let mut tries = Tries::limited();
        loop {
            if self.may_be_there {
                match self.find(&claim).await {
                    Ok((found, stat)) => {
                        let ours = Claim::is_of(&found, &self.acquisition)
                            && stat.ephemeral_owner == session.session_id();
                        self.may_be_there = ours;
                        return Ok(match ours {
                            true => Try::Claimed(stat.czxid),
                            false => Try::Lost,
                        });
                    }
                    Err(zk::Error::NO_NODE) => self.may_be_there = false,
                    Err(error) => return Err(error.into()),
                }
            }
            self.may_be_there = true;
            let result = self.send(&item, &claim, &data, place.as_deref()).await;
            let (index, error) = match result {
                Ok(token) => return Ok(Try::Claimed(token)),
                Err(zk::MultiError::Refused { index, code }) => {
                    self.may_be_there = false;
                    (index, zk::Error::Refused(code))
                }
                Err(zk::MultiError::Request(source)) => {
                    self.may_be_there = source == zk::Error::Unknown;
                    self.may_be_late |= self.may_be_there;
                    tries.again(source)?;
                    continue;
                }
            };
            match (index, error) {
                // Claimed by another consumer since it was read, or acknowledged.
                (0, zk::Error::BAD_VERSION | zk::Error::NO_NODE) | (1, zk::Error::NODE_EXISTS) => {
                    return Ok(Try::Lost);
                }
                (2, zk::Error::BAD_VERSION) => return Ok(Try::Overtaken),
                (1, zk::Error::NO_NODE) => {
                    shelf.make(&[shelf.dir("claims")]).await?;
                    tries.again_after(Ok(()))?;
                }
                (2, zk::Error::NO_NODE) => return Err(Failure::Removed),
                (_, error) => return Err(error.into()),
            }
        }
    }

    /// Looks for a claim whose reply was lost. The server that answers now may lag behind the server that made the claim.
    async fn find(&self, claim: &str) -> Result<(Bytes, zk::Stat), zk::Error> {
        let session = self.shelf.session();
        until_answered(|| linearizable_in(session, claim, || session.zk().get(claim))).await
    }

    async fn send(
        &self,
        item: &str,
        claim: &str,
        data: &[u8],
        place: Option<&str>,
    ) -> Result<i64, zk::MultiError> {
        let shelf = self.shelf;
        let Ready {
            pick,
            data: payload,
            stat,
            ..
        } = self.ready();
        let mut writer = shelf.session().zk().new_multi();
        writer.set(item, payload, Some(stat.version));
        let options = zk::CreateMode::Ephemeral.with_acl(shelf.access.acl());
        writer.create(claim, data, &options);
        // Never both: a consumer with a place in line has just read the list.
        if let Some(place) = place {
            writer.delete(place, None);
        } else if self.unless_newer {
            writer.check(shelf.dir("items").as_str(), Some(pick.list_version()));
        }
        let results = pin!(writer.commit()).await?;
        match results.first() {
            // All writes of a multi have one zxid, so this zxid created the claim. Servers before 3.8.2 do not return it for the create
            // itself (ZOOKEEPER-4026).
            Some(zk::MultiResult::Set(stat)) => Ok(stat.mzxid),
            _ => Err(zk::Error::Unknown.into()),
        }
    }

    pub(super) fn into_held(mut self, czxid: i64) -> Held {
        let shelf = self.shelf;
        let ready = self.ready.take().expect("it is there until the end");
        let Ready { pick, stat, .. } = &ready;
        let version = stat.version + 1;
        let naming = Naming::Pinned {
            path: shelf.item_path(pick.item()),
            version,
        };
        let claim = shelf.claim_path(pick.item());
        let node = OwnNode::new(shelf.session(), claim, czxid, naming);
        let hold = Hold::start(shelf.path(), node, None, None, Previous::Unknown, None)
            .with_receipts(shelf.receipts().clone());
        Held::new(shelf.clone(), hold, ready)
    }

    pub(super) fn lost(mut self) {
        self.remove_late();
        if let Some(ready) = self.ready.take() {
            ready.pick.gone();
        }
    }

    /// Deletes the claim that a try without an answer may have made, or may still make.
    fn remove_late(&self) {
        let session = self.shelf.session();
        let Some(ready) = &self.ready else {
            return;
        };
        let is_possible = self.may_be_there || self.may_be_late;
        if !is_possible || session.is_sabotaged(Sabotage::LeaveClaim) {
            return;
        }
        let item = ready.pick.item();
        let litter = Litter::Claim {
            path: self.shelf.claim_path(item),
            acquisition: Is::Of(self.acquisition.clone()),
            item: self.shelf.item_path(item),
            version: ready.stat.version + 1,
        };
        session.janitor().remove_late(litter, self.connection);
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.remove_late();
    }
}
