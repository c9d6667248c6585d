//! An embedded server for the ZooKeeper protocol.
//!
//! ZooKeeper clients work with it unchanged. It is a single process on one machine, and starts in milliseconds. It keeps its data in
//! memory, or in a folder in Apache's own format. If the service must survive the loss of a machine, use Apache ZooKeeper.
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
//! A write passes through these stages: the connection submits it to the writer, which decides it on the newest version of the tree; the
//! log makes it durable; its version is published; its events and reply are appended to outboxes, from which they are written to sockets. A
//! read is answered from the published version, and waits for the disk only if an earlier write of its session does.

mod alarm;
mod audit;
mod client;
mod clock;
mod config;
#[cfg(test)]
mod cost;
mod descriptors;
mod engine;
mod four_letter;
#[cfg(feature = "fuzz")]
#[doc(hidden)]
pub mod fuzz;
mod metrics;
mod net;
mod priority;
mod publish;
mod server;
mod session;
mod slow_requests;
mod stats;
mod storage;
mod tls;
mod tree;
mod writer;

pub use alarm::Failure;
pub use config::{
    ClientCertificates, Config, Reloaded, SessionPasswords, TlsConfig, TlsVersion, UnixPeers,
    UnknownWord, WordList, zoo_cfg,
};
pub use descriptors::raise_descriptor_limit;
#[cfg(feature = "simulation")]
#[doc(hidden)]
pub use server::simulated as simulation;
pub use server::{Hooks, Inside, Monitor, NotReady, Server, ServerBuilder, StartError};
pub use storage::{Backup, BackupError, MemoryStore, RecoveryError, Restored, restore};
pub use tls::{PageTls, TlsError};

/// Apache's data files, for tools that read them and tests that corrupt them.
pub mod files {
    pub use crate::session::session_passwords;
    pub use crate::storage::{
        Disk, DiskFile, DiskSpace, Folder, LogEnd, LogReader, LogRecord, Repair, RepairStep,
        SnapshotError, SnapshotNode, SnapshotReader,
    };
    pub use crate::tree::txn;
}
