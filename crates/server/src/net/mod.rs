//! Connections: decodes bytes into requests, and sends the replies.

mod accept;
mod authentication;
mod connection;
mod handshake;
mod input;
mod listener;

pub(crate) use accept::accept;
#[cfg(feature = "simulation")]
pub(crate) use connection::serve_opened;
pub(crate) use listener::{Listener, UnixSocket};
