//! A claimed item, and the ways in which a claim ends.

use std::time::Duration;

use bellwether_client as zk;
use bellwether_client::seam;

use crate::hold::Hold;
use crate::line::failure::Failure;
use crate::node::payload::Payload;
use crate::node::request_size::{REQUEST_BYTES_MAX, WRITE_OVERHEAD_BYTES};
use crate::queue::error::SettleError;
use crate::queue::order::{Item, to_ms};
use crate::queue::record::Record;
use crate::queue::shelf::Shelf;
use crate::queue::take::returned::{self, RETURNED, Returned};
use crate::queue::take::warm::{Pick, Ready};
use crate::request::retry::{Tries, found, until_answered};
use crate::session::sabotage::Sabotage;

/// An item that this session has claimed. When it is dropped, the claim ends and the attempt counts.
#[derive(Debug)]
pub(crate) struct Held {
    shelf: Shelf,
    hold: Hold,
    pick: Pick,
    data: Vec<u8>,
    /// The version of the item since the claim: every later claim changes it.
    version: i32,
    put_ms: i64,
    /// The node with the reason of an earlier give-back, if there is one.
    returned: Option<String>,
}

/// How a claim is to end.
#[derive(Debug)]
pub(crate) enum End {
    /// The item is acknowledged.
    Delete,
    /// The item can be claimed again from then on; the reason is kept.
    Return { due_ms: u64, record: Vec<u8> },
    /// The item is moved to another directory, with the reason.
    Move { dir: &'static str, record: Vec<u8> },
}

/// The target of a write in the multi that ends a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Item,
    Claim,
    /// Of an earlier claim, which was given back.
    OldRecord,
    /// In this directory.
    NewRecord(&'static str),
    Lists,
}

impl Held {
    /// An item at the version that its claim has given it.
    pub(crate) fn new(shelf: Shelf, hold: Hold, ready: Ready) -> Self {
        Self {
            shelf,
            hold,
            version: ready.stat.version + 1,
            put_ms: ready.stat.ctime,
            pick: ready.pick,
            data: ready.data,
            returned: ready.returned,
        }
    }

    pub(crate) fn hold(&self) -> &Hold {
        &self.hold
    }

    pub(crate) fn item(&self) -> &Item {
        self.pick.item()
    }

    pub(crate) fn put_ms(&self) -> i64 {
        self.put_ms
    }

    /// Decodes the payload. An item that cannot be decoded is given up.
    pub(crate) async fn open<T: Payload>(self) -> Option<(Self, T)> {
        match T::from_bytes(self.data.clone()) {
            Ok(payload) => Some((self, payload)),
            Err(error) => {
                let end = self.given_up(&format!("cannot be decoded: {error}"));
                // If that fails, the item is delivered again, and this happens again.
                let _ = self.settle(&end).await;
                None
            }
        }
    }

    /// How often it has been claimed, including this claim: each claim writes the item once.
    pub(crate) fn attempts(&self) -> u32 {
        self.version.cast_unsigned()
    }

    /// The end of a failed attempt: another attempt after `delay`, or none if the limit is reached.
    pub(crate) fn failed(&self, delay: Duration, reason: &str) -> End {
        if self.attempts() >= self.shelf.attempts_max {
            return self.given_up(reason);
        }
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        End::Return {
            due_ms: to_ms(seam::system_time()).saturating_add(delay_ms),
            record: Returned::new(reason).to_data(),
        }
    }

    /// How long the item is not to be delivered when it is given back now.
    pub(crate) fn backoff(&self) -> Duration {
        self.shelf.backoff.after(self.attempts())
    }

    /// The end of all attempts.
    pub(crate) fn given_up(&self, reason: &str) -> End {
        let record = Record::of_dead(self.attempts(), self.put_ms, reason);
        End::Move {
            dir: "dead",
            record: record.to_data(&self.data),
        }
    }

