//! TLS, credentials, SASL and access list of a session, from flags, variables, files and the terminal.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use bellwether::Connect;
use bellwether::zk::TlsOptions;

use crate::args::{AUTH, SecurityArgs};
use crate::connect::prompt;
use crate::output::Output;
use crate::output::refusal::Refusal;
use crate::value::acl_list::AclList;
use crate::value::credential::Credential;

/// The variable with the password of the SASL user.
const SASL_PASSWORD: &str = "BELLWETHER_SASL_PASSWORD";

/// The security settings of a session, with all secrets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Security {
    tls: Option<Tls>,
    auth: Vec<Credential>,
    sasl: Option<Sasl>,
    /// The access list of what recipes create.
    acl: Option<AclList>,
}

/// The TLS options.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tls {
    /// If it is not set, the authorities of the system.
    ca: Option<PathBuf>,
    /// Certificate and key.
    identity: Option<(PathBuf, PathBuf)>,
    server_name: Option<String>,
}

impl Tls {
    fn options(&self) -> TlsOptions {
        let mut options = TlsOptions::new();
        if let Some(ca) = &self.ca {
            options = options.ca_file(ca);
        }
        if let Some((certificate, key)) = &self.identity {
            options = options.client_certificate(certificate, key);
        }
        if let Some(name) = &self.server_name {
            options = options.server_name(name);
        }
        options
    }
}

/// A SASL user. `Debug` does not show the password.
#[derive(Clone)]
struct Sasl {
    user: String,
    password: String,
}

impl Security {
    /// Reads the files and secrets that the arguments name. May ask for a password.
    pub(crate) async fn of(args: &SecurityArgs, output: Output) -> anyhow::Result<Self> {
        let sasl = match &args.sasl {
            Some(user) => Some(Sasl::of(user, args).await?),
            None => None,
        };
        Ok(Self {
            tls: tls(args)?,
            sasl,
            ..Self::local(args, output)?
        })
    }

    /// The same for the local server. It needs neither TLS nor SASL: the kernel tells it which user connects.
    pub(crate) fn local(args: &SecurityArgs, output: Output) -> anyhow::Result<Self> {
        if args.auth.iter().any(is_typed) {
            output.notice(format_args!(
                "other users of this host can read the secret in --auth; use {AUTH} or --auth-file instead"
            ));
        }
        let mut auth = args.auth.clone();
        if let Some(path) = &args.auth_file {
            auth.extend(credentials(path)?);
        }
        Ok(Self {
            auth,
            acl: args.acl.clone(),
            ..Self::default()
        })
    }

    /// Sets the options of a session. No other code does.
    pub(crate) fn apply(&self, connect: Connect) -> Connect {
        let mut connect = connect;
        if let Some(tls) = &self.tls {
            connect = connect.tls(tls.options());
        }
        if let Some(Sasl { user, password }) = &self.sasl {
            connect = connect.sasl_digest_md5(user, password);
        }
        for credential in &self.auth {
            connect = connect.auth(&credential.scheme, &*credential.proof);
        }
        if let Some(AclList(acl)) = &self.acl {
            connect = connect.acl(&**acl);
        }
        connect
    }
}

/// TLS of sessions, if they use it.
pub(crate) fn tls_options(args: &SecurityArgs) -> anyhow::Result<Option<TlsOptions>> {
    Ok(tls(args)?.as_ref().map(Tls::options))
}

fn tls(args: &SecurityArgs) -> anyhow::Result<Option<Tls>> {
    let identity = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => Some((certificate.clone(), key.clone())),
        (None, None) => None,
        (Some(_), None) => return Err(Refusal::usage("--tls-cert needs --tls-key").into()),
        (None, Some(_)) => return Err(Refusal::usage("--tls-key needs --tls-cert").into()),
    };
    let tls = Tls {
        ca: args.tls_ca.clone(),
        identity,
        server_name: args.tls_server_name.clone(),
    };
    let is_wanted = args.tls || tls != Tls::default();
    Ok(is_wanted.then_some(tls))
}

/// Whether a credential is on the command line, where every user of the host can read it.
fn is_typed(credential: &Credential) -> bool {
    let variable = std::env::var(AUTH).ok();
    let variable = variable.and_then(|text| text.parse::<Credential>().ok());
    variable.is_none_or(|variable| variable != *credential)
}

