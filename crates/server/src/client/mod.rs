//! A client as the server sees it: connection, requests, and replies that wait to be sent.

mod address;
mod connections;
pub(crate) mod outbox;
mod peer;
mod received;
mod request;
pub(crate) mod sasl;
mod socket;
mod usage;

pub(crate) use address::{Origin, PeerAddress};
pub(crate) use connections::{Admitted, Connections, Newcomer};
pub(crate) use peer::Peer;
#[cfg(test)]
pub(crate) use received::Received;
pub(crate) use received::Share;
pub(crate) use request::Request;
pub(crate) use socket::{Opened, ReadHalf, Socket};
#[cfg(feature = "simulation")]
pub(crate) use socket::{ReadLayer, WriteHalf, WriteLayer};
pub(crate) use usage::{Usage, UsageOrigin};
