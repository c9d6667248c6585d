//! Sessions with the servers: the client that outlives them, how one is opened and closed, its heartbeat, and what it cleans up.

pub(crate) mod call;
pub(crate) mod client;
pub(crate) mod clock;
pub(crate) mod connect;
pub(crate) mod ephemerals;
pub(crate) mod heart;
pub(crate) mod home;
pub(crate) mod id;
pub(crate) mod janitor;
pub(crate) mod meters;
pub(crate) mod open_session;
pub(crate) mod owned_names;
pub(crate) mod place;
#[cfg(test)]
pub(crate) mod pretended_ensemble;
pub(crate) mod sabotage;
pub(crate) mod slots;
