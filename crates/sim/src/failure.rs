//! Which errors faults can cause.

use std::error::Error;

use bellwether::error::{
    AcquireError, BarrierError, LimitError, ReleaseError, StateError, WriteError,
};
use bellwether::queue::{PutError, SettleError, TakeError};
use bellwether::two_phase::{ParticipateError, TransactionError};
use bellwether::zk;

/// An error of a recipe.
pub trait Failure: Error {
    /// Whether faults of servers, connections and sessions can cause it.
    fn comes_of_faults(&self) -> bool;

    /// Whether an operator who deletes directories can cause it.
    fn comes_of_operators(&self) -> bool {
        false
    }

    /// Whether it may happen in a run with faults, and with such an operator if it has one.
    fn is_explained(&self, has_operator: bool) -> bool {
        self.comes_of_faults() || (has_operator && self.comes_of_operators())
    }
}

impl Failure for zk::Error {
    fn comes_of_faults(&self) -> bool {
        self.is_transient() || self.is_session_end()
    }
}

impl Failure for zk::ConnectError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::Lost(error) => error.comes_of_faults(),
            Self::Unreachable { .. } | Self::SessionExpired => true,
            _ => false,
        }
    }
}

impl Failure for AcquireError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.comes_of_faults(),
            Self::Disconnected { source, .. } | Self::Refused { source, .. } => {
                source.comes_of_faults()
            }
            Self::TimedOut { .. } | Self::Lost { .. } | Self::SessionEnded { .. } => true,
            _ => false,
        }
    }

    fn comes_of_operators(&self) -> bool {
        matches!(self, Self::Removed { .. })
    }
}

impl Failure for ReleaseError {
    fn comes_of_faults(&self) -> bool {
        match self {
            // `NotHeld` means that another client has deleted the node: no fault does that.
            Self::SessionEnded { .. } => true,
            Self::Refused { source, .. } => source.comes_of_faults(),
            _ => false,
        }
    }

    fn comes_of_operators(&self) -> bool {
        matches!(self, Self::NotHeld { .. })
    }
}

impl Failure for LimitError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.comes_of_faults(),
            Self::Failed { source, .. } => source.comes_of_faults(),
            _ => false,
        }
    }
}

impl Failure for WriteError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::SessionEnded => true,
            Self::OutcomeUnknown { source } | Self::Refused { source, .. } => {
                source.comes_of_faults()
            }
            _ => false,
        }
    }

    fn comes_of_operators(&self) -> bool {
        match self {
            // The crash mark is deleted too.
            Self::Refused { source, .. } => *source == zk::Error::NO_NODE,
            // And so are receipts.
            Self::NotHeld | Self::OutcomeUnknown { .. } => true,
            _ => false,
        }
    }
}

impl Failure for BarrierError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.comes_of_faults(),
            Self::Disconnected { source, .. }
            | Self::OutcomeUnknown { source, .. }
            | Self::Refused { source, .. } => source.comes_of_faults(),
            Self::TimedOut { .. } | Self::SessionEnded { .. } => true,
            _ => false,
        }
    }
}

impl Failure for StateError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.comes_of_faults(),
            Self::OutcomeUnknown { source, .. } | Self::Refused { source, .. } => {
                source.comes_of_faults()
            }
            _ => false,
        }
    }
}

impl Failure for PutError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.comes_of_faults(),
            Self::Disconnected { source, .. }
            | Self::OutcomeUnknown { source, .. }
            | Self::Refused { source, .. } => source.comes_of_faults(),
            Self::SessionEnded { .. } => true,
            _ => false,
        }
    }
}

impl Failure for TakeError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::NoSession { source, .. } => source.comes_of_faults(),
            Self::Disconnected { source, .. } | Self::Refused { source, .. } => {
                source.comes_of_faults()
            }
            Self::TimedOut { .. } | Self::SessionEnded { .. } => true,
            _ => false,
        }
    }
}

impl Failure for SettleError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::NotClaimed { .. } | Self::SessionEnded { .. } => true,
            Self::OutcomeUnknown { source, .. } | Self::Refused { source, .. } => {
                source.comes_of_faults()
            }
            _ => false,
        }
    }
}

impl Failure for TransactionError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::TimedOut { .. } => true,
            Self::State(error) => error.comes_of_faults(),
            _ => false,
        }
    }
}

impl Failure for ParticipateError {
    fn comes_of_faults(&self) -> bool {
        match self {
            Self::Transaction(error) => error.comes_of_faults(),
            _ => false,
        }
    }
}
