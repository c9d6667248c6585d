//! Commands on nodes.

pub(crate) mod acl;
pub(crate) mod create;
pub(crate) mod export;
pub(crate) mod get;
pub(crate) mod import;
pub(crate) mod ls;
pub(crate) mod rm;
pub(crate) mod set;
pub(crate) mod stat;
pub(crate) mod tree;
pub(crate) mod watch;
