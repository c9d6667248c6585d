//! What the nodes of a transaction say, and their names.

pub(super) mod ballot;
pub(super) mod child;
pub(super) mod transaction_spec;
