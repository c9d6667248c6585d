//! The local default.

mod announcement;
mod command;
mod folder;
mod kills;
mod server;
