//! What the servers of a session can do, as far as it is known.

use bellwether_wire::op::Op;

use crate::core::requests::Answer;
use crate::error::Error;

/// Something that servers can do from some version on, or if they are configured for it; see [`Client::supports`](crate::Client::supports).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// A create that answers with the [`Stat`](crate::Stat) of the node: 3.5.
    Create2,
    /// [`CreateMode::Container`](crate::CreateMode::Container): 3.5.3.
    Containers,
    /// Nodes with a time to live: 3.5.3, if it is switched on.
    Ttl,
    /// [`Client::watch`](crate::Client::watch): 3.6.
    PersistentWatches,
    /// [`Client::new_multi_read`](crate::Client::new_multi_read): 3.6.
    MultiRead,
}

impl Feature {
    /// The feature that an operation needs.
    fn of(op: Op) -> Option<Self> {
        match op {
            Op::Create2 => Some(Self::Create2),
            Op::CreateContainer => Some(Self::Containers),
            Op::CreateTtl => Some(Self::Ttl),
            Op::AddWatch => Some(Self::PersistentWatches),
            Op::MultiRead => Some(Self::MultiRead),
            _ => None,
        }
    }
}

/// The features that were seen, and those that are missing. What is known stays known for the session: Apache's servers close the connection of a
/// client that sends an operation they do not know, so it must not be tried again on each new connection.
#[derive(Debug, Default)]
pub(crate) struct Features([Option<bool>; 5]);

impl Features {
    pub(crate) fn get(&self, feature: Feature) -> Option<bool> {
        self.0[feature as usize]
    }

    /// Whether an operation is known to be missing.
    pub(crate) fn lacks(&self, op: Op) -> bool {
        Feature::of(op).is_some_and(|feature| self.get(feature) == Some(false))
    }

    /// Any answer but *unimplemented* shows that the operation is known.
    pub(crate) fn learn(&mut self, op: Op, answer: &Answer) {
        if let Some(feature) = Feature::of(op)
            && matches!(answer, Ok(_) | Err(Error::Refused(_)))
        {
            self.0[feature as usize] = Some(answer != &Err(Error::UNIMPLEMENTED));
        }
    }
}
