//! Apache's server with TLS and SASL, for tests of clients that use them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

use super::ApacheBuilder;

/// TLS and SASL settings of a server.
#[derive(Debug, Clone, Default)]
pub(super) struct Security {
    tls: Option<Stores>,
    /// Users of SASL DIGEST-MD5 and their passwords.
    users: Vec<(String, String)>,
}

/// PEM files of the server.
#[derive(Debug, Clone)]
struct Stores {
    key: PathBuf,
    trust: PathBuf,
}

impl ApacheBuilder {
    /// Also serves TLS, on a separate port: [`Apache::tls_address`](super::Apache::tls_address). `key_store` is a PEM file with
    /// the server's key and certificate, `trust_store` one with the authorities that issue certificates to clients. Clients
    /// need a certificate unless `ssl.clientAuth` is set otherwise.
    #[must_use]
    pub fn tls(mut self, key_store: impl Into<PathBuf>, trust_store: impl Into<PathBuf>) -> Self {
        self.security.tls = Some(Stores {
            key: key_store.into(),
            trust: trust_store.into(),
        });
        self
    }

    /// Adds a user of SASL DIGEST-MD5; may be called more than once. Clients need not authenticate.
    #[must_use]
    pub fn sasl_user(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.security.users.push((user.into(), password.into()));
        self
    }
}

impl Security {
    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Returns the lines of the configuration.
    pub(super) fn settings(&self, tls_port: Option<u16>) -> Result<String> {
        let mut lines = String::new();
        if let (Some(stores), Some(port)) = (&self.tls, tls_port) {
            // The default factory has no TLS.
            let factory = "org.apache.zookeeper.server.NettyServerCnxnFactory";
            writeln!(lines, "serverCnxnFactory={factory}")?;
            writeln!(lines, "secureClientPort={port}")?;
            writeln!(lines, "secureClientPortAddress=127.0.0.1")?;
            writeln!(lines, "ssl.keyStore.location={}", stores.key.display())?;
            writeln!(lines, "ssl.trustStore.location={}", stores.trust.display())?;
        }
        if !self.users.is_empty() {
            let provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider";
            writeln!(lines, "authProvider.1={provider}")?;
        }
        Ok(lines)
    }

    /// Writes the users to a file of `folder`. Returns the system property that names it.
    pub(super) fn put_users(&self, folder: &Path) -> Result<Option<(String, String)>> {
        if self.users.is_empty() {
            return Ok(None);
        }
        let mut jaas = String::new();
        writeln!(jaas, "Server {{")?;
        writeln!(
            jaas,
            "  org.apache.zookeeper.server.auth.DigestLoginModule required"
        )?;
        for (user, password) in &self.users {
            ensure!(
                !format!("{user}{password}").contains(['"', '\\', '\n']),
                "the file of users has no way to write {user}"
            );
            writeln!(jaas, "  \"user_{user}\"=\"{password}\"")?;
        }
        writeln!(jaas, "  ;\n}};")?;
        let path = folder.join("jaas.conf");
        fs::write(&path, jaas)?;
        let name = "java.security.auth.login.config".to_owned();
        Ok(Some((name, path.display().to_string())))
    }
}
