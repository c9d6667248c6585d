//! Security: which clients are admitted, and which are refused.

mod audit;
mod sasl;
mod session_passwords;
mod tls;
