//! Waits for a hold, keeps it, and runs a job under it.

pub(crate) mod any_lock;
pub(crate) mod backoff;
pub(crate) mod holds;
pub(crate) mod job_runner;
pub(crate) mod keeper;
pub(crate) mod nested;
pub(crate) mod notice_printer;
pub(crate) mod outage;
pub(crate) mod previous;
pub(crate) mod release_requests;
pub(crate) mod waiting;
