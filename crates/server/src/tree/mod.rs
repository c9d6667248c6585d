//! The tree of nodes: immutable versions that share structure (copy-on-write).

pub(crate) mod access;
mod apply;
mod below;
mod digest;
mod node;
pub(crate) mod path;
pub(crate) mod path_hashes;
mod quota;
mod quota_paths;
mod size;
#[expect(
    clippy::module_inception,
    reason = "the folder is named for its main concept"
)]
mod tree;
pub mod txn;
pub(crate) mod zxid;

pub(crate) use apply::{Change, ChangeKind};
pub(crate) use node::{Node, Owner};
pub(crate) use size::{Growth, Size};
pub(crate) use tree::{Tree, listed_bytes};
