//! The record of a finished item: a line of JSON, then its payload.

use std::time::{Duration, SystemTime};

use bellwether_client::environment;
use serde::{Deserialize, Serialize};

use crate::node::data::{self, cut_reason};
use crate::queue::order::to_ms;

/// How an item or a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct EndRecord {
    version: u32,
    pub(crate) attempts: u32,
    /// By the clock of the servers.
    pub(crate) put_ms: i64,
    /// By the clock of the machine that ended it.
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
