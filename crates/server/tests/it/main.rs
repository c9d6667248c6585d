//! Integration tests of the server, through sockets and its public API.
#![allow(clippy::unwrap_used, reason = "tests")]

mod clients;
mod interchange;
