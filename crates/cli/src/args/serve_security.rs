//! Options for listeners, TLS and authentication of `serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use bellwether_server::{ClientCertificates, Config, SessionPasswords, TlsConfig, UnixPeers};

use crate::value::listen_address;

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ListenAddress {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        match text.strip_prefix("unix:") {
            Some("") => Err("the path of the socket after `unix:` is missing".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => listen_address::parse(text).map(Self::Tcp),
        }
    }
}

#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Security options")]
pub(crate) struct ServeSecurityArgs {
    /// Who may connect to the Unix socket: `same` for the user of the server and root, or `all` users of this host. The kernel
    /// authenticates them, and access lists can name them, as in unix:1000.
    #[arg(long, value_name = "WHO", default_value = "same")]
    unix_users: UnixUsers,
    /// Listen for TLS connections at this address; may be given more than once.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "cert", value_parser = listen_address::parse)]
    tls_listen: Vec<SocketAddr>,
    /// The certificate chain of the server, for --tls-listen and --http-tls: a PEM file. It is read again when it changes.
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// The private key: a PEM file, not encrypted. By default it is in the file of the certificate.
    #[arg(long, value_name = "FILE", requires = "cert")]
    key: Option<PathBuf>,
    /// The authorities that sign client certificates: a PEM file. A client's identity is its subject, as in x509:CN=alice.
    #[arg(long, value_name = "FILE", requires = "cert")]
    client_ca: Option<PathBuf>,
    /// Whether clients need a certificate, may have one, or are not asked for one.
    #[arg(
        long,
        value_name = "WHICH",
        requires = "client_ca",
        default_value = "need"
    )]
    client_auth: ClientAuth,
    /// The users of SASL DIGEST-MD5: a file with one USER:PASSWORD per line.
    #[arg(long, value_name = "FILE")]
    sasl_users: Option<PathBuf>,
    /// Serve only clients that have authenticated by one of these schemes, such as sasl,x509.
    #[arg(long, value_name = "SCHEMES", value_delimiter = ',')]
    enforce_auth: Vec<Scheme>,
    /// Append a line of JSON to this file for each write, session, failed authentication and change by a four-letter word.
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// Which session passwords clients get: `secret` ones, or `apache` for those that any client can compute. Only with the latter can
    /// sessions continue on Apache's server.
    #[arg(long, value_name = "WHICH")]
    session_passwords: Option<PasswordKind>,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum UnixUsers {
    Same,
    All,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum ClientAuth {
    Need,
    Want,
    None,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum PasswordKind {
    Secret,
    Apache,
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Scheme {
    Digest,
    Ip,
    Sasl,
    Unix,
    X509,
}

impl ServeSecurityArgs {
    /// Whether there is a TLS listener. Then there is no default listener without TLS.
    pub(crate) fn listens_for_tls(&self) -> bool {
        !self.tls_listen.is_empty()
    }

    /// Sets the given options.
    pub(crate) fn apply(self, config: &mut Config) {
        if matches!(self.unix_users, UnixUsers::All) {
            config.unix_peers = UnixPeers::AllUsers;
        }
        if let Some(cert) = self.cert {
            let key = self.key.unwrap_or_else(|| cert.clone());
            config.tls = Some(TlsConfig {
                listen: self.tls_listen,
                client_authorities: self.client_ca,
                client_certificates: match self.client_auth {
                    ClientAuth::Need => ClientCertificates::Required,
                    ClientAuth::Want => ClientCertificates::Optional,
                    ClientAuth::None => ClientCertificates::Ignored,
                },
                ..TlsConfig::new(cert, key)
            });
        }
        if self.sasl_users.is_some() {
            config.sasl_users = self.sasl_users;
        }
        if !self.enforce_auth.is_empty() {
            let name = |scheme: &Scheme| match scheme {
                Scheme::Digest => "digest",
                Scheme::Ip => "ip",
                Scheme::Sasl => "sasl",
                Scheme::Unix => "unix",
                Scheme::X509 => "x509",
            };
            let names = self
                .enforce_auth
                .iter()
                .map(|scheme| name(scheme).to_owned());
            config.enforce_auth_schemes = names.collect();
        }
        if self.audit_log.is_some() {
            config.audit_log = self.audit_log;
        }
        if let Some(which) = self.session_passwords {
            config.session_passwords = match which {
                PasswordKind::Secret => SessionPasswords::Secret,
                PasswordKind::Apache => SessionPasswords::Apache,
            };
        }
    }
}
