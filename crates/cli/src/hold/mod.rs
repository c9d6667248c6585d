//! Waits for a hold, keeps it, and runs a job under it.

pub(crate) mod any_lock;
pub(crate) mod aside;
pub(crate) mod asked;
pub(crate) mod backoff;
pub(crate) mod holds;
pub(crate) mod keeper;
pub(crate) mod nested;
pub(crate) mod outage;
pub(crate) mod previous;
pub(crate) mod waiting;
pub(crate) mod workplace;
