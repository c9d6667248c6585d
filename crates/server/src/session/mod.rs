//! Sessions: liveness, and the order in which each session is served.

mod expiry;
mod ids;
mod key;
mod password;
mod request_order;
#[expect(
    clippy::module_inception,
    reason = "the folder is named for its main concept"
)]
mod session;
mod table;

pub(crate) use expiry::Sweeper;
pub use password::session_passwords;
pub(crate) use password::{Keeper, Password, Passwords, lock_sessions};
pub(crate) use request_order::Parked;
pub(crate) use session::Session;
pub(crate) use table::SessionTable;
