//! An embedded server that speaks ZooKeeper's protocol.
mod config;
mod four_letter_words;
pub mod proto;
pub use config::Config;
pub use four_letter_words::{UnknownWord, WordList};
