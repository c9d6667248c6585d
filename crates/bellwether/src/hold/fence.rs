//! Fencing: tokens that rise from holder to holder, and a store outside ZooKeeper that refuses a lower one.

use std::fmt;
use std::num::ParseIntError;
use std::str::FromStr;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::{Deserialize, Serialize};

/// A fencing token: greater than the token of every earlier holder of the same recipe and path.
///
/// Tokens compare by age. To store one, use [`number`](Self::number); to read it back, `FencingToken::from`. In JSON it is that number.
/// [`Fence`](crate::Fence) shows how a store uses tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(i64);

impl FencingToken {
    /// The number behind the token: the zxid that created the node of the hold.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }
}

impl From<i64> for FencingToken {
    /// The token with this number, as read back from a store.
    fn from(number: i64) -> Self {
        Self(number)
    }
}

impl FromStr for FencingToken {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        text.parse().map(Self)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The highest fencing token that a store has seen. It refuses writes with a lower token.
///
/// A holder that was paused past its session timeout does not know that it has lost its hold, and continues to write when it wakes. It
/// cannot be stopped on its own side; the store can refuse it, because the token of the next holder is greater. Keep the highest token *in
/// the store*, and compare and write in one step. In SQL:
///
/// ```sql
/// UPDATE report SET body = :body, token = :token WHERE name = :name AND token <= :token
/// ```
///
/// If no row changed, a later holder has written before. A `Fence` does the same for a store that is a process: put one in front of all
/// writes, and call it under the lock that protects the write.
///
/// ```
/// use bellwether::{Fence, FencingToken};
///
/// let fence = Fence::new();
/// let (early, late) = (FencingToken::from(7), FencingToken::from(9));
/// assert!(fence.admit(early).is_ok());
/// assert!(fence.admit(early).is_ok(), "a holder may write many times");
/// assert!(fence.admit(late).is_ok(), "the next holder");
/// assert!(fence.admit(early).is_err(), "the earlier holder wakes up too late");
/// ```
#[derive(Debug)]
pub struct Fence(AtomicI64);

/// A write carried the token of a hold that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("token {token} is stale: a write with token {highest} came before")]
#[expect(missing_docs, reason = "each field is named in the message")]
pub struct StaleToken {
    pub token: FencingToken,
    pub highest: FencingToken,
}

impl Fence {
    /// A fence that has seen no token.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicI64::new(i64::MIN))
    }

    /// A fence that has seen tokens up to `highest`, as read back from the store.
    #[must_use]
    pub fn at(highest: FencingToken) -> Self {
        Self(AtomicI64::new(highest.number()))
    }

    /// Admits a write by the holder with this token.
    ///
    /// # Errors
    ///
    /// [`StaleToken`] if a later holder was admitted before. Do not write.
    pub fn admit(&self, token: FencingToken) -> Result<(), StaleToken> {
        let highest = self.0.fetch_max(token.number(), Ordering::AcqRel).into();
        if token < highest {
            return Err(StaleToken { token, highest });
        }
        Ok(())
    }

    /// The highest token admitted so far; `None` before the first.
    #[must_use]
    pub fn highest(&self) -> Option<FencingToken> {
        let highest = self.0.load(Ordering::Acquire);
        (highest != i64::MIN).then_some(highest.into())
    }
}

impl Default for Fence {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::FencingToken;

    #[test]
    fn token_survives_text_and_json() {
        let (early, late) = (FencingToken::from(7), FencingToken::from(i64::MAX));
        assert!(early < late);
        for token in [early, late] {
            assert_eq!(token.to_string().parse(), Ok(token));
            let json = serde_json::to_string(&token).unwrap();
            assert_eq!(json, token.number().to_string());
            assert_eq!(serde_json::from_str::<FencingToken>(&json).unwrap(), token);
        }
    }
}
