//! The server in a program and on a host: its API, its sockets, and what it reports about itself.

mod library;
mod metrics;
mod slow_requests;
mod unix_socket;
mod words;
