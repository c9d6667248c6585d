//! TLS and SASL.

mod sasl;
mod tls;
