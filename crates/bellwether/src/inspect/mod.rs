//! Recipes seen from outside: who holds and who waits, deadlocks, and how to break a hold.

pub(crate) mod contention;
pub(crate) mod deadlock;
pub(crate) mod survey;

pub use self::contention::{Broken, Contention, Ending, QueueEntry, Wants};
pub use self::deadlock::WaitsFor;
pub use self::survey::{Line, LineKind, Overview, QueueOverview, Recipe, RecipeAt, Survey};
