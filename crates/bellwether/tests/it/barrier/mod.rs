//! Barriers and double barriers.

mod double;
mod gate;
mod histories;
pub(crate) mod together_counts;
