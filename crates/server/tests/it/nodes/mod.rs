//! Nodes, with their access lists, quotas, watches and reaping.

mod acl;
mod quota;
mod reaping;
mod watches;
