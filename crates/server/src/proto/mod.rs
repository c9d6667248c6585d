//! ZooKeeper's wire encoding: the records of requests, replies and events.
//!
//! Requests are decoded here and replies encoded; the opposite directions belong to clients. Nothing
//! in here decides anything.

pub mod acl;
pub mod code;
pub mod connect;
pub mod event;
pub mod frame;
pub mod jute;
pub mod multi;
pub mod op;
pub mod reply;
pub mod request;
pub mod stat;
pub mod txn;
