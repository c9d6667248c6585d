//! Requests that survive lost replies, lagging followers, missed events and ended sessions.

pub(crate) mod events;
pub(crate) mod follow;
pub(crate) mod freshness;
pub(crate) mod latecomer;
pub(crate) mod litter;
pub(crate) mod node_event;
pub(crate) mod receipt;
pub(crate) mod retry;
pub(crate) mod site;
pub(crate) mod synced_read;
