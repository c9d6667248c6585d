//! What a caller may choose for a session: servers, credentials, limits, TLS.

pub(crate) mod address;
pub(crate) mod session;
#[cfg(feature = "tls")]
pub(crate) mod tls;
