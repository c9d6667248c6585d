//! Reads and writes many nodes at once.

pub(crate) mod batch;
pub(crate) mod export_file;
pub(crate) mod import_plan;
pub(crate) mod lineage;
pub(crate) mod node_stat;
pub(crate) mod payload;
pub(crate) mod sighting;
pub(crate) mod walk;
