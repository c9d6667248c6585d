//! Shared state: counters, configuration, names and groups. They continue when one session follows another.

pub(crate) mod config;
pub(crate) mod config_folder;
pub(crate) mod counter;
pub(crate) mod group;
pub(crate) mod live;
pub(crate) mod names;

pub use crate::node::version::Version;
pub use crate::request::follow::{Seen, Watch};
pub use config::Entry;
pub use config_folder::Entries;
pub use group::{MembershipState, Roster};
pub use live::Live;
pub use names::Instance;
