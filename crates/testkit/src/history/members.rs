//! Checks of a group: every process sees the members that are present, and none that has left, or that never joined.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use super::event::Moment;

/// A step of a process in a group. Each membership has an entry of its own, and a new one when its data changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum MemberStep {
    /// Is about to join with this entry, or to replace its entry by this one.
    Joining { entry: String },
    /// The servers have acknowledged that the entry is gone.
    Left { entry: String },
    /// Is about to list the members.
    Looking,
    /// The entries of all members.
    Looked { entries: Vec<String> },
    /// It has found its own entry in the list.
    Found,
    /// The entry was certainly there from `since` to the time of this step. A process has one such entry at a time.
    Stayed { entry: String, since: Moment },
}

/// Checks the steps of all processes, in the order of time, each with the number of its process. Returns what is wrong as text.
///
/// # Errors
///
/// If a list showed an entry that could not be there, or did not show one that was there.
pub fn check_members(steps: &[(Moment, usize, MemberStep)]) -> Result<(), String> {
    let mut joining: HashMap<&str, Moment> = HashMap::new();
    let mut left: HashMap<&str, Moment> = HashMap::new();
    let mut stays: BTreeMap<usize, Vec<MemberStay<'_>>> = BTreeMap::new();
    for (at, who, step) in steps {
        match step {
            MemberStep::Joining { entry } => drop(joining.insert(entry, *at)),
            MemberStep::Left { entry } => drop(left.insert(entry, *at)),
            MemberStep::Stayed { entry, since } => {
                stays.entry(*who).or_default().push((*since, *at, entry))
            }
            _ => {}
        }
    }
    stays.values_mut().for_each(|stays| stays.sort_unstable());
    let mut looking: HashMap<usize, Moment> = HashMap::new();
    for (at, who, step) in steps {
        match step {
            MemberStep::Looking => drop(looking.insert(*who, *at)),
            MemberStep::Looked { entries } => {
                let Some(since) = looking.remove(who) else {
                    continue;
                };
                for entry in entries {
                    if joining.get(entry.as_str()).is_none_or(|joined| joined > at) {
                        return Err(format!("worker {who} saw {entry}, which never joined"));
                    }
                    if let Some(gone) = left.get(entry.as_str()).filter(|gone| **gone < since) {
                        return Err(format!(
                            "worker {who} saw {entry}, which had left {:?} before",
                            since.since(*gone)
                        ));
                    }
                }
                for stays in stays.values() {
                    let (_, until, entry) = match stays.partition_point(|stay| stay.0 < since) {
                        0 => continue,
                        after => stays[after - 1],
                    };
                    if until > *at && !entries.iter().any(|listed| listed == entry) {
                        return Err(format!(
                            "worker {who} did not see {entry}, which was there, but {entries:?}"
                        ));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// From when to when an entry was there.
type MemberStay<'a> = (Moment, Moment, &'a str);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn check(steps: Vec<(usize, MemberStep)>) -> Result<(), String> {
        let at = |ms| Moment::after_boot(Duration::from_millis(ms));
        let steps = (1..).zip(steps);
        let steps: Vec<_> = steps.map(|(ms, (who, step))| (at(ms), who, step)).collect();
        check_members(&steps)
    }

    fn joining() -> (usize, MemberStep) {
        (0, MemberStep::Joining { entry: "a".into() })
    }

    fn left() -> (usize, MemberStep) {
        (0, MemberStep::Left { entry: "a".into() })
    }

    fn looked(entries: &[&str]) -> (usize, MemberStep) {
        let entries = entries.iter().map(|entry| (*entry).to_owned()).collect();
        (1, MemberStep::Looked { entries })
    }

    #[test]
    fn member_may_be_seen_from_its_join_to_its_leave() {
        let looking = || (1, MemberStep::Looking);
        let right = vec![
            looking(),
            joining(),
            looked(&["a"]),
            looking(),
            left(),
            looked(&["a"]),
            looking(),
            looked(&[]),
        ];
        assert_eq!(check(right), Ok(()));
        let never = check(vec![looking(), looked(&["a"]), joining()]);
        assert!(never.unwrap_err().contains("never joined"));
        let gone = check(vec![joining(), left(), looking(), looked(&["a"])]);
        assert!(gone.unwrap_err().contains("had left"));
    }

    #[test]
    fn member_that_is_there_is_seen() {
        let looking = || (1, MemberStep::Looking);
        let since = Moment::after_boot(Duration::from_millis(1));
        let stayed = || {
            let entry = "a".into();
            (0, MemberStep::Stayed { entry, since })
        };
        let seen = vec![joining(), looking(), looked(&["a"]), stayed()];
        assert_eq!(check(seen), Ok(()));
        let missed = check(vec![joining(), looking(), looked(&[]), stayed()]);
        assert!(missed.unwrap_err().contains("did not see a"));
        let left = vec![joining(), looking(), stayed(), looked(&[])];
        assert_eq!(check(left), Ok(()), "it may have left during the look");
        let early = vec![looking(), joining(), looked(&[]), stayed()];
        assert_eq!(check(early), Ok(()), "it may have come during the look");
    }
}
