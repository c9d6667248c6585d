//! The key from which secret session passwords are derived, and its file.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use ring::rand::{SecureRandom as _, SystemRandom};

/// File in the data folder: the key, then session ids of eight bytes each. Apache ignores it.
const FILE: &str = "session.key";

const BYTES: usize = 32;

/// Mode of the file.
const OWNER_ONLY: u32 = 0o600;

const ID_BYTES: usize = size_of::<i64>();

/// In place of the ids: sessions with Apache's passwords were opened beside the key, and nobody has listed them. No session has this id.
const UNLISTED: i64 = 0;

/// The content of the file.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct KeyFile {
    pub(super) key: [u8; BYTES],
    /// Sessions that were opened with Apache's passwords.
    pub(super) computable: Vec<i64>,
}

impl KeyFile {
    /// The key of the data folder, for a server that gives out secret passwords: sessions outlive the server, so their passwords must too.
    ///
    /// Where there is none yet, one is created, and the sessions that are `open` keep Apache's passwords: they come from Apache's server, or
    /// from one with [`shared`](Self::shared) passwords, and their clients know no others.
    pub(super) fn exclusive(folder: &Path, open: impl Iterator<Item = i64>) -> io::Result<Self> {
        let listed = match Self::read(folder)? {
            Some(found) if found.computable != [UNLISTED] => return Ok(found),
            Some(unlisted) => Self {
                computable: open.collect(),
                ..unlisted
            },
            None => Self {
                key: random()?,
                computable: open.collect(),
            },
        };
        listed.write(folder)?;
        Ok(listed)
    }

    /// The key of the data folder, for a server that gives out Apache's passwords; none is created. From now on there may be sessions with
    /// such passwords beside those with secret ones.
    pub(super) fn shared(folder: &Path) -> io::Result<Option<[u8; BYTES]>> {
        let Some(mut found) = Self::read(folder)? else {
            return Ok(None);
        };
        if found.computable != [UNLISTED] {
            found.computable = vec![UNLISTED];
            found.write(folder)?;
        }
        Ok(Some(found.key))
    }

    /// Gives the data folder a new key, with which none of the sessions in it can be resumed by any password: neither by a secret one from
    /// before nor by Apache's.
    pub(super) fn renew(folder: &Path) -> io::Result<()> {
        let fresh = Self {
            key: random()?,
            computable: Vec::new(),
        };
        fresh.write(folder)
    }

    /// Whether clients have secret passwords that they can use on no other server. Fails like a start if the file is damaged.
    pub(super) fn is_exclusive(folder: &Path) -> io::Result<bool> {
        let found = Self::read(folder)?;
        Ok(found.is_some_and(|found| found.computable != [UNLISTED]))
    }

    fn read(folder: &Path) -> io::Result<Option<Self>> {
        let path = folder.join(FILE);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        shut(&path)?;
        let ids = bytes.get(BYTES..).unwrap_or_default().as_chunks();
        match (bytes.first_chunk(), ids) {
            (Some(key), (ids, [])) => Ok(Some(Self {
                key: *key,
                computable: ids
                    .iter()
                    .map(|id: &[u8; ID_BYTES]| i64::from_be_bytes(*id))
                    .collect(),
            })),
            // A key truncated by a crash would make passwords guessable.
            _ => Err(io::Error::new(
                ErrorKind::InvalidData,
                format!(
                    "{} is damaged: it has {} bytes",
                    path.display(),
                    bytes.len()
                ),
            )),
        }
    }

    /// Writes a temporary file, and renames it after the fsync. Other users cannot read it, nor a folder that this creates, whatever the
    /// umask.
    fn write(&self, folder: &Path) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        let unfinished = folder.join(format!("{FILE}.unfinished"));
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(OWNER_ONLY)
            .open(&unfinished)?;
        // It may exist already.
        file.set_permissions(Permissions::from_mode(OWNER_ONLY))?;
        let ids = self.computable.iter().flat_map(|id| id.to_be_bytes());
        let bytes: Vec<u8> = self.key.into_iter().chain(ids).collect();
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&unfinished, folder.join(FILE))?;
        File::open(folder)?.sync_all()
    }
}

