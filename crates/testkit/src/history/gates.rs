//! Checks of a barrier: no process passes while it is set.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::event::Moment;

/// A step at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passage {
    /// The barrier is set: recorded after the call.
    Shut,
    /// The barrier is about to be lifted, or the process that would lift it has died: recorded before.
    Opening,
    /// A process is about to wait: recorded before the call.
    Waiting,
    /// It has passed: recorded after the call.
    Passed,
    /// Its wait failed.
    Failed,
}

/// Checks that each successful wait had a moment in which the barrier may have been open; returns the violation as text.
///
/// Steps are in the order of time, each with the number of the process.
pub fn check_gate(steps: impl IntoIterator<Item = (Moment, usize, Passage)>) -> Result<(), String> {
    // Since when it is certainly set.
    let mut shut: Option<Moment> = None;
    let mut waits: HashMap<usize, Moment> = HashMap::new();
    for (at, who, step) in steps {
        match step {
            Passage::Shut => shut = shut.or(Some(at)),
            Passage::Opening => shut = None,
            Passage::Waiting => {
                waits.insert(who, at);
            }
            Passage::Failed => {
                waits.remove(&who);
            }
            Passage::Passed => {
                let began = waits.remove(&who);
                if shut.is_some_and(|shut| began.is_some_and(|began| began > shut)) {
                    return Err(format!("process {who} passed a barrier that was set"));
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Passage::{Opening, Passed, Shut, Waiting};
    use super::*;

    fn check(steps: &[(usize, Passage)]) -> Result<(), String> {
        let at = |index: usize| Moment::after_boot(Duration::from_millis(index as u64));
        let steps = steps.iter().enumerate();
        check_gate(steps.map(|(index, (who, step))| (at(index), *who, *step)))
    }

    #[test]
    fn passing_a_set_barrier_is_found() {
        let found = check(&[(0, Shut), (1, Waiting), (1, Passed), (0, Opening)]);
        assert!(found.unwrap_err().contains("process 1"));
        let again = [
            (0, Shut),
            (0, Opening),
            (0, Shut),
            (1, Waiting),
            (1, Passed),
        ];
        assert!(check(&again).is_err());
    }

    #[test]
    fn passing_while_it_may_have_been_open_is_right() {
        assert_eq!(check(&[(1, Waiting), (1, Passed), (0, Shut)]), Ok(()));
        let lifted = [(0, Shut), (1, Waiting), (0, Opening), (1, Passed)];
        assert_eq!(check(&lifted), Ok(()));
        // The wait began before the barrier was known to be set.
        assert_eq!(check(&[(1, Waiting), (0, Shut), (1, Passed)]), Ok(()));
        let twice = [
            (0, Shut),
            (1, Waiting),
            (0, Opening),
            (0, Shut),
            (1, Passed),
        ];
        assert_eq!(check(&twice), Ok(()));
    }
}
