//! What a session guarantees to the recipes.

mod access;
mod calls;
mod closing;
mod ephemerals;
mod forever;
mod forked;
mod lagging;
mod log;
mod outlived;
mod overload;
mod read_only;
mod runtimes;
