//! Commands that run a job under a hold, and `note`, which runs in a job.

pub(crate) mod elect;
pub(crate) mod lock;
pub(crate) mod note;
pub(crate) mod once;
