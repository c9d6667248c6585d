//! Moves bytes and time between one session and one stream.

#[cfg(feature = "sasl")]
mod authenticate;
mod carry;
mod dials;
mod establish;
pub(crate) mod shared;
pub(crate) mod stream;
#[cfg(feature = "tls")]
pub(crate) mod tls;

pub(crate) use establish::{Driver, Opening};
