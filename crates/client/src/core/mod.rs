//! The decisions of a session, without sockets, clocks, threads or `async`: bytes and moments go in, bytes and
//! deliveries come out.

pub(crate) mod events;
pub(crate) mod features;
pub(crate) mod hosts;
pub(crate) mod life;
pub(crate) mod requests;
pub(crate) mod session;
pub(crate) mod watches;
