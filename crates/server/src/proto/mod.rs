//! ZooKeeper's wire encoding, and the transactions that the log records.

pub use bellwether_wire::{
    acl, code, connect, event, frame, jute, multi, op, path, reply, request, stat,
};

pub mod txn;
