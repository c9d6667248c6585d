//! Options for TLS, credentials and SASL of a session, and for the access list of what it creates.

use std::path::PathBuf;

use crate::value::acl_list::{self, AclList};
use crate::value::credential::Credential;

/// The heading of these options in long help; short help leaves them out.
pub(super) const SECURITY: &str = "Security options";

// The heading is that of each option: as the next heading of the command, it would also cover options behind these.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct SecurityArgs {
    /// Use TLS, and trust the certificate authorities of the system.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        env = "BELLWETHER_TLS"
    )]
    pub(crate) tls: bool,
    /// Use TLS, and trust only the certificate authorities in this PEM file.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        value_name = "FILE",
        env = "BELLWETHER_TLS_CA"
    )]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Use TLS, and authenticate with the client certificate in this PEM file.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        value_name = "FILE",
        env = "BELLWETHER_TLS_CERT"
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate: a PEM file, not encrypted.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        value_name = "FILE",
        env = "BELLWETHER_TLS_KEY"
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Expect this name in the certificates of the servers, instead of the host in --connect.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        value_name = "NAME",
        env = "BELLWETHER_TLS_SERVER_NAME"
    )]
    pub(crate) tls_server_name: Option<String>,
    /// Authenticate with a credential, such as digest:USER:PASSWORD; may be given more than once. Other users of this host can read
    /// the flag, but not the variable.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        value_name = "SCHEME:PROOF",
        env = AUTH
    )]
    pub(crate) auth: Vec<Credential>,
    /// Credentials as for --auth, from a file with one per line.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        value_name = "FILE",
        env = "BELLWETHER_AUTH_FILE"
    )]
    pub(crate) auth_file: Option<PathBuf>,
    /// Authenticate as this user by SASL DIGEST-MD5. The password comes from --sasl-password-file, from the variable
    /// BELLWETHER_SASL_PASSWORD or, for commands that run no job, from the terminal.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        value_name = "USER",
        env = "BELLWETHER_SASL"
    )]
    pub(crate) sasl: Option<String>,
    /// A file with the password of the SASL user, on one line.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        value_name = "FILE",
        env = "BELLWETHER_SASL_PASSWORD_FILE"
    )]
    pub(crate) sasl_password_file: Option<PathBuf>,
    /// Who may use the nodes that this command creates: an access list SCHEME:ID:RIGHTS,..., such as world:anyone:r,auth::cdrwa. By
    /// default every client has all rights. The scheme `auth` means the identities of this session, such as that of --auth.
    #[arg(
        long,
        help_heading = SECURITY,
        hide_short_help = true,
        hide_env_values = true,
        value_name = "ACL", env = "BELLWETHER_ACL", value_parser = acl_list::parse)]
    pub(crate) acl: Option<AclList>,
}

/// The variable of `--auth`.
pub(crate) const AUTH: &str = "BELLWETHER_AUTH";
