//! Session passwords.
//!
//! Apache computes them from session ids with `java.util.Random`, so any client can compute them too, and take over a session. A secret
//! password is derived from a key that only the server has. That of a session opened over the Unix socket depends on the user as well, so it
//! is of no use to other users, also after a restart, when no record says whose session it was.

use std::collections::HashSet;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use ring::hmac::{self, HMAC_SHA256};
use subtle::ConstantTimeEq as _;

use super::key::{self, KeyFile};
use crate::config::SessionPasswords;

/// Returns the session passwords that the last server of a data folder gave out: sessions with secret ones cannot continue on Apache's server.
///
/// # Errors
///
/// If the key in the folder cannot be read.
pub fn session_passwords(folder: &Path) -> io::Result<SessionPasswords> {
    Ok(match KeyFile::is_exclusive(folder)? {
        true => SessionPasswords::Secret,
        false => SessionPasswords::Apache,
    })
}

/// Makes sure that nobody resumes the sessions that are in a data folder, which end by their timeout. A server that gives out Apache's
/// passwords accepts these all the same.
pub(crate) fn lock_sessions(folder: &Path) -> io::Result<()> {
    KeyFile::renew(folder)
}

/// A session password.
pub(crate) type Password = [u8; 16];

/// Where the key is kept between two servers.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Keeper<'a> {
    /// A data folder.
    Folder(&'a Path),
    /// Memory that the next server gets too, if there is one.
    Memory(&'a OnceLock<[u8; 32]>),
}

/// How passwords are derived from session ids, and which are accepted.
#[derive(Clone)]
pub(crate) struct Passwords {
    kind: SessionPasswords,
    /// Absent if no secret passwords were ever given out.
    key: Option<hmac::Key>,
    /// Sessions opened with Apache's passwords, on a server that gives out secret ones.
    computable: HashSet<i64>,
}

impl Passwords {
    /// Loads the key, or creates it if it is missing and needed. `open` are the sessions that have been recovered.
    pub(crate) fn load(
        kind: SessionPasswords,
        keeper: Keeper<'_>,
        open: impl Iterator<Item = i64>,
    ) -> io::Result<Self> {
        let (key, computable) = match (kind, keeper) {
            (SessionPasswords::Secret, Keeper::Folder(folder)) => {
                let file = KeyFile::exclusive(folder, open)?;
                (Some(file.key), file.computable)
            }
            (SessionPasswords::Secret, Keeper::Memory(memory)) => {
                let fresh = key::random()?;
                (Some(*memory.get_or_init(|| fresh)), Vec::new())
            }
            (SessionPasswords::Apache, Keeper::Folder(folder)) => {
                (KeyFile::shared(folder)?, Vec::new())
            }
            (SessionPasswords::Apache, Keeper::Memory(_)) => (None, Vec::new()),
        };
        Ok(Self {
            kind,
            key: key.map(|key| hmac::Key::new(HMAC_SHA256, &key)),
            computable: computable.into_iter().collect(),
        })
    }

    /// Apache's passwords only.
    #[cfg(test)]
    pub(crate) fn apache() -> Self {
        Self {
            kind: SessionPasswords::Apache,
            key: None,
            computable: HashSet::new(),
        }
    }

    /// The password given out for the session `id`, opened by `user` over the Unix socket, or from the network.
    pub(crate) fn of(&self, id: i64, user: Option<u32>) -> Password {
        match (self.kind, &self.key) {
            (SessionPasswords::Secret, Some(key)) => secret(key, id, user),
            _ => apache(id),
        }
    }

    /// If `user` may resume the session `id` with the password `given`: the owner whom it proves, and the password to use next time. All
    /// comparisons take constant time.
    pub(super) fn accept(
        &self,
        id: i64,
        user: Option<u32>,
        given: &[u8],
    ) -> Option<(Option<u32>, Password)> {
        // A session of the network may move to the socket, not the other way round: the network does not tell who its users are.
        for owner in [user, None] {
            if let Some(key) = &self.key
                && is_equal(&secret(key, id, owner), given)
            {
                return Some((owner, self.of(id, owner)));
            }
        }
        let is_computed = self.is_computable(id) && is_equal(&apache(id), given);
        is_computed.then(|| (user, self.of(id, user)))
    }

    /// Whether every client can compute a password with which the session `id` can be resumed.
    fn is_computable(&self, id: i64) -> bool {
        self.kind == SessionPasswords::Apache || self.computable.contains(&id)
    }

    /// The sessions that may have such passwords, or `None` if all have.
    pub(super) fn computable(&self) -> Option<&HashSet<i64>> {
        (self.kind == SessionPasswords::Secret).then_some(&self.computable)
    }
}

impl fmt::Debug for Passwords {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Passwords")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

fn is_equal(ours: &Password, given: &[u8]) -> bool {
    ours[..].ct_eq(given).into()
}

fn secret(key: &hmac::Key, id: i64, user: Option<u32>) -> Password {
    let mut message = id.to_be_bytes().to_vec();
    message.extend(user.into_iter().flat_map(u32::to_be_bytes));
    let tag = hmac::sign(key, &message);
    *tag.as_ref().first_chunk().expect("the tag has 32 bytes")
}

const SEED: i64 = 0xB341_5C00;
const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

/// Apache's password of the session `id`.
fn apache(id: i64) -> Password {
    let mut random = JavaRandom::new(id ^ SEED);
    let mut password = [0; 16];
    for word in password.chunks_exact_mut(4) {
        word.copy_from_slice(&random.next_word().to_le_bytes());
    }
    password
}

struct JavaRandom {
    state: u64,
}

impl JavaRandom {
    fn new(seed: i64) -> Self {
        Self {
            state: (seed.cast_unsigned() ^ MULTIPLIER) & MASK,
        }
    }

    fn next_word(&mut self) -> u32 {
        self.state = self.state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & MASK;
        u32::try_from(self.state >> 16).expect("48 bits less 16 are 32")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NETWORK: Option<u32> = None;
    const USERS: [Option<u32>; 3] = [NETWORK, Some(0), Some(1000)];
    const ID: i64 = 0x0100_000e_db2e_0000;

    fn hex(bytes: Password) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    fn load(kind: SessionPasswords, folder: &Path, open: &[i64]) -> Passwords {
        Passwords::load(kind, Keeper::Folder(folder), open.iter().copied()).unwrap()
    }

    #[test]
    fn passwords_are_those_of_apache() {
        assert_eq!(hex(apache(1)), "054cc74a37327db215e702e20c73f005");
        assert_eq!(
            hex(apache(0x0100_0000_0000_0000)),
            "f22acd4a97e69d6d20a49bb638eadb38"
        );
        assert_eq!(hex(apache(ID)), "107232ac5d224a776efb2c616e2a168d");
    }

    #[test]
    fn the_generator_is_javas() {
        let mut random = JavaRandom::new(42);
        assert_eq!(random.next_word().cast_signed(), -1_170_105_035);
        assert_eq!(random.next_word().cast_signed(), 234_785_527);
    }

    #[test]
    fn a_secret_password_is_of_use_to_its_user_alone() {
        let folder = tempfile::tempdir().unwrap();
        load(SessionPasswords::Secret, folder.path(), &[]);
        // As after a restart.
        let passwords = load(SessionPasswords::Secret, folder.path(), &[ID]);
        for owner in USERS {
            let password = passwords.of(ID, owner);
            for user in USERS {
                let may = owner == user || owner == NETWORK;
                let expected = may.then_some((owner, password));
                let accepted = passwords.accept(ID, user, &password);
                assert_eq!(accepted, expected, "{owner:?}, {user:?}");
                assert_eq!(passwords.accept(ID + 1, user, &password), None);
                assert_eq!(passwords.accept(ID, user, &password[..15]), None);
                assert_eq!(passwords.accept(ID, user, &apache(ID)), None);
            }
        }
    }

    #[test]
    fn sessions_move_from_apaches_passwords_to_secret_ones_and_back() {
        let folder = tempfile::tempdir().unwrap();
        let first = load(SessionPasswords::Secret, folder.path(), &[ID]);
        for user in USERS {
            // A session of Apache's server.
            let secret = first.of(ID, user);
            assert_ne!(secret, apache(ID));
            assert_eq!(first.accept(ID, user, &apache(ID)), Some((user, secret)));
            assert_eq!(first.accept(ID, user, &secret), Some((user, secret)));
            assert_eq!(first.accept(ID + 1, user, &apache(ID + 1)), None);
            // Before it goes back there.
            let shared = load(SessionPasswords::Apache, folder.path(), &[ID]);
            for password in [secret, apache(ID)] {
                let accepted = shared.accept(ID, user, &password);
                assert_eq!(accepted, Some((user, apache(ID))));
            }
            let again = load(SessionPasswords::Secret, folder.path(), &[ID]);
            for password in [secret, apache(ID)] {
                assert_eq!(again.accept(ID, user, &password), Some((user, secret)));
            }
        }
    }
}
