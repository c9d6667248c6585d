//! Which errors faults can cause.

use std::error::Error;

use bellwether::ErrorKind;
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

impl Failure for bellwether::Error {
    fn comes_of_faults(&self) -> bool {
        match &self.kind {
            ErrorKind::NoSession(source) => source.comes_of_faults(),
            ErrorKind::Disconnected(source)
            | ErrorKind::OutcomeUnknown(source)
            | ErrorKind::Refused { source, .. } => source.comes_of_faults(),
            ErrorKind::TimedOut { .. }
            | ErrorKind::Lost
            | ErrorKind::SessionEnded
            | ErrorKind::LostWithSession => true,
            // Another consumer may take an item whose claim has ended. No fault deletes the node of a lock.
            ErrorKind::NotHeld => {
                self.call().starts_with("queue.") || self.call().starts_with("tasks.")
            }
            _ => false,
        }
    }

    fn comes_of_operators(&self) -> bool {
        match &self.kind {
            ErrorKind::Removed | ErrorKind::NotHeld => true,
            // Receipts are deleted too.
            ErrorKind::OutcomeUnknown(_) => self.call().starts_with("hold."),
            // And so is the crash mark.
            ErrorKind::Refused { source, .. } => {
                self.call().starts_with("hold.") && *source == zk::Error::NO_NODE
            }
            _ => false,
        }
    }
}
