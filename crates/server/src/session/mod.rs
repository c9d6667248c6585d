//! Sessions: liveness, and the order in which each session is served.

mod expiry;
mod ids;
mod key;
mod lane;
mod password;
#[expect(
    clippy::module_inception,
    reason = "the folder is named for its main concept"
)]
mod session;
mod table;

pub(crate) use expiry::Sweeper;
pub(crate) use lane::Parked;
pub(crate) use password::Passwords;
pub(crate) use session::Session;
pub(crate) use table::SessionTable;
