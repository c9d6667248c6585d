//! Ordering guarantees: what a client may rely on, whatever else happens at the same time.

mod limits;
mod order;
mod room;
mod sessions;
