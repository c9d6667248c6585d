//! Apache's settings for protection that this server does not offer. The TLS settings that it supports are in `secure`.
//!
//! Ignoring such a setting would leave open what the file closes, so the server refuses to start.

/// TLS, SASL, authentication providers and audit logs (`QuorumPeerConfig`, `X509Util`, `ProviderRegistry`, `ServerCnxn`, `QuorumAuth`,
/// `ZKAuditProvider`).
const KEYS: &[&str] = &[
    "audit.enable",
    "authProvider",
    "client.portUnification",
    "fips-mode",
    "portUnification",
    "requireClientAuthScheme",
    "sessionRequireClientSASLAuth",
    "sslQuorum",
    "sslQuorumReloadCertFiles",
];
const PREFIXES: &[&str] = &[
    "X509AuthenticationProvider.",
    "client.certReload",
    "kerberos.",
    "quorum.auth.",
    "sasl.",
    "ssl.",
    "superUser.",
];

/// Switch of the digest scheme, which is always on here.
const DIGEST_SCHEME: &str = "DigestAuthenticationProvider.enabled";

/// Hash of the digest scheme, and the one that this server uses.
const DIGEST_HASH: &str = "DigestAuthenticationProvider.digestAlg";
const KNOWN_HASH: &str = "SHA1";

/// Whether a line asks for protection that this server does not offer.
pub(super) fn is_promised(key: &str, value: &str) -> bool {
    let is_off = value.is_empty() || value.eq_ignore_ascii_case("false");
    match key {
        DIGEST_SCHEME => is_off,
        DIGEST_HASH => !value.eq_ignore_ascii_case(KNOWN_HASH),
        _ => !is_off && is_protection(key),
    }
}

fn is_protection(key: &str) -> bool {
    KEYS.contains(&key) || PREFIXES.iter().any(|prefix| key.starts_with(prefix))
}
