//! Servers, faults and models for tests of coordination code.
//!
//! - [`TestServer`] is the embedded server, with handles that no client has.
//! - [`Apache`] and [`Ensemble`] start Debian's real ZooKeeper. [`Engine`] is any of these servers.
//! - [`Port`] is one that a server can come back to.
//! - [`FaultProxy`] stands in front of any server and cuts, holds, delays and loses what passes.
//! - [`Weather`] makes faults of a seed happen, to contenders, their processes and their server.
//! - [`RawClient`] speaks the protocol frame by frame, with nothing done behind the caller's back.
//! - [`CrashDisk`] is a disk for the embedded server that loses what was not synced; [`HeldDisk`] holds syncs back.
//! - [`Contents`] is everything that a server holds, for comparisons.
//! - [`history`] records what contenders do under faults, and checks that it was right.
//! - [`FencedStore`] is something outside that a lock guards.
//! - [`Model`] is the plainest server there can be, to compare others with.

pub mod apache;
pub mod contents;
pub mod disk;
pub mod engine;
pub mod fenced_store;
pub mod history;
pub mod model;
pub mod port;
pub mod proxy;
pub mod raw;
pub mod reply;
pub mod request;
pub mod server;
pub mod weather;

/// The kinds of requests, for faults and counts.
pub use bellwether_server::proto::op::Op;

pub use apache::{Apache, Ensemble, SharedApache};
pub use contents::{Content, Contents, read_contents};
pub use disk::{CrashDisk, HeldDisk};
pub use engine::{Census, Engine};
pub use fenced_store::FencedStore;
pub use history::{History, Recorder, Terms, Violation};
pub use model::Model;
pub use port::Port;
pub use proxy::{Cut, Direction, Fault, FaultProxy, SeenRequest};
pub use raw::{ConnectOptions, RawClient};
pub use reply::{Body, Event, Frame, MultiResult, Reply};
pub use request::{Create, Request, WatchLists};
pub use server::TestServer;
pub use weather::{Climate, Forecast, Forewarning, Spell, Target, Weather};
