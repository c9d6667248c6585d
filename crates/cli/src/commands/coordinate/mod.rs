//! Commands for barriers, queues, tasks, groups, names, configuration, counters and transactions.

pub(crate) mod barrier;
pub(crate) mod config;
pub(crate) mod counter;
pub(crate) mod group;
pub(crate) mod name;
pub(crate) mod presence;
pub(crate) mod queue;
pub(crate) mod rendezvous;
pub(crate) mod tasks;
pub(crate) mod tx;
