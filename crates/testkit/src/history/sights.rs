//! A check of live copies: what a process sees of a node never goes back.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

/// What a process sees in its copy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    /// A node in this version: a number that rises with each change. `what` names the copy and the node.
    #[expect(missing_docs, reason = "said above")]
    Shown { what: String, version: i64 },
    /// The copy showed what this process had written, or all that the servers have.
    CaughtUp,
}

/// Checks what processes saw, in the order of time, each with the number of its process. Returns what is wrong as text.
///
/// # Errors
///
/// If a copy went back.
pub fn check_sights<'a>(
    sights: impl IntoIterator<Item = (usize, &'a Sight)>,
) -> Result<(), String> {
    let mut newest: HashMap<(usize, &str), i64> = HashMap::new();
    for (who, sight) in sights {
        if let Sight::Shown { what, version } = sight
            && let Some(before) = newest.insert((who, what), *version)
            && before > *version
        {
            return Err(format!(
                "{what} went back from {before} to {version} at worker {who}"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(what: &str, version: i64) -> Sight {
        Sight::Shown {
            what: what.into(),
            version,
        }
    }

    #[test]
    fn only_a_copy_that_goes_back_is_wrong() {
        let right = [
            (0, shown("/a", 1)),
            (1, shown("/a", 7)),
            (0, shown("/b", 0)),
            (0, Sight::CaughtUp),
            (0, shown("/a", 1)),
            (0, shown("/a", 2)),
        ];
        let check = |sights: &[(usize, Sight)]| {
            check_sights(sights.iter().map(|(who, sight)| (*who, sight)))
        };
        assert_eq!(check(&right), Ok(()));
        let wrong = [(0, shown("/a", 2)), (0, shown("/a", 1))];
        let found = check(&wrong).unwrap_err();
        assert_eq!(found, "/a went back from 2 to 1 at worker 0");
    }
}
