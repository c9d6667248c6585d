//! Metrics for graphs and alerts: `GET /metrics` of a process that serves HTTP, and the percentiles of `mntr`.
//!
//! Measuring is always on: a few relaxed atomic additions per request. Text is formatted only on demand.

mod exposition;
mod histogram;
mod meters;
mod process;

pub(crate) use exposition::Exposition;
pub(crate) use histogram::Histogram;
pub(crate) use meters::{Limit, Meters, Refused, operation_name};
#[cfg(test)]
pub(crate) use process::resident_bytes;
pub(crate) use process::{DataFiles, add_process, disk, open_files, open_files_max};
