//! The key from which secret session passwords are derived.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use ring::hmac::{self, HMAC_SHA256};
use ring::rand::{SecureRandom as _, SystemRandom};

/// File in the data folder. Apache ignores it.
const FILE: &str = "session.key";

const BYTES: usize = 32;

/// Loads the key from `folder`, or creates it: sessions outlive the server, so their passwords must too. Without a folder the key is
/// random.
pub(super) fn load(folder: Option<&Path>) -> io::Result<hmac::Key> {
    let Some(folder) = folder else {
        return Ok(hmac::Key::new(HMAC_SHA256, &random()?));
    };
    let path = folder.join(FILE);
    let bytes = match fs::read(&path) {
        // A key truncated by a crash would make passwords guessable.
        Ok(bytes) if bytes.len() != BYTES => {
            let error = format!(
                "{} is damaged: {} bytes instead of {BYTES}",
                path.display(),
                bytes.len()
            );
            return Err(io::Error::new(ErrorKind::InvalidData, error));
        }
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => create(folder, &path)?,
        Err(error) => return Err(error),
    };
    Ok(hmac::Key::new(HMAC_SHA256, &bytes))
}

/// Writes a new key to a temporary file, and renames it after the fsync.
fn create(folder: &Path, path: &Path) -> io::Result<Vec<u8>> {
    fs::create_dir_all(folder)?;
    let bytes = random()?;
    let unfinished = folder.join(format!("{FILE}.unfinished"));
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&unfinished)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    File::open(folder)?.sync_all()?;
    Ok(bytes.to_vec())
}

fn random() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn tag(key: &hmac::Key) -> Vec<u8> {
        hmac::sign(key, b"session").as_ref().to_vec()
    }

    #[test]
    fn the_key_outlives_the_server_and_only_its_user_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = tag(&load(Some(folder.path())).unwrap());
        assert_eq!(tag(&load(Some(folder.path())).unwrap()), first);
        let mode = fs::metadata(folder.path().join(FILE))
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_ne!(tag(&load(None).unwrap()), tag(&load(None).unwrap()));
    }

    #[test]
    fn a_key_that_is_cut_short_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), b"short").unwrap();
        let error = load(Some(folder.path())).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
