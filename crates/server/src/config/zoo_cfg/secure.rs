//! The TLS settings that this server supports: PEM files and client certificates.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use super::{Setting, ZooCfgError};
use crate::config::{ClientCertificates, TlsConfig, TlsVersion};

const PORT: &str = "secureClientPort";
const ADDRESS: &str = "secureClientPortAddress";
const KEY_STORE: &str = "ssl.keyStore.location";
const KEY_STORE_TYPE: &str = "ssl.keyStore.type";
const KEY_PASSWORD: &str = "ssl.keyStore.password";
const TRUST_STORE: &str = "ssl.trustStore.location";
const TRUST_STORE_TYPE: &str = "ssl.trustStore.type";
/// PEM files of certificates have no password, so this one protects nothing.
const TRUST_PASSWORD: &str = "ssl.trustStore.password";
const CLIENT_AUTH: &str = "ssl.clientAuth";
const PROTOCOL: &str = "ssl.protocol";
const PROTOCOLS: &str = "ssl.enabledProtocols";
const SUPER_SUBJECT: &str = "X509AuthenticationProvider.superUser";

const KEYS: [&str; 12] = [
    PORT,
    ADDRESS,
    KEY_STORE,
    KEY_STORE_TYPE,
    KEY_PASSWORD,
    TRUST_STORE,
    TRUST_STORE_TYPE,
    TRUST_PASSWORD,
    CLIENT_AUTH,
    PROTOCOL,
    PROTOCOLS,
    SUPER_SUBJECT,
];

/// The TLS settings, by key: value and line number.
#[derive(Debug, Default)]
pub(super) struct Secure(BTreeMap<String, (String, usize)>);

impl Secure {
    /// Takes a setting if it is about TLS. An empty value unsets an earlier line.
    pub(super) fn take(&mut self, setting: &Setting<'_>) -> bool {
        if !KEYS.contains(&setting.key) {
            return false;
        }
        if setting.value.is_empty() {
            self.0.remove(setting.key);
        } else {
            let line = (setting.value.to_owned(), setting.line);
            self.0.insert(setting.key.to_owned(), line);
        }
        true
    }

    /// Builds the TLS configuration. Adds settings that this server does not support to `unsupported`; all of them if no TLS port is set.
    pub(super) fn finish(
        &self,
        unsupported: &mut BTreeMap<String, usize>,
    ) -> Result<Option<TlsConfig>, ZooCfgError> {
        let Some(port) = self.setting(PORT) else {
            let lines = self
                .0
                .iter()
                .filter(|(key, (value, _))| *key != CLIENT_AUTH || value != "none");
            unsupported.extend(lines.map(|(key, (_, line))| (key.clone(), *line)));
            return Ok(None);
        };
        let port = u16::try_from(port.number(1..=u16::MAX.into())?).expect("it is in range");
        let address = match self.setting(ADDRESS) {
            Some(address) => address.address()?,
            None => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        };
        let key_store = self.pem_file(KEY_STORE, KEY_STORE_TYPE);
        let client_authorities = self.pem_file(TRUST_STORE, TRUST_STORE_TYPE);
        let foreign =
            [&key_store, &client_authorities].map(|store| store.as_ref()?.as_ref().err().copied());
        // This is the password of an encrypted key, which this server does not read.
        let password = self
            .setting(KEY_PASSWORD)
            .map(|one| (KEY_PASSWORD, one.line));
        let before = unsupported.len();
        let lines = foreign.into_iter().flatten().chain(password);
        unsupported.extend(lines.map(|(key, line)| (key.to_owned(), line)));
        if unsupported.len() > before {
            return Ok(None);
        }
        let path = |store: Option<Result<PathBuf, _>>| store.and_then(Result::ok);
        let (key_store, client_authorities) = (path(key_store), path(client_authorities));
        let key_store = key_store.ok_or(ZooCfgError::NotSet { key: KEY_STORE })?;
        let client_certificates = match self.setting(CLIENT_AUTH) {
            None => ClientCertificates::Required,
            Some(setting) => match setting.value.to_ascii_lowercase().as_str() {
                "need" => ClientCertificates::Required,
                "want" => ClientCertificates::Optional,
                "none" => ClientCertificates::Ignored,
                _ => return Err(setting.bad("need, want or none")),
            },
        };
        if client_authorities.is_none() && client_certificates != ClientCertificates::Ignored {
            return Err(ZooCfgError::NotSet { key: TRUST_STORE });
        }
        Ok(Some(TlsConfig {
            listen: vec![SocketAddr::new(address, port)],
            client_authorities,
            client_certificates,
            versions: self.versions()?,
            super_subject: self.setting(SUPER_SUBJECT).map(|one| one.value.to_owned()),
            ..TlsConfig::new(&key_store, &key_store)
        }))
    }

    fn setting(&self, key: &'static str) -> Option<Setting<'_>> {
        let (value, line) = self.0.get(key)?;
        Some(Setting {
            line: *line,
            key,
            value,
        })
    }

    /// Path of a store if it is set and a PEM file; key and line number if it is a Java store, which this server does not read.
    fn pem_file(
        &self,
        location: &'static str,
        kind: &'static str,
    ) -> Option<Result<PathBuf, (&'static str, usize)>> {
        let key = location;
        let location = self.setting(location)?;
        let path = PathBuf::from(location.value);
        let is_pem = match self.setting(kind) {
            Some(kind) => kind.value.eq_ignore_ascii_case("PEM"),
            // FileKeyStoreLoaderBuilderProvider decides by the file extension.
            None => path
                .extension()
                .is_some_and(|ext| ext.eq_ignore_ascii_case("pem")),
        };
        Some(if is_pem {
            Ok(path)
        } else {
            Err((key, location.line))
        })
    }

    fn versions(&self) -> Result<Vec<TlsVersion>, ZooCfgError> {
        let Some(setting) = self.setting(PROTOCOLS).or_else(|| self.setting(PROTOCOL)) else {
            return Ok(vec![TlsVersion::V1_2, TlsVersion::V1_3]);
        };
        let expected = "TLSv1.2, TLSv1.3 or both; older versions are not safe";
        let version = |name| match name {
            "TLSv1.2" => Ok(TlsVersion::V1_2),
            "TLSv1.3" => Ok(TlsVersion::V1_3),
            _ => Err(setting.bad(expected)),
        };
        let versions: Vec<_> = setting.list().map(version).collect::<Result<_, _>>()?;
        match versions.is_empty() {
            true => Err(setting.bad(expected)),
            false => Ok(versions),
        }
    }
}
