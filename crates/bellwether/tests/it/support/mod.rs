//! Shared by the tests: a place on a server, dropped futures, random faults.

pub(crate) mod dropping;
#[macro_use]
pub(crate) mod place;
pub(crate) mod spans;
#[macro_use]
pub(crate) mod storm;
