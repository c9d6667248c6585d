//! Counters, configuration, groups and names.

mod config;
mod counter;
pub(crate) mod counts;
mod group;
mod histories;
mod live;
