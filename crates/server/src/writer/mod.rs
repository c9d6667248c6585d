//! Decides all writes, one at a time.
//!
//! Without sockets, files or clocks: submission and time are arguments; transaction, next version and reply are results.

mod acl_pool;
mod growth;
mod multi;
mod pipeline;
mod prepare;
#[cfg(feature = "simulation")]
mod steps;
mod submissions;
mod under_way;
#[expect(
    clippy::module_inception,
    reason = "the folder is named for its main concept"
)]
mod writer;

pub(crate) use growth::TreeLimits;
pub(crate) use pipeline::{Pipeline, Publish};
pub(crate) use prepare::Rules;
#[cfg(feature = "simulation")]
pub(crate) use steps::Steps;
pub(crate) use submissions::Submit;
pub(crate) use writer::{Answer, Decided, Group, Submission, Writer};
