//! Connections: decodes bytes into requests, and sends the replies.

mod accept;
mod authentication;
mod connection;
mod door;
mod handshake;
mod input;
mod listener;

#[cfg(feature = "simulation")]
pub(crate) use connection::{Ready, serve};
pub(crate) use door::{open as open_door, without_door};
pub(crate) use listener::{Listener, UnixSocket};
