//! Recipes seen from outside: who holds and who waits, deadlocks, and how to break a hold.

pub(crate) mod breaking;
pub(crate) mod contention;
pub(crate) mod deadlock;
pub(crate) mod survey;

pub use breaking::{Broken, Ending};
pub use contention::{Contention, QueueEntry, Wants};
pub use deadlock::WaitsFor;
pub use survey::{Line, LineKind, Overview, QueueOverview, Recipe, RecipeAt, Survey};
