//! SASL: authentication by a password that is not sent.

mod digest_md5;

pub(crate) use digest_md5::{DigestMd5, SaslError};
