//! Settings of Apache that protect an installation, by means that this server does not have.
//!
//! To ignore one of them would leave a door open that its file closes, so that they stop a start.

/// TLS, SASL, providers of authentication, and audit logs (`QuorumPeerConfig`, `X509Util`, `ProviderRegistry`,
/// `ServerCnxn`, `QuorumAuth`, `ZKAuditProvider`).
const KEYS: &[&str] = &[
    "audit.enable",
    "authProvider",
    "client.portUnification",
    "fips-mode",
    "portUnification",
    "requireClientAuthScheme",
    "secureClientPort",
    "secureClientPortAddress",
    "sessionRequireClientSASLAuth",
    "sslQuorum",
    "sslQuorumReloadCertFiles",
    "superUser",
];
const PREFIXES: &[&str] = &[
    "X509AuthenticationProvider.",
    "authProvider.",
    "client.certReload",
    "kerberos.",
    "quorum.auth.",
    "sasl.",
    "ssl.",
    "superUser.",
];

/// The switch of the digest scheme, which is always on here.
const DIGEST_SCHEME: &str = "DigestAuthenticationProvider.enabled";

/// The hash of that scheme, and the one that this server has.
const DIGEST_HASH: &str = "DigestAuthenticationProvider.digestAlg";
const KNOWN_HASH: &str = "SHA1";

/// Whether a line promises protection that this server does not give.
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
