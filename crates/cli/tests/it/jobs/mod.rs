//! Commands that run a job under a hold.

mod crashes;
mod elect_and_once;
mod endings;
mod ensemble_outage;
mod explain;
mod hundred;
mod lock;
mod max_time;
mod several_locks;
mod shared_locks;
mod terminal;
