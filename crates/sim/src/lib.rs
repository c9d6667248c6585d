//! Runs coordination code on simulated machines: years of faults in minutes, from one seed.
//!
//! One thread simulates processes, clocks, network and servers in virtual time; recipes and client run unchanged. The same [`Plan`] makes
//! the same run, event for event. A failing run is reproduced by its seed, and [`shrink`] makes it smaller.
//!
//! The servers are an ensemble that keeps what ZooKeeper's documentation promises and nothing more: members lag, leaders fail with writes
//! in progress, sessions expire at the first moment allowed. Or it is bellwether's own server, with a simulated disk. [`Fault`] lists the
//! other faults.
//!
//! A new recipe is one file: an `impl` of [`Recipe`], and a run of it.
//!
//! ```
//! use bellwether::{Client, Lock};
//! use bellwether_sim::{Gone, Plan, Recipe, Round, Worker, run};
//! use bellwether_testkit::History;
//!
//! #[derive(Clone)]
//! struct MyLock;
//!
//! impl Recipe for MyLock {
//!     const NAME: &'static str = "my-lock";
//!
//!     fn new(_: &Plan) -> Self {
//!         Self
//!     }
//!
//!     async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
//!         let lock = Lock::new(client, "/my/lock");
//!         match worker.unless_stopped(lock.acquire()).await? {
//!             Ok(guard) => {
//!                 worker.work().await;
//!                 if let Err(error) = guard.release().await {
//!                     worker.failed(&error);
//!                 }
//!                 Ok(Round::Done)
//!             }
//!             Err(error) => {
//!                 worker.failed(&error);
//!                 Ok(Round::Failed)
//!             }
//!         }
//!     }
//!
//!     fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
//!         Ok(())
//!     }
//! }
//!
//! let verdict = run::<MyLock>(&Plan::of(7));
//! assert_eq!(verdict.violation, None);
//! ```

mod conductor;
mod failure;
#[cfg(test)]
mod fault_tests;
mod faults;
pub mod mistakes;
mod operator;
mod plan;
mod recipe;
pub mod recipes;
mod recorder;
mod run;
mod servers;
mod shrink;
mod stage;
mod switch;
#[cfg(test)]
mod transcripts;
mod worker;
mod world;

pub use failure::Failure;
pub use faults::Fault;
pub use plan::Plan;
pub use recipe::{Recipe, Round};
pub use run::{Verdict, run};
pub use servers::{EmbeddedSettings, EnsembleSettings};
pub use shrink::{Part, shrink};
pub use worker::{Gone, Worker};
pub use world::Ms;
