//! Clients that send garbage, ask too much, or never read, and a server that must serve the others all the same.

mod abuse;
mod decoders;
mod floods;
mod panics;
mod priority;
mod stalls;
