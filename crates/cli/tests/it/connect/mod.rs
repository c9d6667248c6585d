//! How a session is opened: settings, identity and encryption.

mod access;
mod config_file;
mod security;
