//! Runs coordination code on simulated machines: years of faults in minutes, from one seed.
//!
//! One thread simulates processes, clocks, network and servers in virtual time; recipes and client run unchanged. The same [`Plan`] makes
//! the same run, event for event. A failing run is reproduced by its seed, and [`shrink`] makes it smaller.
//!
//! The servers are an ensemble that keeps what ZooKeeper's documentation promises and nothing more: members lag, leaders fail with writes
//! in progress, sessions expire at the first moment allowed. [`Fault`] lists the other faults.
//!
//! A new recipe is one file: an `impl` of [`Recipe`], and a run of it.
//!
//! ```
//! use bellwether::error::AcquireError;
//! use bellwether::{Client, Lock};
//! use bellwether_sim::{Gone, Plan, Recipe, Worker, run};
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
//!     async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
//!         let lock = Lock::new(client, "/my/lock");
//!         match worker.unless_stopped(lock.acquire()).await? {
//!             Ok(guard) => {
//!                 worker.work().await;
//!                 drop(guard.release().await);
//!                 Ok(())
//!             }
//!             Err(AcquireError::SessionEnded { .. }) => Err(Gone),
//!             Err(_) => Ok(()),
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

mod faults;
pub mod mistakes;
mod plan;
mod recipe;
pub mod recipes;
mod servers;
mod shrink;
mod stage;
mod worker;
mod world;

pub use faults::Fault;
pub use plan::Plan;
pub use recipe::Recipe;
pub use servers::{EmbeddedSettings, EnsembleSettings, ServerMistake};
pub use shrink::shrink;
pub use stage::{Verdict, run};
pub use worker::{Gone, Worker};
pub use world::Ms;
