//! A claimed item, and the ways in which a claim ends.

use bellwether_client as zk;

use crate::contender::Failure;
use crate::error::{Outcome, outcome};
use crate::hold::Hold;
use crate::queue::error::SettleError;
use crate::queue::order::Item;
use crate::queue::payload::Payload;
use crate::queue::record::Record;
use crate::queue::shelf::Shelf;
use crate::queue::warm::{Pick, Ready};
use crate::request_size::{REQUEST_BYTES_MAX, WRITE_OVERHEAD_BYTES};
use crate::sabotage::Sabotage;

/// An item that this session has claimed. Dropped, the claim is taken back and the attempt counts.
#[derive(Debug)]
pub(crate) struct Held {
    shelf: Shelf,
    hold: Hold,
    pick: Pick,
    data: Vec<u8>,
    /// Of the item since the claim: no later claim leaves it as it is.
    version: i32,
    put_ms: i64,
}

/// How a claim is to end.
#[derive(Debug)]
pub(crate) enum End {
    /// The item is done with.
    Delete,
    /// The item can be claimed again.
    Return,
    /// The item goes to another directory, with a record of why.
    Move { dir: &'static str, record: Vec<u8> },
}

impl Held {
    pub(crate) fn new(
        shelf: Shelf,
        hold: Hold,
        pick: Pick,
        data: Vec<u8>,
        version: i32,
        put_ms: i64,
    ) -> Self {
        Self {
            shelf,
            hold,
            pick,
            data,
            version,
            put_ms,
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

    /// Reads the payload. An item that cannot be read is given up.
    pub(crate) async fn open<T: Payload>(self) -> Option<(Self, T)> {
        match T::from_bytes(self.data.clone()) {
            Ok(payload) => Some((self, payload)),
            Err(error) => {
                let end = self.given_up(&format!("cannot be read: {error}"));
                // If that fails, the item is delivered again, and this happens again.
                let _ = self.settle(&end).await;
                None
            }
        }
    }

    /// How often it has been claimed, this time among them: each claim writes it once.
    pub(crate) fn attempts(&self) -> u32 {
        self.version.cast_unsigned()
    }

    /// The end of an attempt in vain: another one, or none if there were enough.
    pub(crate) fn failed(&self, reason: &str) -> End {
        match self.attempts() >= self.shelf.attempts_max {
            true => self.given_up(reason),
            false => End::Return,
        }
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
    pub(crate) async fn settle(self, end: &End) -> Result<(), SettleError> {
        self.check_size(end)?;
        let mut in_doubt = false;
        loop {
            let failed = match self.send(end).await {
                Ok(_) => return self.ended(end),
                Err(zk::MultiError::Refused { index, code }) => (index, zk::Error::Refused(code)),
                Err(zk::MultiError::Request(source)) => match outcome(&source) {
                    Outcome::Unknown => {
                        in_doubt = true;
                        continue;
                    }
                    Outcome::SessionEnded => {
                        let (path, item) = self.names();
                        return Err(SettleError::SessionEnded { path, item });
                    }
                    Outcome::Refused => (usize::MAX, source),
                },
            };
            match (failed, end) {
                // An earlier try of ours, whose reply was lost, has done it: nobody else could while the claim was ours.
                ((0, zk::Error::NO_NODE), End::Delete | End::Move { .. }) if in_doubt => {
                    return self.ended(end);
                }
                ((_, zk::Error::NO_NODE | zk::Error::BAD_VERSION), End::Return) if in_doubt => {
                    return self.ended(end);
                }
                ((2, zk::Error::NO_NODE), End::Move { dir, .. }) => {
                    let made = self.shelf.make(&[self.shelf.dir(dir)]).await;
                    if let Err(Failure::Refused(source)) = made {
                        return Err(self.refused(source));
                    }
                }
                ((_, zk::Error::NO_NODE | zk::Error::BAD_VERSION), _) => {
                    let (path, item) = self.names();
                    return Err(SettleError::NotClaimed { path, item });
                }
                ((_, source), _) => return Err(self.refused(source)),
            }
        }
    }

    /// Servers close the connection on a request that is too large, and would do so again each time it is sent again.
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

    async fn send(&self, end: &End) -> Result<Vec<zk::MultiResult>, zk::MultiError> {
        let client = self.shelf.client();
        let item = self.shelf.item_path(self.item());
        let claim = self.shelf.claim_path(self.item());
        let mut version = Some(self.version);
        if client.is_sabotaged(Sabotage::SettleAnyVersion) {
            version = None;
        }
        let mut writer = client.zk().new_multi();
        match end {
            End::Delete | End::Move { .. } => writer.delete(&item, version),
            End::Return => writer.check(&item, version),
        };
        // With the item at this version, the node at this path is ours or gone.
        writer.delete(&claim, None);
        if let End::Move { dir, record } = end {
            let path = self.shelf.dir(dir).child(self.item().name());
            let options = zk::CreateMode::Persistent.with_acl(self.shelf.access.acl());
            writer.create(&path, record, &options);
        }
        if let End::Return = end {
            self.shelf.outdate_lists(&mut writer);
        }
        writer.commit().await
    }

    /// Nothing is left to clean up.
    fn ended(self, end: &End) -> Result<(), SettleError> {
        let Self { hold, pick, .. } = self;
        hold.forget();
        if !matches!(end, End::Return) {
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
    /// Whether an item has been claimed so often in vain that it is not to be claimed again.
    pub(crate) fn is_given_up(&self, ready: &Ready) -> bool {
        ready.stat.version.cast_unsigned() >= self.attempts_max
    }

    /// Makes an item a dead letter whose consumers all died: nobody else is there to say so.
    pub(crate) async fn bury(&self, ready: Ready) -> Result<(), Failure> {
        let Ready { pick, data, stat } = ready;
        let reason = "every consumer that claimed it died or dropped it";
        let record = Record::of_dead(stat.version.cast_unsigned(), stat.ctime, reason);
        let record = record.to_data(&data);
        let zk = self.client().zk();
        let (item, claim) = (self.item_path(pick.item()), self.claim_path(pick.item()));
        let dead = self.dir("dead");
        let ephemeral = zk::CreateMode::Ephemeral.with_acl(self.access.acl());
        let persistent = zk::CreateMode::Persistent.with_acl(self.access.acl());
        // Harmless twice: the second time there is no item.
        for _ in 0..crate::contender::TRIES_MAX {
            let mut writer = zk.new_multi();
            // A claim comes and goes, to show that there is no other.
            writer.create(&claim, b"", &ephemeral);
            writer.delete(&item, Some(stat.version));
            writer.create(&dead.child(pick.item().name()), &record, &persistent);
            writer.delete(&claim, None);
            let error = match writer.commit().await {
                Ok(_) => break,
                Err(zk::MultiError::Refused {
                    index: 2,
                    code: zk::ErrorCode::NoNode,
                }) => {
                    self.make(std::slice::from_ref(&dead)).await?;
                    continue;
                }
                Err(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                }) => {
                    self.make(&[self.dir("claims")]).await?;
                    continue;
                }
                Err(error) => zk::Error::from(error),
            };
            match error {
                // Somebody else was quicker.
                zk::Error::NODE_EXISTS | zk::Error::NO_NODE | zk::Error::BAD_VERSION => break,
                error if outcome(&error) == Outcome::Unknown => {}
                error => return Err(error.into()),
            }
        }
        pick.gone();
        Ok(())
    }
}
