//! What recipes write into nodes: checked paths, access lists, owners, payloads, headers and marks.

pub(crate) mod access;
pub(crate) mod json_header;
pub(crate) mod node_data;
pub(crate) mod operation_id;
pub(crate) mod path;
pub(crate) mod payload;
pub(crate) mod reason;
pub(crate) mod recipe_mark;
pub(crate) mod request_size;
pub(crate) mod times;
pub(crate) mod version;
pub(crate) mod who;