    /// Ends the claim in one multi that succeeds only if no other claim was made since, over any number of reconnects.
    pub(crate) async fn settle(mut self, end: &End) -> Result<(), SettleError> {
        self.check_size(end)?;
        self.hold.end_here();
        let mut tries = Tries::unlimited();
        loop {
            let (parts, sent) = self.send(end).await;
            let (part, source) = match sent {
                Ok(()) => return self.ended(end),
                Err(zk::MultiError::Refused { index, code }) => {
                    (parts.get(index).copied(), zk::Error::Refused(code))
                }
                Err(zk::MultiError::Request(source)) => match tries.again(source) {
                    Ok(()) => continue,
                    Err(zk::Error::SessionEnded(_)) => {
                        let (path, item) = self.names();
                        return Err(SettleError::SessionEnded { path, item });
                    }
                    Err(source) => (None, source),
                },
            };
            match (part, source) {
                (Some(Part::NewRecord(dir)), zk::Error::NO_NODE) => {
                    let made = self.shelf.make(&[self.shelf.dir(dir)]).await;
                    if let Err(Failure::Refused(source)) = made {
                        return Err(self.refused(source));
                    }
                }
                // Removed by another client.
                (Some(Part::OldRecord), zk::Error::NO_NODE) => self.returned = None,
                // An earlier try of ours, whose reply was lost, has done it: no other client could while the claim was ours. Not true if
                // an operator has deleted the claim meanwhile.
                (Some(Part::Item), zk::Error::NO_NODE) if tries.in_doubt() => {
                    return self.ended(end);
                }
                (_, zk::Error::NO_NODE | zk::Error::BAD_VERSION)
                    if tries.in_doubt() && matches!(end, End::Return { .. }) =>
                {
                    return self.ended(end);
                }
                (_, zk::Error::NO_NODE | zk::Error::BAD_VERSION) => {
                    let (path, item) = self.names();
                    return Err(SettleError::NotClaimed { path, item });
                }
                (_, source) => return Err(self.refused(source)),
            }
        }
    }

    /// Servers close the connection on a request that is too large, and would do so at each retry.
    fn check_size(&self, end: &End) -> Result<(), SettleError> {
        let End::Move { dir, record } = end else {
            return Ok(());
        };
        let paths = [
            self.shelf.item_path(self.item()),
            self.shelf.claim_path(self.item()),
            self.shelf.dir(dir).child(self.item().name()),
        ];
        let overheads = paths.map(|path| path.len() + WRITE_OVERHEAD_BYTES);
        let bytes = record.len() + self.shelf.access.bytes() + overheads.iter().sum::<usize>();
        if bytes <= REQUEST_BYTES_MAX {
            return Ok(());
        }
        let (path, item) = self.names();
        Err(SettleError::TooLarge {
            path,
            item,
            bytes,
            bytes_max: REQUEST_BYTES_MAX,
        })
    }

    async fn send(&self, end: &End) -> (Vec<Part>, Result<(), zk::MultiError>) {
        let session = self.shelf.session();
        let item = self.shelf.item_path(self.item());
        let claim = self.shelf.claim_path(self.item());
        let mut version = Some(self.version);
        if session.is_sabotaged(Sabotage::SettleAnyVersion) {
            version = None;
        }
        let mut writer = session.zk().new_multi();
        match end {
            End::Delete | End::Move { .. } => writer.delete(&item, version),
            End::Return { .. } => writer.check(&item, version),
        };
        // With the item at this version, the node at this path is ours or gone.
        writer.delete(&claim, None);
        let mut parts = vec![Part::Item, Part::Claim];
        if let Some(old) = &self.returned {
            writer.delete(&self.shelf.dir(RETURNED).child(old), None);
            parts.push(Part::OldRecord);
        }
        let record = match end {
            End::Delete => None,
            End::Return { due_ms, record } => {
                let name = returned::name(*due_ms, self.item().name());
                Some((RETURNED, name, record))
            }
            End::Move { dir, record } => Some((*dir, self.item().name().to_owned(), record)),
        };
        if let Some((dir, name, record)) = record {
            let path = self.shelf.dir(dir).child(name);
            let options = zk::CreateMode::Persistent.with_acl(self.shelf.access.acl());
            writer.create(&path, record, &options);
            parts.push(Part::NewRecord(dir));
        }
        if let End::Return { .. } = end {
            self.shelf.outdate_lists(&mut writer);
            parts.push(Part::Lists);
        }
        (parts, writer.commit().await.map(drop))
    }

