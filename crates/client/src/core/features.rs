//! Which features the servers of a session are known to have.

use bellwether_wire::op::Op;

use crate::core::requests::Answer;
use crate::error::Error;

/// A feature that servers have from some version on, or if configured; see [`Client::supports`](crate::Client::supports).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Feature {
    /// A create that answers with the [`Stat`](crate::Stat) of the node: 3.5. Before, [`Client::create`](crate::Client::create) sends a
    /// second request for it.
    Create2,
    /// [`CreateMode::Container`](crate::CreateMode::Container): 3.5.3.
    Containers,
    /// Nodes with a time to live: 3.5.3, if enabled.
    Ttl,
    /// [`Client::watch`](crate::Client::watch): 3.6.
    PersistentWatches,
    /// Several reads in one request: 3.6. Before, [`Client::new_multi_read`](crate::Client::new_multi_read) sends single requests.
    MultiRead,
    /// A request that removes a watch: 3.5. Before, watches of dropped handles stay on the server until they fire.
    RemoveWatches,
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
            Op::RemoveWatches => Some(Self::RemoveWatches),
            _ => None,
        }
    }
}

/// Features that are known to be present, and those known to be missing. This is remembered for the session: Apache's servers close the connection of a
/// client that sends an unknown operation, so it must not be tried again on each new connection.
#[derive(Debug, Default)]
pub(crate) struct Features([Option<bool>; 6]);

impl Features {
    pub(crate) fn get(&self, feature: Feature) -> Option<bool> {
        self.0[feature as usize]
    }

    /// Whether an operation is known to be missing.
    pub(crate) fn lacks(&self, op: Op) -> bool {
        Feature::of(op).is_some_and(|feature| self.get(feature) == Some(false))
    }

    /// Whether the server closes the connection because it does not know this operation. createTTL is an exception: a server on which it
    /// is switched off knows the operation, refuses it with the same code, and keeps the connection.
    pub(crate) fn is_fatal(op: Op, answer: &Answer) -> bool {
        let feature = Feature::of(op).filter(|feature| *feature != Feature::Ttl);
        feature.is_some() && answer == &Err(Error::UNIMPLEMENTED)
    }

    /// Any answer but *unimplemented* shows that the server has the operation.
    pub(crate) fn learn(&mut self, op: Op, answer: &Answer) {
        if let Some(feature) = Feature::of(op)
            && matches!(answer, Ok(_) | Err(Error::Refused(_)))
        {
            self.0[feature as usize] = Some(answer != &Err(Error::UNIMPLEMENTED));
        }
    }
}
