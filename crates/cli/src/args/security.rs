//! How a session is protected, and whom it is for.

use std::path::PathBuf;

use crate::credential::Credential;

#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Security options")]
pub(crate) struct SecurityArgs {
    /// Speak TLS with the servers, and trust the authorities that the system trusts.
    #[arg(long, env = "BELLWETHER_TLS", hide_short_help = true)]
    pub(crate) tls: bool,
    /// Speak TLS, and trust the authorities in this PEM file only.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_TLS_CA",
        hide_short_help = true
    )]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Speak TLS, and prove who you are by the certificate in this PEM file.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_TLS_CERT",
        hide_short_help = true
    )]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of the certificate: a PEM file, not encrypted.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_TLS_KEY",
        hide_short_help = true
    )]
    pub(crate) tls_key: Option<PathBuf>,
    /// Expect certificates of the servers to be for this name, instead of the host in --connect.
    #[arg(
        long,
        value_name = "NAME",
        env = "BELLWETHER_TLS_SERVER_NAME",
        hide_short_help = true
    )]
    pub(crate) tls_server_name: Option<String>,
    /// Prove who you are, such as digest:USER:PASSWORD; may be given more than once. Others on this host can read what
    /// is typed here, but not the variable.
    #[arg(
        long,
        value_name = "SCHEME:PROOF",
        env = AUTH,
        hide_env_values = true
    )]
    pub(crate) auth: Vec<Credential>,
    /// As --auth, from a file with one SCHEME:PROOF a line.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_AUTH_FILE",
        hide_short_help = true
    )]
    pub(crate) auth_file: Option<PathBuf>,
    /// Prove to be this user by SASL DIGEST-MD5. The password comes from --sasl-password-file, from the variable
    /// BELLWETHER_SASL_PASSWORD or, where no job is run, from the terminal.
    #[arg(
        long,
        value_name = "USER",
        env = "BELLWETHER_SASL",
        hide_short_help = true
    )]
    pub(crate) sasl: Option<String>,
    /// The file whose only line is the password of the user.
    #[arg(
        long,
        value_name = "FILE",
        env = "BELLWETHER_SASL_PASSWORD_FILE",
        hide_short_help = true
    )]
    pub(crate) sasl_password_file: Option<PathBuf>,
}

/// The variable of `--auth`.
pub(crate) const AUTH: &str = "BELLWETHER_AUTH";
