//! The one place that decides writes.
//!
//! No sockets, files or clocks: a submission and the time come in, a transaction, the next version
//! and the reply come out.

mod acl_pool;
mod multi;
mod prepare;
#[expect(
    clippy::module_inception,
    reason = "the folder is named for its main concept"
)]
mod writer;

pub(crate) use prepare::Rules;
pub(crate) use writer::{Answer, Decided, Group, Submission, Writer};
