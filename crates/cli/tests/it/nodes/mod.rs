//! Commands on the tree.

mod export;
mod piped;
mod tree;
mod watch;
