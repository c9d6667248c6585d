//! Options for TLS, credentials and SASL of a session, and for the access list of what it creates.

use std::path::PathBuf;

use crate::value::acl_list::{self, AclList};
use crate::value::credential::Credential;

#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Security options")]
pub(crate) struct SecurityArgs {
    /// Use TLS, and trust the certificate authorities of the system.
    #[arg(long, env = "BELLWETHER_TLS", hide_short_help = true)]
    pub(crate) tls: bool,
    /// Use TLS, and trust only the certificate authorities in this PEM file.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_TLS_CA",
        hide_short_help = true
    )]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Use TLS, and authenticate with the client certificate in this PEM file.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_TLS_CERT",
        hide_short_help = true
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate: a PEM file, not encrypted.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_TLS_KEY",
        hide_short_help = true
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Expect this name in the certificates of the servers, instead of the host in --connect.
    #[arg(
        long,
        value_name = "NAME",
        env = "BELLWETHER_TLS_SERVER_NAME",
        hide_short_help = true
    )]
    pub(crate) tls_server_name: Option<String>,
    /// Authenticate with a credential, such as digest:USER:PASSWORD; may be given more than once. Other users of this host can read
    /// the flag, but not the variable.
    #[arg(
        long,
        value_name = "SCHEME:PROOF",
        env = AUTH,
        hide_env_values = true
    )]
    pub(crate) auth: Vec<Credential>,
    /// Credentials as for --auth, from a file with one per line.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_AUTH_FILE",
        hide_short_help = true
    )]
    pub(crate) auth_file: Option<PathBuf>,
    /// Authenticate as this user by SASL DIGEST-MD5. The password comes from --sasl-password-file, from the variable
    /// BELLWETHER_SASL_PASSWORD or, for commands that run no job, from the terminal.
    #[arg(
        long,
        value_name = "USER",
        env = "BELLWETHER_SASL",
        hide_short_help = true
    )]
    pub(crate) sasl: Option<String>,
    /// A file with the password of the SASL user, on one line.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_SASL_PASSWORD_FILE",
        hide_short_help = true
    )]
    pub(crate) sasl_password_file: Option<PathBuf>,
    /// Who may use the nodes that this command creates: an access list SCHEME:ID:RIGHTS,..., such as world:anyone:r,auth::cdrwa. By
    /// default every client has all rights. The scheme `auth` means the identities of this session, such as that of --auth.
    #[arg(long, value_name = "ACL", env = "BELLWETHER_ACL", value_parser = acl_list::parse)]
    pub(crate) acl: Option<AclList>,
}

/// The variable of `--auth`.
pub(crate) const AUTH: &str = "BELLWETHER_AUTH";
