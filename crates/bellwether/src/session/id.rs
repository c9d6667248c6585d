//! The identity of a session on the servers.

use std::fmt;

/// The id that the servers gave to a session. Printed in hexadecimal, as servers show it in their logs and in `cons`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(i64);

impl SessionId {
    /// The id as a number, as in the `ephemeral_owner` of a node.
    #[must_use]
    pub const fn number(self) -> i64 {
        self.0
    }

    /// The session that a node ends with; `None` for the 0 of a node that stays.
    pub(crate) fn of_owner(ephemeral_owner: i64) -> Option<Self> {
        (ephemeral_owner != 0).then_some(Self(ephemeral_owner))
    }
}

impl From<i64> for SessionId {
    /// The session with this number.
    fn from(number: i64) -> Self {
        Self(number)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#x}")
    }
}

impl fmt::LowerHex for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::SessionId;

    #[test]
    fn session_id_is_printed_as_servers_print_it() {
        assert_eq!(SessionId::from(0x1000_04f2).to_string(), "0x100004f2");
        assert_eq!(SessionId::from(-1).to_string(), "0xffffffffffffffff");
    }

    #[test]
    fn owner_of_a_node_that_stays_is_no_session() {
        assert_eq!(SessionId::of_owner(0), None);
        assert_eq!(SessionId::of_owner(5), Some(SessionId::from(5)));
    }
}
