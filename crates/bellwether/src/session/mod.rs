//! Sessions with the servers: the client that outlives them, how one is opened and closed, its heartbeat, and what it cleans up.

pub(crate) mod call;
pub(crate) mod cleaner;
pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod connect;
pub(crate) mod ephemeral_quota;
pub(crate) mod id;
pub(crate) mod liveness;
pub(crate) mod member_names;
pub(crate) mod meters;
pub(crate) mod open_session;
#[cfg(test)]
pub(crate) mod pretended_ensemble;
pub(crate) mod recipe_options;
pub(crate) mod runtime;
pub(crate) mod slots;
