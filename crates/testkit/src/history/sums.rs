//! Checks of a counter: every acknowledged addition was made exactly once, and no other except those in doubt.

use serde::{Deserialize, Serialize};

/// A step of one addition of 1. A process that dies in between, or does not learn the result, records no end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Addition {
    /// About to add: recorded before the call.
    Adding,
    /// It was added: recorded after the call.
    Added,
    /// It was not added.
    NotAdded,
}

/// Checks the final `sum`; returns the violation as text.
pub fn check_sum(additions: impl IntoIterator<Item = Addition>, sum: i64) -> Result<(), String> {
    let (mut least, mut most) = (0, 0);
    for addition in additions {
        match addition {
            Addition::Adding => most += 1,
            Addition::Added => least += 1,
            Addition::NotAdded => most -= 1,
        }
    }
    match (least..=most).contains(&sum) {
        true => Ok(()),
        false => Err(format!(
            "the sum is {sum}, after {least} acknowledged additions and {} in doubt",
            most - least
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::Addition::{Added, Adding, NotAdded};
    use super::*;

    #[test]
    fn lost_and_doubled_additions_are_found() {
        let told = [Adding, Added, Adding, Adding, NotAdded];
        assert!(check_sum(told, 1).is_ok());
        assert!(check_sum(told, 2).is_ok(), "the one in doubt");
        let found = check_sum(told, 3).unwrap_err();
        assert!(found.contains("the sum is 3"), "{found}");
        assert!(check_sum(told, 0).is_err());
    }
}
