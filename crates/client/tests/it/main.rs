//! The client through its public interface, against real servers.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod certificates;
mod sasl;
mod tls;
