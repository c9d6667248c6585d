//! The version of a node's data.

/// The version of a node's data. The servers change it with every write, so that a conditional write can tell one state from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Version(i32);

impl Version {
    /// The number that servers show for it.
    #[must_use]
    pub const fn number(self) -> i32 {
        self.0
    }

    /// The version after one more write. The servers count past the end of the range in the same way.
    pub(crate) fn next(self) -> Self {
        Self(self.0.wrapping_add(1))
    }
}

impl From<i32> for Version {
    /// The version that servers show as this number.
    fn from(number: i32) -> Self {
        Self(number)
    }
}
