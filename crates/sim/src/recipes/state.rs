//! State that outlives sessions, and caches of it.

pub(super) mod cache;
mod catch_up;
pub(super) mod config;
pub(super) mod counter;
pub(super) mod folder;
pub(super) mod group;
pub(super) mod names;
