//! Connections: from bytes to requests, and back.

mod accept;
mod authentication;
mod connection;
mod four_letter;
mod handshake;
mod listener;
mod socket;
mod words;

pub(crate) use accept::accept;
pub(crate) use listener::{Listener, UnixSocket};
pub(crate) use socket::WriteHalf;
