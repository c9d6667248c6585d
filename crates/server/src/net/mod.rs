//! Connections.

#[allow(
    dead_code,
    unused_imports,
    reason = "the connections that answer them come next"
)]
mod four_letter;
