//! Runs coordination recipes from many processes under faults, and checks their histories.
//!
//! A [`Torture`] starts worker processes, which run [workloads](workload) on any ZooKeeper servers and print what they do as
//! [records](record), one line of JSON each. Meanwhile it kills and pauses the workers, disturbs their connections, and restarts servers
//! that it started itself. Then it ends all faults, waits until every worker succeeds again, stops the workers, and [checks](verdict) the
//! records. The command `bellwether torture` uses it.

mod conduct;
mod recipe;
pub mod record;
pub mod report;
mod servers;
pub mod verdict;
mod worker;
pub mod workload;

pub use bellwether_testkit::{Apache, Op};
pub use conduct::{Notice, Torture};
pub use recipe::Recipe;
pub use report::Outcome;
pub use servers::{Embedded, Servers};
pub use worker::{Orders, work};
