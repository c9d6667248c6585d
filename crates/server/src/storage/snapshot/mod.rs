//! Snapshots: one version of the tree as a file.

pub(super) mod pace;
pub(super) mod reader;
mod snappy;
pub(super) mod snapshotter;
pub(super) mod writer;

pub use reader::{SnapshotError, SnapshotNode, SnapshotReader};
