//! Queues and tasks.

mod claims;
pub(super) mod delay;
mod delivery_order;
pub(super) mod fifo;
pub(super) mod ledger;
pub(super) mod priority;
pub(super) mod queue;
mod queue_nodes;
pub(super) mod tasks;
