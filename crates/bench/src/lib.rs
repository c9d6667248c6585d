//! Load on a server, and comparisons with others.
//!
//! Programs are examples rather than binaries, so that `cargo run` at the root has one to choose:
//! `cargo run --release -p bellwether-bench --example load -- --help`.

pub mod awake;
pub mod by_hand;
pub mod comparison;
pub mod connect_string;
pub mod contend;
pub mod contest;
pub mod context_switches;
pub mod fan_out;
pub mod figures;
pub mod floor;
pub mod latency;
pub mod load;
pub mod machine;
pub mod packets;
pub mod peer;
pub mod plot;
pub mod population;
pub mod server_process;
pub mod spread;
pub mod wire;
