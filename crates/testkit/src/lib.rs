//! Servers, faults and models for tests of coordination code.
//!
//! - [`TestServer`] is the embedded server, with handles that no client has.
//! - [`Apache`] and [`Ensemble`] start Debian's real ZooKeeper.
//! - [`FaultProxy`] stands in front of any server and cuts, holds, delays and loses what passes.
//! - [`RawClient`] speaks the protocol frame by frame, with nothing done behind the caller's back.
//! - [`CrashDisk`] is a disk for the embedded server that loses what was not synced.
//! - [`Contents`] is everything that a server holds, for comparisons.
//! - [`history`] records what contenders do under faults, and checks that it was right.
//! - [`Model`] is the plainest server there can be, to compare others with.

pub mod apache;
pub mod contents;
pub mod disk;
pub mod history;
pub mod model;
pub mod proxy;
pub mod raw;
pub mod reply;
pub mod request;
pub mod server;

pub use apache::{Apache, Ensemble, SharedApache};
pub use contents::{Content, Contents, read_contents};
pub use disk::CrashDisk;
pub use history::{History, Recorder, Terms, Violation};
pub use model::Model;
pub use proxy::{Cut, Direction, Fault, FaultProxy, SeenRequest};
pub use raw::{ConnectOptions, RawClient};
pub use reply::{Body, Event, Frame, MultiResult, Reply};
pub use request::{Create, Request, WatchLists};
pub use server::TestServer;