/// Takes the key from other users, who can have read it: the file was copied, perhaps.
fn shut(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & !OWNER_ONLY == 0 {
        return Ok(());
    }
    tracing::warn!(
        path = %path.display(),
        mode = format_args!("{mode:o}"),
        "other users could read the session key; delete it to make a new one, which ends all sessions"
    );
    fs::set_permissions(path, Permissions::from_mode(OWNER_ONLY))
}

pub(super) fn random() -> io::Result<[u8; BYTES]> {
    let mut bytes = [0; BYTES];
    SystemRandom::new()
        .fill(&mut bytes)
        .map_err(|_| io::Error::other("the system gives no random numbers"))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    fn exclusive(folder: &Path, open: &[i64]) -> KeyFile {
        KeyFile::exclusive(folder, open.iter().copied()).unwrap()
    }

    #[test]
    fn the_key_outlives_the_server_and_only_its_user_reads_it() {
        let folder = tempfile::tempdir().unwrap();
        let first = exclusive(folder.path(), &[]);
        assert!(exclusive(folder.path(), &[]) == first);
        assert_eq!(mode(&folder.path().join(FILE)), OWNER_ONLY);
        assert_ne!(random().unwrap(), random().unwrap());
    }

    #[test]
    fn a_key_that_is_cut_short_is_not_used() {
        let folder = tempfile::tempdir().unwrap();
        for damaged in [&b"short"[..], &[7; BYTES + 1]] {
            fs::write(folder.path().join(FILE), damaged).unwrap();
            let error = KeyFile::exclusive(folder.path(), iter::empty()).err();
            assert_eq!(error.unwrap().kind(), ErrorKind::InvalidData);
        }
    }

    #[test]
    fn sessions_older_than_the_key_are_listed_and_later_ones_are_not() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(exclusive(folder.path(), &[3, -4]).computable, [3, -4]);
        assert_eq!(exclusive(folder.path(), &[3, 5]).computable, [3, -4]);
    }

    #[test]
    fn sessions_opened_beside_the_key_are_listed_when_it_is_used_again() {
        let folder = tempfile::tempdir().unwrap();
        assert!(KeyFile::shared(folder.path()).unwrap().is_none());
        assert!(!KeyFile::is_exclusive(folder.path()).unwrap());
        let first = exclusive(folder.path(), &[3]);
        assert!(KeyFile::is_exclusive(folder.path()).unwrap());
        for _ in 0..2 {
            assert!(KeyFile::shared(folder.path()).unwrap() == Some(first.key));
            assert!(!KeyFile::is_exclusive(folder.path()).unwrap());
        }
        let again = exclusive(folder.path(), &[5, 6]);
        assert!(again.key == first.key);
        assert_eq!(again.computable, [5, 6]);
    }

    #[test]
    fn with_a_new_key_sessions_from_before_have_no_password() {
        let folder = tempfile::tempdir().unwrap();
        let first = exclusive(folder.path(), &[3]);
        KeyFile::renew(folder.path()).unwrap();
        let renewed = exclusive(folder.path(), &[3]);
        assert!(renewed.key != first.key);
        assert!(renewed.computable.is_empty());
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn neither_umask_nor_older_files_make_the_key_readable_to_others() {
        let outside = tempfile::tempdir().unwrap();
        // With the usual umask of 022, it would be 755.
        let folder = outside.path().join("a/data");
        exclusive(&folder, &[]);
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(folder.parent().unwrap()), 0o700);

        let open = Permissions::from_mode(0o644);
        let key = folder.join(FILE);
        fs::set_permissions(&key, open.clone()).unwrap();
        exclusive(&folder, &[]);
        assert_eq!(mode(&key), OWNER_ONLY);

        // What an interrupted start left, after a copy.
        fs::remove_file(&key).unwrap();
        let unfinished = folder.join(format!("{FILE}.unfinished"));
        fs::write(&unfinished, "").unwrap();
        fs::set_permissions(&unfinished, open).unwrap();
        exclusive(&folder, &[]);
        assert_eq!(mode(&key), OWNER_ONLY);
    }
}
