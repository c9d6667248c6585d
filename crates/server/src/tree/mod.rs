//! The tree: one immutable version after another.

pub(crate) mod access;
mod digest;
mod node;
pub(crate) mod path;
mod quota;
#[expect(clippy::module_inception, reason = "the folder is named for its main concept")]
mod tree;

pub(crate) use node::{Node, Owner};
pub(crate) use tree::{Change, ChangeKind, Tree};
