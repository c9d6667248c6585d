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
#[serde(deny_unknown_fields)]
pub(crate) struct ConfigFile {
    /// The servers, as `--connect` takes them.
    pub(crate) connect: Option<String>,
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
        Ok(Some(file))
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
}
