//! The server beside Apache's: the same requests, the same answers, and clients of other projects.

mod clients;
mod differential;
mod model;
pub(crate) mod vocabulary;