/// The credentials in a file, one per line.
fn credentials(path: &Path) -> anyhow::Result<Vec<Credential>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            let line_number = index + 1;
            let credential: Result<Credential, _> = line.trim().parse();
            // The reason describes the format, and never contains the line, which may be a secret.
            credential
                .map_err(|reason| anyhow::anyhow!("{}:{line_number}: {reason}", path.display()))
        })
        .collect()
}

/// Whether a session with these arguments would ask the user for a password.
pub(crate) fn would_ask(args: &SecurityArgs) -> bool {
    let is_known = args.sasl_password_file.is_some() || std::env::var(SASL_PASSWORD).is_ok();
    args.sasl.is_some() && !is_known
}

impl Sasl {
    async fn of(user: &str, args: &SecurityArgs) -> anyhow::Result<Self> {
        let password = match (&args.sasl_password_file, std::env::var(SASL_PASSWORD)) {
            (Some(path), _) => password_in(path)?,
            (None, Ok(password)) => password,
            (None, Err(_)) => asked(user).await?,
        };
        if password.is_empty() {
            return Err(
                Refusal::usage(format!("the password of SASL user {user} is empty")).into(),
            );
        }
        Ok(Self {
            user: user.to_owned(),
            password,
        })
    }
}

impl fmt::Debug for Sasl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sasl({}:…)", self.user)
    }
}

fn password_in(path: &Path) -> anyhow::Result<String> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = text.lines();
    let password = lines.next().unwrap_or_default().to_owned();
    match lines.next() {
        None => Ok(password),
        Some(_) => anyhow::bail!(
            "{} has more than one line; a password file has one",
            path.display()
        ),
    }
}

async fn asked(user: &str) -> anyhow::Result<String> {
    let missing = || {
        Refusal::usage(format!("no password for SASL user {user}")).hint(format!(
            "set it with --sasl-password-file FILE or {SASL_PASSWORD}"
        ))
    };
    let answer = prompt::secret(&format!("password of {user}: ")).await?;
    answer.ok_or_else(|| missing().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quiet() -> Output {
        Output::new(true)
    }

    #[tokio::test]
    async fn any_option_of_tls_turns_it_on() {
        let none = SecurityArgs::default();
        let nothing = Security::of(&none, quiet()).await;
        assert_eq!(nothing.unwrap().tls, None);
        let args = SecurityArgs {
            tls_ca: Some("ca.pem".into()),
            tls_cert: Some("cert.pem".into()),
            tls_key: Some("key.pem".into()),
            ..SecurityArgs::default()
        };
        let wanted = Tls {
            ca: Some("ca.pem".into()),
            identity: Some(("cert.pem".into(), "key.pem".into())),
            server_name: None,
        };
        let security = Security::of(&args, quiet()).await.unwrap();
        assert_eq!(security.tls, Some(wanted));
        assert_eq!(Security::local(&args, quiet()).unwrap().tls, None);
        let flag = SecurityArgs {
            tls: true,
            ..SecurityArgs::default()
        };
        let security = Security::of(&flag, quiet()).await;
        assert_eq!(security.unwrap().tls, Some(Tls::default()));
    }

    #[test]
    fn certificate_and_key_belong_together() {
        let args = SecurityArgs {
            tls_key: Some("key.pem".into()),
            ..SecurityArgs::default()
        };
        let error = tls(&args).unwrap_err();
        assert_eq!(error.to_string(), "--tls-key needs --tls-cert");
    }

    #[tokio::test]
    async fn secrets_are_read_from_files_and_not_shown() {
        let folder = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::write(&path, text).unwrap();
            path
        };
        let args = SecurityArgs {
            auth_file: Some(put("auth", "digest:me:swordfish\n\nip:swordfish\n")),
            sasl: Some("alice".to_owned()),
            sasl_password_file: Some(put("password", "swordfish\n")),
            ..SecurityArgs::default()
        };
        let security = Security::of(&args, quiet()).await.unwrap();
        assert_eq!(security.auth.len(), 2);
        assert_eq!(security.sasl.as_ref().unwrap().password, "swordfish");
        assert!(!format!("{security:?}").contains("swordfish"));

        for (name, text) in [("auth", "digest:me:x\nswordfish"), ("password", "a\nb")] {
            put(name, text);
            let error = Security::of(&args, quiet()).await.unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(name) && !text.contains("swordfish"), "{text}");
            put(name, "digest:me:x");
        }
    }
}
