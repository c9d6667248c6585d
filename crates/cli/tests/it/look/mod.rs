//! Commands that show holders and waiters.

mod doctor;
mod leader;
mod live;
mod locks;
mod other_libraries;
mod thousand;
