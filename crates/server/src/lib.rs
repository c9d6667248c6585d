//! An embedded server that speaks ZooKeeper's protocol.
mod config;
mod four_letter_words;
mod net;
pub mod proto;
pub mod zoo_cfg;
pub use config::{Config, Purge};
pub use four_letter_words::{UnknownWord, WordList};
