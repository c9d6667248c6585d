//! Shared state: counters, configuration, names and groups. They continue when one session follows another.

pub(crate) mod config;
pub(crate) mod counter;
pub(crate) mod group;
pub(crate) mod live;
pub(crate) mod member_keeper;
pub(crate) mod names;

pub use self::config::{Entries, Entry};
pub use self::group::{MembershipState, Roster};
pub use self::live::Live;
pub use self::names::Instance;
pub use crate::node::Version;
pub use crate::request::{Seen, Watch};
