//! A session: how it is opened, kept over connections, and closed.

mod closing;
mod connecting;
mod ensemble;
mod heartbeat;
mod identity;
mod many;
mod reconnect;
