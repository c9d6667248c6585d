//! Decides all writes, one at a time.
//!
//! Without sockets, files or clocks: submission and time are arguments; transaction, next version and reply are results.

mod acl_pool;
mod multi;
mod pipeline;
mod prepare;
#[cfg(feature = "simulation")]
mod steps;
#[expect(
    clippy::module_inception,
    reason = "the folder is named for its main concept"
)]
mod writer;

pub(crate) use pipeline::{Pipeline, Publish, Submit};
pub(crate) use prepare::Rules;
#[cfg(feature = "simulation")]
pub(crate) use steps::Steps;
pub(crate) use writer::{Answer, Decided, Group, Submission, Writer};
