//! How a session is protected and whom it is for: TLS, credentials and SASL, from flags, variables, files and the terminal.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use bellwether::Connect;
use bellwether::zk::TlsOptions;

use crate::args::{AUTH, SecurityArgs};
use crate::config_file::ConfigFile;
use crate::credential::Credential;
use crate::output::Output;
use crate::prompt;
use crate::refusal::Refusal;

/// The password of the user of SASL.
const SASL_PASSWORD: &str = "BELLWETHER_SASL_PASSWORD";

/// What a session with servers uses, all secrets known.
#[derive(Clone, Debug, Default)]
pub(crate) struct Security {
    tls: Option<Tls>,
    auth: Vec<Credential>,
    sasl: Option<Sasl>,
}

/// Files and names for TLS, as they were given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Tls {
    /// The authorities of the system without it.
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

/// A user of SASL. Its password is not shown.
#[derive(Clone)]
struct Sasl {
    user: String,
    password: String,
}

impl Security {
    /// What flags and variables say, and the file where they say nothing. May ask for a password.
    pub(crate) async fn of(
        args: &SecurityArgs,
        file: &ConfigFile,
        output: Output,
    ) -> anyhow::Result<Self> {
        let sasl = match args.sasl.as_ref().or(file.sasl.as_ref()) {
            Some(user) => Some(Sasl::of(user, args, file).await?),
            None => None,
        };
        Ok(Self {
            tls: tls(args, file)?,
            sasl,
            ..Self::local(args, file, output)?
        })
    }

    /// The same for the local server: it is on this host and lets its user in, so there is neither TLS nor SASL.
    pub(crate) fn local(
        args: &SecurityArgs,
        file: &ConfigFile,
        output: Output,
    ) -> anyhow::Result<Self> {
        if args.auth.iter().any(is_typed) {
            output.notice(format_args!(
                "others on this host can read the secret in --auth; {AUTH} and --auth-file keep it"
            ));
        }
        let mut auth = args.auth.clone();
        if let Some(path) = args.auth_file.as_ref().or(file.auth_file.as_ref()) {
            auth.extend(credentials(path)?);
        }
        Ok(Self {
            auth,
            ..Self::default()
        })
    }

    /// Hands everything to the session. This is the only place that does.
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
        connect
    }
}

fn tls(args: &SecurityArgs, file: &ConfigFile) -> anyhow::Result<Option<Tls>> {
    let path = |given: &Option<PathBuf>, set: &Option<PathBuf>| given.clone().or(set.clone());
    let identity = match (
        path(&args.tls_cert, &file.tls_cert),
        path(&args.tls_key, &file.tls_key),
    ) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        (Some(_), None) => return Err(Refusal::usage("--tls-cert needs --tls-key").into()),
        (None, Some(_)) => return Err(Refusal::usage("--tls-key needs --tls-cert").into()),
    };
    let tls = Tls {
        ca: path(&args.tls_ca, &file.tls_ca),
        identity,
        server_name: args
            .tls_server_name
            .clone()
            .or(file.tls_server_name.clone()),
    };
    let is_wanted = args.tls || file.tls || tls != Tls::default();
    Ok(is_wanted.then_some(tls))
}

/// Whether a credential stands on the command line, where every user of the host can read it.
fn is_typed(credential: &Credential) -> bool {
    let variable = std::env::var(AUTH).ok();
    let variable = variable.and_then(|text| text.parse::<Credential>().ok());
    variable.is_none_or(|variable| variable != *credential)
}

/// The credentials in a file, one a line.
fn credentials(path: &Path) -> anyhow::Result<Vec<Credential>> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let lines = text.lines().enumerate();
    lines
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(index, line)| {
            let line_number = index + 1;
            let credential: Result<Credential, _> = line.trim().parse();
            // The reason tells the form, and nothing of the line.
            credential
                .map_err(|reason| anyhow::anyhow!("{}:{line_number}: {reason}", path.display()))
        })
        .collect()
}

impl Sasl {
    async fn of(user: &str, args: &SecurityArgs, file: &ConfigFile) -> anyhow::Result<Self> {
        let given = args.sasl_password_file.as_ref();
        let password = match (given, std::env::var(SASL_PASSWORD)) {
            (Some(path), _) => password_in(path)?,
            (None, Ok(password)) => password,
            (None, Err(_)) => match &file.sasl_password_file {
                Some(path) => password_in(path)?,
                None => asked(user).await?,
            },
        };
        if password.is_empty() {
            return Err(Refusal::usage(format!("the password of {user} is empty")).into());
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
        Some(_) => anyhow::bail!("{} has more than the line of a password", path.display()),
    }
}

async fn asked(user: &str) -> anyhow::Result<String> {
    let missing = || {
        Refusal::usage(format!("no password for {user}")).hint(format!(
            "--sasl-password-file FILE or {SASL_PASSWORD} gives it"
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
    async fn any_option_of_tls_turns_it_on_and_flags_win_over_the_file() {
        let file = ConfigFile {
            tls_ca: Some("file-ca.pem".into()),
            tls_cert: Some("file-cert.pem".into()),
            tls_key: Some("file-key.pem".into()),
            ..ConfigFile::default()
        };
        let none = SecurityArgs::default();
        let nothing = Security::of(&none, &ConfigFile::default(), quiet()).await;
        assert_eq!(nothing.unwrap().tls, None);
        let args = SecurityArgs {
            tls_ca: Some("ca.pem".into()),
            tls_server_name: Some("zk".to_owned()),
            ..SecurityArgs::default()
        };
        let wanted = Tls {
            ca: Some("ca.pem".into()),
            identity: Some(("file-cert.pem".into(), "file-key.pem".into())),
            server_name: Some("zk".to_owned()),
        };
        let security = Security::of(&args, &file, quiet()).await.unwrap();
        assert_eq!(security.tls, Some(wanted));
        assert_eq!(Security::local(&args, &file, quiet()).unwrap().tls, None);
        let flag = SecurityArgs {
            tls: true,
            ..SecurityArgs::default()
        };
        let security = Security::of(&flag, &ConfigFile::default(), quiet()).await;
        assert_eq!(security.unwrap().tls, Some(Tls::default()));
    }

    #[test]
    fn certificate_and_key_belong_together() {
        let args = SecurityArgs {
            tls_key: Some("key.pem".into()),
            ..SecurityArgs::default()
        };
        let error = tls(&args, &ConfigFile::default()).unwrap_err();
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
        let file = ConfigFile::default();
        let security = Security::of(&args, &file, quiet()).await.unwrap();
        assert_eq!(security.auth.len(), 2);
        assert_eq!(security.sasl.as_ref().unwrap().password, "swordfish");
        assert!(!format!("{security:?}").contains("swordfish"));

        for (name, text) in [("auth", "digest:me:x\nswordfish"), ("password", "a\nb")] {
            put(name, text);
            let error = Security::of(&args, &file, quiet()).await.unwrap_err();
            let text = format!("{error:#}");
            assert!(text.contains(name) && !text.contains("swordfish"), "{text}");
            put(name, "digest:me:x");
        }
    }
}
