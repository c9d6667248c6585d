//! A claimed item, and the ways in which a claim ends.
//!
//! `returned/<due time in milliseconds>-<name of the item>`, persistent, with a line of JSON. If claims of the item do not count as
//! attempts, their number follows the due time: `<due time>+<number>-<name>`. A consumer that claims an item has read the names of these
//! nodes together with the item, and no other client changes the node of a claimed item.

use std::fmt;
use std::time::{Duration, SystemTime};

use bellwether_client as zk;
use bellwether_client::environment;
use serde::{Deserialize, Serialize};

use crate::error::{ErrorKind, Failure};
use crate::hold::Hold;
use crate::node::data::{self, Payload, cut_reason};
use crate::node::{REQUEST_BYTES_MAX, WRITE_OVERHEAD_BYTES};
use crate::queue::core::QueueCore;
use crate::queue::item_cache::{Pick, Ready};
use crate::queue::order::{Item, to_ms};
use crate::request::receipts::OnceError;
use crate::session::retry::{Retry, found, until_answered};

/// An item that this session has claimed. When it is dropped, the claim ends and the attempt counts.
#[derive(Debug)]
pub(crate) struct ClaimedItem {
    core: QueueCore,
    hold: Hold,
    pick: Pick,
    data: Vec<u8>,
    /// The version of the item since the claim: every later claim changes it.
    version: i32,
    put_ms: i64,
    /// The node with the reason of an earlier give-back, if there is one.
    returned: Option<String>,
    /// The number of its claims that do not count as attempts.
    uncounted: u32,
}

