//! Recipes seen from outside.

mod contention;
mod survey;
