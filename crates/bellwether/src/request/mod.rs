//! Requests that survive lost replies, lagging followers, missed events and ended sessions.

pub(crate) mod events;
pub(crate) mod follow;
pub(crate) mod freshness;
pub(crate) mod latecomer;
pub(crate) mod leftover;
pub(crate) mod node_event;
pub(crate) mod persistent_node;
pub(crate) mod receipt;
pub(crate) mod retry;
pub(crate) mod synced_read;
