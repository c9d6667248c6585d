//! Shared by the tests: a place on a server, dropped futures, random faults.

/// Asserts that a call failed with an error of this kind.
macro_rules! assert_fails {
    ($result:expr, $kind:pat) => {
        match &$result {
            Err(bellwether::Error { kind: $kind, .. }) => {}
            result => panic!("{result:?}"),
        }
    };
}

pub(crate) mod dropping;
#[macro_use]
pub(crate) mod place;
pub(crate) mod spans;
#[macro_use]
pub(crate) mod storm;
