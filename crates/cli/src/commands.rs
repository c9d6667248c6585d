//! The commands, one function each.

pub(crate) mod acl;
pub(crate) mod completions;
pub(crate) mod create;
pub(crate) mod export;
pub(crate) mod get;
pub(crate) mod import;
pub(crate) mod local;
pub(crate) mod lock;
pub(crate) mod locks;
pub(crate) mod log;
pub(crate) mod ls;
pub(crate) mod man;
pub(crate) mod revoke;
pub(crate) mod rm;
pub(crate) mod serve;
pub(crate) mod set;
pub(crate) mod snapshot;
pub(crate) mod stat;
pub(crate) mod tree;
pub(crate) mod watch;
pub(crate) mod why;