/// The ways in which a claim ends.
#[derive(Debug)]
pub(crate) enum End {
    /// The item is acknowledged.
    Delete,
    /// The item can be claimed again from then on; the reason is kept, and how many claims do not count.
    Return {
        due_ms: u64,
        uncounted: u32,
        record: Vec<u8>,
    },
    /// The item is moved to another directory, with the reason.
    Move { dir: &'static str, record: Vec<u8> },
}

/// The target of a write in the multi that ends a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteTarget {
    Item,
    Claim,
    /// The record of an earlier claim, which was given back.
    OldRecord,
    /// A new node in this directory.
    New(&'static str),
    Lists,
}

impl ClaimedItem {
    /// An item at the version that its claim has given it.
    pub(crate) fn new(core: QueueCore, hold: Hold, ready: Ready) -> Self {
        Self {
            core,
            hold,
            version: ready.stat.version + 1,
            put_ms: ready.stat.ctime,
            pick: ready.pick,
            data: ready.data,
            returned: ready.returned,
            uncounted: ready.uncounted,
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

    /// Returns the number of claims of the item, including this claim, without claims that do not count.
    pub(crate) fn attempts(&self) -> u32 {
        attempts(self.version, self.uncounted)
    }

    /// The end of a failed attempt: another attempt after `delay`, or none if the limit is reached.
    pub(crate) fn failed(&self, delay: Duration, reason: &str) -> End {
        if self.attempts() >= self.core.attempts_max {
            return self.given_up(reason);
        }
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        End::Return {
            due_ms: to_ms(environment::system_time()).saturating_add(delay_ms),
            uncounted: self.uncounted,
            record: Returned::new(reason).to_data(),
        }
    }

    /// The end of an attempt that does not count.
    pub(crate) fn uncounted(&self, reason: &str) -> End {
        End::Return {
            due_ms: to_ms(environment::system_time()),
            uncounted: self.uncounted + 1,
            record: Returned::new(reason).to_data(),
        }
    }

    /// Returns the time for which the item is not to be delivered when it is given back now.
    pub(crate) fn backoff(&self) -> Duration {
        self.core.backoff.after(self.attempts())
    }

    /// The end of all attempts.
    pub(crate) fn given_up(&self, reason: &str) -> End {
        let record = EndRecord::of_dead(self.attempts(), self.put_ms, reason);
        End::Move {
            dir: "dead",
            record: record.to_data(&self.data),
        }
    }

    /// Ends the claim in one multi that succeeds only if no other claim was made since, exactly once over any number of reconnects.
    ///
    /// The receipt shows whether a try without an answer took effect. A missing item does not: an operator may have deleted the claim, and
    /// another consumer may have acknowledged the item since.
    pub(crate) async fn settle(mut self, end: &End) -> Result<(), Failure> {
        self.check_size(end)?;
        self.hold.end_here();
        let core = self.core.clone();
        // One for all tries: a try of another could still arrive, and make this one fail.
        let mut operation = core.receipts().operation_in_exchange();
        loop {
            let parts = self.parts(end);
            let written = operation.send(|writer| self.fill(end, writer));
            let error = match written.await {
                Ok(_) => {
                    drop(operation);
                    return self.ended(end);
                }
                Err(error) => error,
            };
            let (part, source) = match error {
                OnceError::Refused(zk::MultiError::Refused { index, code }) => {
                    (parts.get(index).copied(), zk::Error::Refused(code))
                }
                OnceError::Refused(zk::MultiError::Request(source)) => (None, source),
                OnceError::SessionEnded | OnceError::OutcomeUnknown(zk::Error::SessionEnded(_)) => {
                    return Err(self.not_settled(ErrorKind::LostWithSession));
                }
                OnceError::OutcomeUnknown(source) => {
                    return Err(self.not_settled(ErrorKind::OutcomeUnknown(source)));
                }
                // Not here: the receipt takes the room of the claim.
                OnceError::TooManyEphemerals { .. } => {
                    (None, zk::Error::Refused(zk::ErrorCode::QuotaExceeded))
                }
            };
            match (part, source) {
                (Some(WriteTarget::New(dir)), zk::Error::NO_NODE) => {
                    let made = self.core.make(&[self.core.dir(dir)]).await;
                    if let Err(Failure {
                        kind: refused @ ErrorKind::Refused { .. },
                        ..
                    }) = made
                    {
                        return Err(self.not_settled(refused));
                    }
                }
                // Removed by another client.
                (Some(WriteTarget::OldRecord), zk::Error::NO_NODE) => self.returned = None,
                (_, zk::Error::NO_NODE | zk::Error::BAD_VERSION) => {
                    return Err(self.not_settled(ErrorKind::NotHeld));
                }
                (_, source) => return Err(self.not_settled(ErrorKind::refused(source))),
            }
        }
    }

    /// Servers close the connection on a request that is too large, and would do so at each retry.
    fn check_size(&self, end: &End) -> Result<(), Failure> {
        let End::Move { dir, record } = end else {
            return Ok(());
        };
        let paths = [
            self.core.item_path(self.item()),
            self.core.claim_path(self.item()),
            self.core.dir(dir).child(self.item().name()),
            self.core.dir("receipts").as_str().to_owned(),
        ];
        let overheads = paths.map(|path| path.len() + WRITE_OVERHEAD_BYTES);
        let bytes = record.len() + self.core.access.bytes() + overheads.iter().sum::<usize>();
        if bytes <= REQUEST_BYTES_MAX {
            return Ok(());
        }
        Err(self.not_settled(ErrorKind::TooLarge {
            bytes,
            bytes_max: REQUEST_BYTES_MAX,
        }))
    }

    /// The targets of all writes of [`fill`](Self::fill), after the receipt.
    fn parts(&self, end: &End) -> Vec<WriteTarget> {
        let mut parts = vec![
            WriteTarget::New("receipts"),
            WriteTarget::Item,
            WriteTarget::Claim,
        ];
        parts.extend(self.returned.as_ref().map(|_| WriteTarget::OldRecord));
        parts.extend(match end {
            End::Delete => vec![],
            End::Return { .. } => vec![WriteTarget::New(RETURNED), WriteTarget::Lists],
            End::Move { dir, .. } => vec![WriteTarget::New(dir)],
        });
        parts
    }

    fn fill(&self, end: &End, writer: &mut zk::Multi<'_>) {
        let item = self.core.item_path(self.item());
        let claim = self.core.claim_path(self.item());
        let version = Some(self.version);
        match end {
            End::Delete | End::Move { .. } => writer.delete(&item, version),
            End::Return { .. } => writer.check(&item, version),
        };
        // With the item at this version, the node at this path is ours or gone.
        writer.delete(&claim, None);
        if let Some(old) = &self.returned {
            writer.delete(&self.core.dir(RETURNED).child(old), None);
        }
        let record = match end {
            End::Delete => None,
            End::Return {
                due_ms,
                uncounted,
                record,
            } => {
                let name = ReturnedName {
                    due_ms: *due_ms,
                    uncounted: *uncounted,
                    item: self.item().name(),
                };
                Some((RETURNED, name.to_string(), record))
            }
            End::Move { dir, record } => Some((*dir, self.item().name().to_owned(), record)),
        };
        if let Some((dir, name, record)) = record {
            let path = self.core.dir(dir).child(name);
            let options = zk::CreateMode::Persistent.with_acl(self.core.access.acl());
            writer.create(&path, record, &options);
        }
        if let End::Return { .. } = end {
            self.core.outdate_lists(writer);
        }
    }

    /// Nothing is left to clean up.
    fn ended(self, end: &End) -> Result<(), Failure> {
        let Self { hold, pick, .. } = self;
        hold.forget();
        if !matches!(end, End::Return { .. }) {
            pick.gone();
        }
        Ok(())
    }

    /// A failure that is about this item. It names the node, since a consumer may have many claims.
    fn not_settled(&self, kind: ErrorKind) -> Failure {
        let path = format!("{}/items/{}", self.core.path(), self.item().name());
        Failure::elsewhere(path, kind)
    }
}

impl QueueCore {
    /// Returns whether an item has reached its limit of attempts.
    pub(crate) fn is_given_up(&self, ready: &Ready) -> bool {
        ready.attempts() >= self.attempts_max
    }

    /// The reason of the last consumer that gave the item back.
    async fn read_reason(&self, record: &str) -> Result<Option<String>, Failure> {
        let read = until_answered(|| self.session().zk().get(record)).await;
        let returned = found(read)?.and_then(|(data, _)| Returned::from_data(&data));
        Ok(returned.map(|returned| returned.reason))
    }

    /// Makes a dead letter of an item that has no attempts left because its last consumer died or dropped it.
    pub(crate) async fn bury(&self, ready: Ready) -> Result<(), Failure> {
        let attempts = ready.attempts();
        let Ready {
            pick,
            data,
            stat,
            returned,
            ..
        } = ready;
        let old = returned.map(|name| self.dir(RETURNED).child(name));
        let mut reason = "every consumer that claimed it died or dropped it".to_owned();
        if let Some(old) = &old
            && let Some(said) = self.read_reason(old).await?
        {
            reason = format!("{said} (later consumers died or dropped it)");
        }
        let record = EndRecord::of_dead(attempts, stat.ctime, &reason);
        let record = record.to_data(&data);
        let zk = self.session().zk();
        let (item, claim) = (self.item_path(pick.item()), self.claim_path(pick.item()));
        let dead = self.dir("dead");
        let ephemeral = zk::CreateMode::Ephemeral.with_acl(self.access.acl());
        let persistent = zk::CreateMode::Persistent.with_acl(self.access.acl());
        // Idempotent: the second time there is no item.
        let mut retry = Retry::limited();
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
                    retry.again_after(Ok(()))?;
                    continue;
                }
                Err(zk::MultiError::Refused {
                    index: 0,
                    code: zk::ErrorCode::NoNode,
                }) => {
                    self.make(&[self.dir("claims")]).await?;
                    retry.again_after(Ok(()))?;
                    continue;
                }
                Err(error) => zk::Error::from(error),
            };
            match error {
                // Another consumer was quicker.
                zk::Error::NODE_EXISTS | zk::Error::NO_NODE | zk::Error::BAD_VERSION => break,
                error => retry.again(error)?,
            }
        }
        pick.gone();
        Ok(())
    }
}

