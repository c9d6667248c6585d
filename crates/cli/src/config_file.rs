//! `bellwether.toml`: settings that hold for every command.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;

use crate::connect::parse_servers;

/// Where the host's file is, which counts where the user has none.
const OF_HOST: &str = "/etc/bellwether.toml";

/// What a file can say.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct ConfigFile {
    /// The servers, as `--connect` takes them.
    pub(crate) connect: Option<String>,
    // The flags of these names. Secrets are in files of their own: this one is for all to read.
    pub(crate) tls: bool,
    pub(crate) tls_ca: Option<PathBuf>,
    pub(crate) tls_cert: Option<PathBuf>,
    pub(crate) tls_key: Option<PathBuf>,
    pub(crate) tls_server_name: Option<String>,
    pub(crate) auth_file: Option<PathBuf>,
    pub(crate) sasl: Option<String>,
    pub(crate) sasl_password_file: Option<PathBuf>,
}

impl ConfigFile {
    /// Reads the user's file, or else the host's. Without either, nothing is set.
    pub(crate) fn read() -> anyhow::Result<Self> {
        let of_user = base_folder("XDG_CONFIG_HOME", ".config");
        let of_user = of_user.map(|folder| folder.join("bellwether.toml"));
        for path in of_user.into_iter().chain([PathBuf::from(OF_HOST)]) {
            if let Some(file) = Self::at(&path)? {
                return Ok(file);
            }
        }
        Ok(Self::default())
    }

    fn at(path: &Path) -> anyhow::Result<Option<Self>> {
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) =>
            {
                return Ok(None);
            }
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", path.display()));
            }
        };
        let understood = toml::from_str(&text).map_err(anyhow::Error::from);
        let checked = understood.and_then(|file: Self| match &file.connect {
            Some(servers) => match parse_servers(servers) {
                Ok(_) => Ok(file),
                Err(reason) => Err(anyhow::anyhow!("connect: {reason}")),
            },
            None => Ok(file),
        });
        let file = checked.with_context(|| format!("cannot understand {}", path.display()))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        Ok(Some(file.relative_to(folder)))
    }

    /// Paths are relative to the folder of the file that names them, wherever a command is run.
    fn relative_to(mut self, folder: &Path) -> Self {
        for path in [
            &mut self.tls_ca,
            &mut self.tls_cert,
            &mut self.tls_key,
            &mut self.auth_file,
            &mut self.sasl_password_file,
        ]
        .into_iter()
        .flatten()
        {
            *path = folder.join(&*path);
        }
        self
    }
}

/// A base folder of the XDG specification, which says that a relative one is to be ignored.
fn base_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |variable| {
        let path = std::env::var_os(variable).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_read_and_anything_else_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bellwether.toml");
        assert_eq!(ConfigFile::at(&path).unwrap(), None);
        fs::write(&path, "connect = \"zk1,zk2/jobs\"\n").unwrap();
        let file = ConfigFile::at(&path).unwrap().unwrap();
        assert_eq!(file.connect.as_deref(), Some("zk1,zk2/jobs"));
        for text in ["conect = \"zk1\"", "connect = 1", "connect", "connect = ''"] {
            fs::write(&path, text).unwrap();
            let error = ConfigFile::at(&path).unwrap_err();
            assert!(error.to_string().contains("bellwether.toml"), "{error}");
        }
    }

    #[test]
    fn security_is_read_and_its_files_are_beside_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bellwether.toml");
        let text = r#"
            tls = true
            tls-ca = "ca.pem"
            tls-cert = "/etc/cert.pem"
            tls-key = "/etc/key.pem"
            tls-server-name = "zk"
            auth-file = "auth"
            sasl = "alice"
            sasl-password-file = "password"
        "#;
        fs::write(&path, text).unwrap();
        let file = ConfigFile::at(&path).unwrap().unwrap();
        let wanted = ConfigFile {
            connect: None,
            tls: true,
            tls_ca: Some(folder.path().join("ca.pem")),
            tls_cert: Some("/etc/cert.pem".into()),
            tls_key: Some("/etc/key.pem".into()),
            tls_server_name: Some("zk".to_owned()),
            auth_file: Some(folder.path().join("auth")),
            sasl: Some("alice".to_owned()),
            sasl_password_file: Some(folder.path().join("password")),
        };
        assert_eq!(file, wanted);
        // A password has no place in a file for everybody.
        fs::write(&path, "sasl-password = \"swordfish\"").unwrap();
        let error = ConfigFile::at(&path).unwrap_err();
        assert!(error.to_string().contains("bellwether.toml"), "{error}");
    }
}
