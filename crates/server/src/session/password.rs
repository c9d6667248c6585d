//! Session passwords.
//!
//! Apache derives them from session ids with `java.util.Random`, so that a session can be resumed on the other implementation after the
//! data has moved. They are no secret: any client can compute them and take over a session. A secret password is derived from a key that
//! only the server has.

use std::io;
use std::path::Path;

use ring::hmac;

use super::key;

/// How passwords are derived from session ids.
#[derive(Debug, Clone)]
pub(crate) enum Passwords {
    Apache,
    Secret(hmac::Key),
}

impl Passwords {
    /// Secret passwords, with the key in `folder`.
    pub(crate) fn secret(folder: Option<&Path>) -> io::Result<Self> {
        key::load(folder).map(Self::Secret)
    }

    /// Password of the session `id`.
    pub(super) fn of(&self, id: i64) -> [u8; 16] {
        match self {
            Self::Apache => of(id),
            Self::Secret(key) => {
                let tag = hmac::sign(key, &id.to_be_bytes());
                let half = tag.as_ref()[..16].try_into();
                half.expect("the tag has 32 bytes")
            }
        }
    }
}

const SEED: i64 = 0xB341_5C00;
const MULTIPLIER: u64 = 0x5_DEEC_E66D;
const MASK: u64 = (1 << 48) - 1;

/// Apache's password of the session `id`.
fn of(id: i64) -> [u8; 16] {
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

    fn hex(bytes: [u8; 16]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn passwords_are_those_of_apache() {
        assert_eq!(hex(of(1)), "054cc74a37327db215e702e20c73f005");
        assert_eq!(
            hex(of(0x0100_0000_0000_0000)),
            "f22acd4a97e69d6d20a49bb638eadb38"
        );
        assert_eq!(
            hex(of(0x0100_000e_db2e_0000)),
            "107232ac5d224a776efb2c616e2a168d"
        );
    }

    #[test]
    fn the_generator_is_javas() {
        let mut random = JavaRandom::new(42);
        assert_eq!(random.next_word().cast_signed(), -1_170_105_035);
        assert_eq!(random.next_word().cast_signed(), 234_785_527);
    }
}