/// The directory.
pub(crate) const RETURNED: &str = "returned";

/// The data of such a node.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Returned {
    version: u32,
    pub(crate) reason: String,
}

impl Returned {
    pub(crate) fn new(reason: &str) -> Self {
        Self {
            version: 1,
            reason: cut_reason(reason).to_owned(),
        }
    }

    pub(crate) fn to_data(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and numbers are JSON")
    }

    /// `None` if another program wrote it.
    pub(crate) fn from_data(data: &[u8]) -> Option<Self> {
        serde_json::from_slice(data).ok()
    }
}

/// The pause before the next delivery of an item that was given back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    pub(crate) first: Duration,
    pub(crate) longest: Duration,
}

impl Backoff {
    /// The delay after `attempts` attempts: it doubles with each attempt.
    pub(crate) fn after(self, attempts: u32) -> Duration {
        let doublings = attempts.saturating_sub(1).min(31);
        let delay = self.first.saturating_mul(1 << doublings);
        delay.min(self.longest)
    }
}

/// The name of such a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReturnedName<'a> {
    /// Before this time the item is not delivered again.
    pub(crate) due_ms: u64,
    /// The number of claims of the item that do not count as attempts.
    pub(crate) uncounted: u32,
    pub(crate) item: &'a str,
}

