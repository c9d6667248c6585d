//! Load on a server, and comparisons with others.
//!
//! Programs are examples rather than binaries, so that `cargo run` at the root has one to choose:
//! `cargo run --release -p bellwether-bench --example load -- --help`.

pub mod comparison;
pub mod contest;
pub mod load;
pub mod measure;
pub mod peer;
pub mod server_process;
pub mod wire;
