//! The local default.

mod command;
mod folder;
mod kills;
mod server;