impl<'a> ReturnedName<'a> {
    /// `None` if it is the name of another node.
    pub(crate) fn parse(name: &'a str) -> Option<Self> {
        let (numbers, item) = name.split_once('-')?;
        let (due_ms, uncounted) = numbers.split_once('+').unwrap_or((numbers, "0"));
        Some(Self {
            due_ms: due_ms.parse().ok()?,
            uncounted: uncounted.parse().ok()?,
            item,
        })
    }
}

impl fmt::Display for ReturnedName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (due_ms, item) = (self.due_ms, self.item);
        match self.uncounted {
            0 => write!(f, "{due_ms}-{item}"),
            uncounted => write!(f, "{due_ms}+{uncounted}-{item}"),
        }
    }
}

/// Returns the number of deliveries of an item, without the claims that do not count. Each claim writes the item once.
pub(crate) fn attempts(version: i32, uncounted: u32) -> u32 {
    version.cast_unsigned().saturating_sub(uncounted)
}

/// The end of an item or a task.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndRecord {
    version: u32,
    pub(crate) attempts: u32,
    /// The time of the put, by the clock of the servers.
    pub(crate) put_ms: i64,
    /// The time of the end, by the clock of the machine that ended it.
    pub(crate) ended_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
}

impl EndRecord {
    pub(crate) fn of_done(attempts: u32, put_ms: i64) -> Self {
        Self {
            version: 1,
            attempts,
            put_ms,
            ended_ms: to_ms(environment::system_time()),
            reason: None,
        }
    }

    pub(crate) fn of_dead(attempts: u32, put_ms: i64, reason: &str) -> Self {
        Self {
            reason: Some(cut_reason(reason).to_owned()),
            ..Self::of_done(attempts, put_ms)
        }
    }

    pub(crate) fn to_data(&self, payload: &[u8]) -> Vec<u8> {
        data::to_data(self, payload)
    }

    /// The record and the bytes; `None` if another program wrote the data.
    pub(crate) fn from_data(data: &[u8]) -> Option<(Self, &[u8])> {
        data::from_data(data)
    }

    pub(crate) fn ended(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(self.ended_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_doubles_up_to_the_longest_delay() {
        let seconds = Duration::from_secs;
        let backoff = Backoff {
            first: seconds(1),
            longest: seconds(5),
        };
        let delays = [1, 2, 3, 4, u32::MAX].map(|attempts| backoff.after(attempts));
        assert_eq!(delays, [1, 2, 4, 5, 5].map(seconds));
        assert_eq!(Backoff::default().after(3), Duration::ZERO);
    }

    #[test]
    fn names_and_data_round_trip() {
        let item = "item-0123456789abcdef-0000000003";
        for (uncounted, text) in [(0, "17-"), (2, "17+2-")] {
            let name = ReturnedName {
                due_ms: 17,
                uncounted,
                item,
            };
            assert_eq!(name.to_string(), format!("{text}{item}"));
            assert_eq!(ReturnedName::parse(&name.to_string()), Some(name));
        }
        assert_eq!(ReturnedName::parse(item), None);
        let data = Returned::new("no \"disk\"").to_data();
        assert_eq!(Returned::from_data(&data).unwrap().reason, "no \"disk\"");
        assert!(Returned::from_data(b"foreign").is_none());
    }

    #[test]
    fn payload_follows_the_record_as_it_was() {
        let record = EndRecord::of_dead(3, 17, "a\nreason");
        let data = record.to_data(b"{}\n\n\xff");
        assert_eq!(
            EndRecord::from_data(&data),
            Some((record, &b"{}\n\n\xff"[..]))
        );
        assert_eq!(EndRecord::from_data(b"foreign"), None);
    }
}
