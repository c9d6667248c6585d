//! Why a contender failed, without the path, which the recipe adds.

use bellwether_client as zk;

use crate::error::AcquireError;
use crate::node::data::RecordedOrder;
use crate::request::receipts::OnceError;
use crate::session::slots::NoSlot;

/// Why a contender failed. The recipe turns it into its own error, with the path.
#[derive(Debug)]
pub(crate) enum Failure {
    Removed,
    SessionEnded,
    SequenceUsedUp,
    LineFull {
        depth: usize,
    },
    TooLarge {
        bytes: usize,
        bytes_max: usize,
    },
    TooManyEphemerals {
        bytes: usize,
    },
    /// Of a queue.
    OtherOrder(RecordedOrder),
    Disconnected(zk::Error),
    Refused(zk::Error),
}

impl From<zk::Error> for Failure {
    fn from(error: zk::Error) -> Self {
        match error {
            error if error.is_transient() => Self::Disconnected(error),
            zk::Error::SessionEnded(_) => Self::SessionEnded,
            error => Self::Refused(error),
        }
    }
}

impl From<NoSlot> for Failure {
    fn from(reason: NoSlot) -> Self {
        match reason {
            NoSlot::LineFull { depth } => Self::LineFull { depth },
            NoSlot::SessionEnded => Self::SessionEnded,
        }
    }
}

impl From<OnceError> for Failure {
    fn from(error: OnceError) -> Self {
        match error {
            OnceError::Refused(error) => zk::Error::from(error).into(),
            OnceError::SessionEnded => Self::SessionEnded,
            OnceError::OutcomeUnknown(error) => error.into(),
            OnceError::TooManyEphemerals { bytes } => Self::TooManyEphemerals { bytes },
        }
    }
}

impl AcquireError {
    pub(crate) fn new(failure: Failure, path: &str) -> Self {
        let path = path.to_owned();
        match failure {
            Failure::Removed => Self::Removed { path },
            Failure::SessionEnded => Self::SessionEnded { path },
            Failure::SequenceUsedUp => Self::SequenceUsedUp { path },
            Failure::LineFull { depth } => Self::LineFull { path, depth },
            Failure::TooLarge { bytes, bytes_max } => Self::TooLarge {
                path,
                bytes,
                bytes_max,
            },
            Failure::TooManyEphemerals { bytes } => Self::TooManyEphemerals { path, bytes },
            Failure::Disconnected(source) => Self::Disconnected { path, source },
            Failure::Refused(source) => Self::Refused { path, source },
            Failure::OtherOrder(_) => unreachable!("only queues have an order"),
        }
    }
}
