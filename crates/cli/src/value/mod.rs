//! Values of arguments, each with its parser. They use nothing else of the command.

pub(crate) mod acl_list;
pub(crate) mod credential;
pub(crate) mod data_json;
pub(crate) mod duration;
pub(crate) mod ensemble_host;
pub(crate) mod listen_address;
pub(crate) mod node_path;
pub(crate) mod servers;
