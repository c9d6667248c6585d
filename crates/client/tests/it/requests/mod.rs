//! Requests: what they do, their order, and how they fail.

mod decoders;
mod failures;
mod features;
mod limits;
mod operations;
mod order;
