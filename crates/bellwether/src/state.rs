//! What counters, configuration, names, groups and caches share: nodes that outlive sessions, and recipes that go on
//! when one session follows another.

mod error;
mod follow;
mod site;

pub use error::StateError;
pub(crate) use follow::{Follow, read_with_watch};
pub use follow::{Seen, Watch};
pub(crate) use site::{Load, NotWritten, Site, Visit, set_at};
