//! Pitfalls of ZooKeeper servers, by their numbers. 15 to 18 and 33 are about files; 29, when sessions expire, is among the rules.

mod access;
mod nodes;
mod sessions;
mod watches;
mod wire;
