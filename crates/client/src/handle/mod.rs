//! The handle of a session: typed requests, their replies, and watches.

pub(crate) mod client;
pub(crate) mod create;
mod fallback;
mod features;
pub(crate) mod multi;
pub(crate) mod ops;
mod own_session;
pub(crate) mod reply;
pub(crate) mod watch;
