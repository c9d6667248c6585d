//! Connections: from bytes to requests, and back.

mod authentication;
mod connection;
mod four_letter;
mod handshake;
mod listener;
mod words;

pub(crate) use listener::listen;
