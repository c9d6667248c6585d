//! Moves bytes and time between one session and one stream.

mod carry;
mod establish;
pub(crate) mod shared;
pub(crate) mod stream;
pub(crate) mod thread;

pub(crate) use establish::{Driver, Opening};
