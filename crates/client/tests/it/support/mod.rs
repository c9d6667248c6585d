//! What tests share.

#[macro_use]
pub(crate) mod place;

pub(crate) mod handshake;
pub(crate) mod tap;
