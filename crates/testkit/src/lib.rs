//! Servers, faults and models for tests of coordination code.
//!
//! - [`TestServer`] is the embedded server, with controls for tests.
//! - [`Apache`] and [`Ensemble`] start Debian's real ZooKeeper. [`Engine`] is any of these servers.
//! - [`Port`] is a reserved port, so that a server can restart on it.
//! - [`FaultProxy`] sits in front of any server and cuts, holds, delays and drops traffic.
//! - [`Weather`] injects random faults from a seed into contenders, their processes and their server.
//! - [`RawClient`] speaks the protocol frame by frame, and does nothing by itself.
//! - [`CrashDisk`] is a disk for the embedded server that loses unsynced data in a crash; [`HeldDisk`] holds syncs back.
//! - [`Contents`] is the whole tree of a server, for comparisons.
//! - [`history`] records what contenders do under faults, and checks it.
//! - [`FencedStore`] is a store outside ZooKeeper that compares fencing tokens.
//! - [`BlockedLog`] is a log subscriber that blocks, like one with a full pipe.
//! - [`on_both_engines!`] generates two tests from one function: on the embedded server and on Apache's.
//! - [`Model`] is the simplest possible server, as a reference.

pub mod blocked_log;
pub mod disk;
pub mod history;
pub mod model;
pub mod proxy;
pub mod raw;
pub mod servers;
pub mod weather;

/// The kinds of requests, for faults and counts.
pub use bellwether_wire::op::Op;

pub use blocked_log::BlockedLog;
pub use disk::{CrashDisk, HeldDisk};
pub use history::fenced_store::FencedStore;
pub use history::{History, Recorder, Terms, Violation};
pub use model::Model;
pub use proxy::{Cut, Direction, Fault, FaultProxy, SeenRequest};
pub use raw::contents::{Content, Contents, read_contents};
pub use raw::reply::{Body, Frame, MultiResult, Reply, WatchEvent};
pub use raw::request::{Create, Request, WatchLists};
pub use raw::{ConnectOptions, RawClient};
pub use servers::apache::{Apache, Ensemble, SharedApache};
#[cfg(feature = "certificates")]
pub use servers::certificates;
pub use servers::embedded::TestServer;
pub use servers::engine::{Census, Engine};
pub use servers::port::Port;
pub use weather::{Climate, Forecast, Forewarning, Scope, Spell, Target, Weather};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeExamples;
