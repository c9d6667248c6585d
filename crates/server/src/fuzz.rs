//! Readers that are not public, for fuzz targets. They may refuse what they read, and nothing worse.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::client::sasl::{Negotiation, Users};
use crate::config::{TlsConfig, known_word};
use crate::tls;

/// The file of users, and the answer of a client to a challenge.
pub fn sasl(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let users = Users::parse(&text).unwrap_or_default();
    let mut negotiation = Negotiation::default();
    let _ = negotiation.step(&users, &[]);
    let _ = negotiation.step(&users, bytes);
    let _ = Negotiation::challenged("nonce").step(&users, bytes);
}

/// The subject of a certificate.
pub fn subject(bytes: &[u8]) {
    let _ = tls::subject_of(bytes);
}

/// Certificates, keys and authorities in files.
pub fn tls_files(bytes: &[u8]) {
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
        std::env::temp_dir().join(format!("bellwether-fuzz-{}.pem", std::process::id()))
    });
    if std::fs::write(&*FILE, bytes).is_err() {
        return;
    }
    let config = TlsConfig {
        client_authorities: Some(FILE.clone()),
        ..TlsConfig::new(&*FILE, &*FILE)
    };
    let _ = tls::load(&config);
}

/// The first bytes of a connection, as a four-letter word.
pub fn first_word(bytes: &[u8]) {
    if let Some(word) = bytes.get(..4)
        && let Ok(word) = std::str::from_utf8(word)
    {
        let _ = known_word(word);
    }
}
