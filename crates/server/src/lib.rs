//! An embedded server that speaks ZooKeeper's protocol.
//!
//! Any ZooKeeper client takes it for the real thing: one process, started in milliseconds, on one
//! machine. It keeps its data in memory, or in a folder in Apache's own format; when several machines
//! must survive, Apache ZooKeeper is the engine to use.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::Duration;
//! use bellwether_server::Server;
//!
//! let server = Server::builder().tick(Duration::from_millis(200)).start().await?;
//! assert!(server.connect_string().starts_with("127.0.0.1:"));
//! server.shutdown().await;
//! # Ok(()) }
//! ```
//!
//! A write goes one way through it: a connection hands it to the writer, which
//! decides on the newest version of the tree; the log takes it; then its version is published, its
//! events and its reply are put into outboxes, and connections write those out. A read is answered
//! from the published version and waits for no disk but that of its own session's writes.

mod alarm;
mod clock;
mod config;
mod connections;
#[cfg(test)]
mod cost;
mod engine;
mod four_letter_words;
mod hooks;
mod net;
mod outbox;
mod peer;
mod peer_address;
mod pipeline;
pub mod proto;
mod publish;
mod reaper;
mod request;
mod server;
mod session;
mod stats;
mod storage;
mod tree;
mod writer;
pub mod zoo_cfg;

pub use alarm::Failure;
pub use config::{Config, UnixPeers};
pub use four_letter_words::{UnknownWord, WordList};
pub use hooks::Hooks;
pub use server::{Server, ServerBuilder, StartError};
pub use storage::{MemoryStore, RecoveryError};

/// Apache's data files, for tools that read them and tests that spoil them.
pub mod files {
    pub use crate::storage::{
        Disk, DiskFile, Folder, LogEnd, LogReader, LogRecord, Repair, RepairStep, SnapshotError,
        SnapshotNode, SnapshotReader,
    };
}
