//! The data file that `log` and `snapshot` print: the one that is named, or the newest of a data folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::output::Output;
use crate::output::refusal::Refusal;

/// The folder within a data folder that has the files.
const VERSION_FOLDER: &str = "version-2";

/// The file itself; or the newest file of this kind, `log` or `snapshot`, in a data folder, whose name is printed.
pub(super) fn chosen(path: &Path, kind: &str, output: Output) -> anyhow::Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let below = path.join(VERSION_FOLDER);
    let folder = if below.is_dir() { &below } else { path };
    let entries =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut newest = None;
    for entry in entries {
        let name = entry?.file_name();
        let zxid = zxid(&name.to_string_lossy(), kind);
        newest = newest.max(zxid.map(|zxid| (zxid, name)));
    }
    let Some((_, name)) = newest else {
        let what = format!("there is no file {kind}.* in {}", folder.display());
        return Err(Refusal::failed(what).into());
    };
    let file = folder.join(name);
    output.notice(format_args!("this is {}", file.display()));
    Ok(file)
}

/// An error of reading a data file, among those of writing the answer.
pub(super) fn unread(file: &Path, error: io::Error) -> io::Error {
    io::Error::new(
        error.kind(),
        format!("cannot read {}: {error}", file.display()),
    )
}

/// The zxid in the name of a file of this kind, such as `log.1f` or `snapshot.1f.gz`.
fn zxid(name: &str, kind: &str) -> Option<u64> {
    let mut parts = name.split('.');
    let is_kind = parts.next() == Some(kind);
    u64::from_str_radix(parts.next()?, 16)
        .ok()
        .filter(|_| is_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_a_kind_and_a_number() {
        assert_eq!(zxid("log.1f", "log"), Some(0x1f));
        assert_eq!(
            zxid("snapshot.100000001.gz", "snapshot"),
            Some(0x1_0000_0001)
        );
        for name in ["snapshot.1f", "unfinished-log.1f", "log", "log.x"] {
            assert_eq!(zxid(name, "log"), None, "{name}");
        }
    }
}