    /// Nothing is left to clean up.
    fn ended(self, end: &End) -> Result<(), SettleError> {
        let Self { hold, pick, .. } = self;
        hold.forget();
        if !matches!(end, End::Return { .. }) {
            pick.gone();
        }
        Ok(())
    }

    fn names(&self) -> (String, String) {
        (self.shelf.path().to_owned(), self.item().name().to_owned())
    }

    fn refused(&self, source: zk::Error) -> SettleError {
        let (path, item) = self.names();
        SettleError::Refused { path, item, source }
    }
}

impl Shelf {
    /// Whether an item has reached its limit of attempts.
    pub(crate) fn is_given_up(&self, ready: &Ready) -> bool {
        ready.stat.version.cast_unsigned() >= self.attempts_max
    }

    /// The reason of the last consumer that gave the item back.
    async fn read_reason(&self, record: &str) -> Result<Option<String>, Failure> {
        let read = until_answered(|| self.session().zk().get(record)).await;
        let returned = found(read)?.and_then(|(data, _)| Returned::from_data(&data));
        Ok(returned.map(|returned| returned.reason))
    }

    /// Makes a dead letter of an item that has no attempts left because its last consumer died or dropped it.
    pub(crate) async fn bury(&self, ready: Ready) -> Result<(), Failure> {
        let Ready {
            pick,
            data,
            stat,
            returned,
        } = ready;
        let old = returned.map(|name| self.dir(RETURNED).child(name));
        let mut reason = "every consumer that claimed it died or dropped it".to_owned();
        if let Some(old) = &old
            && let Some(said) = self.read_reason(old).await?
        {
            reason = format!("{said} (later consumers died or dropped it)");
        }
        let record = Record::of_dead(stat.version.cast_unsigned(), stat.ctime, &reason);
        let record = record.to_data(&data);
        let zk = self.session().zk();
        let (item, claim) = (self.item_path(pick.item()), self.claim_path(pick.item()));
        let dead = self.dir("dead");
        let ephemeral = zk::CreateMode::Ephemeral.with_acl(self.access.acl());
        let persistent = zk::CreateMode::Persistent.with_acl(self.access.acl());
        // Idempotent: the second time there is no item.
        let mut tries = Tries::limited();
        loop {
            let mut writer = zk.new_multi();
            // Creates and deletes a claim in the multi, which proves that there is no other claim.
            writer.create(&claim, b"", &ephemeral);
            writer.delete(&item, Some(stat.version));
            writer.create(&dead.child(pick.item().name()), &record, &persistent);
            writer.delete(&claim, None);
            if let Some(old) = &old {
                writer.delete(old, None);
            }
            let error = match writer.commit().await {
                Ok(_) => break,
                Err(zk::MultiError::Refused {
                    index: 2,
                    code: zk::ErrorCode::NoNode,
                }) => {
                    self.make(std::slice::from_ref(&dead)).await?;
                    tries.again_after(Ok(()))?;
                    continue;
                }
                Err(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                }) => {
                    self.make(&[self.dir("claims")]).await?;
                    tries.again_after(Ok(()))?;
                    continue;
                }
                Err(error) => zk::Error::from(error),
            };
            match error {
                // Another consumer was quicker.
                zk::Error::NODE_EXISTS | zk::Error::NO_NODE | zk::Error::BAD_VERSION => break,
                error => tries.again(error)?,
            }
        }
        pick.gone();
        Ok(())
    }
}
