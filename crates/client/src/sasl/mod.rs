//! SASL: how a user proves to know a password without sending it.

mod digest_md5;

pub(crate) use digest_md5::{DigestMd5, SaslError};
