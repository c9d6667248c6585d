//! A check that registers are linearizable: each operation takes effect at one moment between its call and its return.
//!
//! The search follows G. Lowe, *Testing for linearizability* (2017): it goes through calls and returns in the order of time, and keeps every
//! state that some order of the operations so far could have led to. When an operation returns, only the states remain in which it has taken
//! effect. If none remains, no order explains the history.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde::{Deserialize, Serialize};

use super::event::Moment;

/// A step of an operation on a register, as a process records it. Values are unique: no value is written twice.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[expect(missing_docs, reason = "the fields are named for what they are")]
pub enum RegisterStep {
    /// Is about to replace a value that it has read, `None` if there was none.
    Changing {
        key: String,
        from: Option<String>,
        to: String,
    },
    /// The change was acknowledged. A change without an end may take effect at any later time, or never.
    Changed { key: String, to: String },
    /// The change was refused, and takes no effect.
    NotChanged { key: String, to: String },
    /// Is about to read.
    Reading { key: String },
    /// The read returned.
    Read { key: String, value: Option<String> },
}

/// Checks registers by their steps, which are in the order of time, each with the number of its process. Returns what is wrong as text.
///
/// # Errors
///
/// If no order of the operations explains what they returned.
pub fn check_registers(
    steps: impl IntoIterator<Item = (Moment, usize, RegisterStep)>,
) -> Result<(), String> {
    for (key, operations) in operations(steps) {
        check_register(&operations).map_err(|found| format!("{key}: {found}"))?;
    }
    Ok(())
}

/// One operation on one register.
#[derive(Debug, Clone)]
struct RegisterCall {
    who: usize,
    called: Moment,
    returned: Option<Moment>,
    what: RegisterCallKind,
}

#[derive(Debug, Clone)]
enum RegisterCallKind {
    Change { from: Option<String>, to: String },
    Read(Option<String>),
}

impl RegisterCall {
    /// The value after it, if it may take effect on this value.
    fn step(&self, value: Option<&str>) -> Option<Option<&str>> {
        match &self.what {
            RegisterCallKind::Change { from, to } if from.as_deref() == value => Some(Some(to)),
            RegisterCallKind::Read(read) if read.as_deref() == value => Some(read.as_deref()),
            _ => None,
        }
    }

    fn line(&self, start: Moment) -> String {
        let seconds = |at: Moment| format!("{:.6}", at.since(start).as_secs_f64());
        let returned = self.returned.map_or("never".to_owned(), seconds);
        let called = seconds(self.called);
        let did = match &self.what {
            RegisterCallKind::Change { from, to } => format!("changed {from:?} to {to:?}"),
            RegisterCallKind::Read(value) => format!("read {value:?}"),
        };
        format!(
            "  {called:>11} s to {returned} s  worker {} {did}",
            self.who
        )
    }
}

/// Puts the steps of each register together. Operations that had no effect and no result are left out.
fn operations(
    steps: impl IntoIterator<Item = (Moment, usize, RegisterStep)>,
) -> BTreeMap<String, Vec<RegisterCall>> {
    let mut all: BTreeMap<String, Vec<RegisterCall>> = BTreeMap::new();
    let mut changes: HashMap<(String, String), usize> = HashMap::new();
    let mut reads: HashMap<(String, usize), Moment> = HashMap::new();
    let mut refused: HashSet<(String, usize)> = HashSet::new();
    for (at, who, step) in steps {
        match step {
            RegisterStep::Changing { key, from, to } => {
                let operations = all.entry(key.clone()).or_default();
                changes.insert((key, to.clone()), operations.len());
                operations.push(RegisterCall {
                    who,
                    called: at,
                    returned: None,
                    what: RegisterCallKind::Change { from, to },
                });
            }
            RegisterStep::Changed { key, to } => {
                if let Some(index) = changes.get(&(key.clone(), to)) {
                    all.entry(key).or_default()[*index].returned = Some(at);
                }
            }
            RegisterStep::NotChanged { key, to } => {
                if let Some(index) = changes.get(&(key.clone(), to)) {
                    refused.insert((key, *index));
                }
            }
            RegisterStep::Reading { key } => drop(reads.insert((key, who), at)),
            RegisterStep::Read { key, value } => {
                if let Some(called) = reads.remove(&(key.clone(), who)) {
                    all.entry(key).or_default().push(RegisterCall {
                        who,
                        called,
                        returned: Some(at),
                        what: RegisterCallKind::Read(value),
                    });
                }
            }
        }
    }
    for (key, operations) in &mut all {
        let mut index = 0;
        operations.retain(|_| {
            index += 1;
            !refused.contains(&(key.clone(), index - 1))
        });
    }
    all
}

/// What one order of the operations so far has led to.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct RegisterState<'a> {
    value: Option<&'a str>,
    /// Operations that have taken effect and have not returned.
    done: BTreeSet<usize>,
}

fn check_register(operations: &[RegisterCall]) -> Result<(), String> {
    // Calls come before returns of the same moment.
    let calls = operations.iter().enumerate();
    let calls = calls.map(|(index, one)| (one.called, false, index));
    let returns = operations.iter().enumerate();
    let returns = returns.filter_map(|(index, one)| one.returned.map(|at| (at, true, index)));
    let mut events: Vec<(Moment, bool, usize)> = calls.chain(returns).collect();
    events.sort_unstable();

    let mut open: BTreeSet<usize> = BTreeSet::new();
    let mut states = HashSet::from([RegisterState {
        value: None,
        done: BTreeSet::new(),
    }]);
    for (_, has_returned, index) in events {
        if !has_returned {
            open.insert(index);
            continue;
        }
        let before = states.clone();
        states = with(index, states, operations, &open);
        open.remove(&index);
        if states.is_empty() {
            return Err(violation(operations, index, &before));
        }
    }
    Ok(())
}

/// All states in which the operation has taken effect that other open operations can have led to before it.
fn with<'a>(
    index: usize,
    states: HashSet<RegisterState<'a>>,
    operations: &'a [RegisterCall],
    open: &BTreeSet<usize>,
) -> HashSet<RegisterState<'a>> {
    let mut seen = states.clone();
    let mut left: Vec<RegisterState<'a>> = states.into_iter().collect();
    let mut reached = HashSet::new();
    while let Some(mut state) = left.pop() {
        if state.done.remove(&index) {
            reached.insert(state);
            continue;
        }
        for next in open.difference(&state.done) {
            if let Some(value) = operations[*next].step(state.value) {
                let mut done = state.done.clone();
                done.insert(*next);
                let state = RegisterState { value, done };
                if seen.insert(state.clone()) {
                    left.push(state);
                }
            }
        }
    }
    reached
}

/// The most operations that a violation prints.
const LINES_MAX: usize = 20;

fn violation(
    operations: &[RegisterCall],
    wrong: usize,
    before: &HashSet<RegisterState<'_>>,
) -> String {
    let start = operations.iter().map(|one| one.called).min();
    let start = start.unwrap_or(operations[wrong].called);
    let mut values: Vec<_> = before.iter().map(|state| state.value).collect();
    values.sort_unstable();
    values.dedup();
    let mut latest: Vec<&RegisterCall> = operations
        .iter()
        .filter(|one| Some(one.called) <= operations[wrong].returned)
        .collect();
    latest.sort_by_key(|one| one.called);
    let latest = latest.split_off(latest.len().saturating_sub(LINES_MAX));
    let lines: Vec<String> = latest.iter().map(|one| one.line(start)).collect();
    format!(
        "no order of the operations explains this one, the value before it was one of {values:?}:\n{}\nthe last ones are:\n{}",
        operations[wrong].line(start),
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::after_boot(Duration::from_millis(ms))
    }

    fn changing(from: Option<&str>, to: &str) -> RegisterStep {
        RegisterStep::Changing {
            key: "k".into(),
            from: from.map(str::to_owned),
            to: to.into(),
        }
    }

    fn changed(to: &str) -> RegisterStep {
        RegisterStep::Changed {
            key: "k".into(),
            to: to.into(),
        }
    }

    fn refused(to: &str) -> RegisterStep {
        RegisterStep::NotChanged {
            key: "k".into(),
            to: to.into(),
        }
    }

    fn reading() -> RegisterStep {
        RegisterStep::Reading { key: "k".into() }
    }

    fn read(value: Option<&str>) -> RegisterStep {
        RegisterStep::Read {
            key: "k".into(),
            value: value.map(str::to_owned),
        }
    }

    /// Steps of processes, a millisecond apart.
    fn check(steps: Vec<(usize, RegisterStep)>) -> Result<(), String> {
        let steps = (1..).zip(steps);
        check_registers(steps.map(|(ms, (who, step))| (at(ms), who, step)))
    }

    #[test]
    fn operations_in_order_are_right() {
        let steps = vec![
            (0, reading()),
            (0, read(None)),
            (0, changing(None, "a")),
            (0, changed("a")),
            (1, changing(Some("a"), "b")),
            (1, changed("b")),
            (0, reading()),
            (0, read(Some("b"))),
        ];
        assert_eq!(check(steps), Ok(()));
    }

    #[test]
    fn overlapping_operations_may_take_effect_in_any_order() {
        let steps = vec![
            (2, reading()),
            (0, changing(None, "a")),
            (1, changing(Some("a"), "b")),
            (1, changed("b")),
            (2, read(Some("a"))),
            (0, changed("a")),
        ];
        assert_eq!(check(steps), Ok(()));
    }

    #[test]
    fn change_from_a_value_that_was_replaced_is_found() {
        let steps = vec![
            (0, changing(None, "a")),
            (0, changed("a")),
            (1, changing(Some("a"), "b")),
            (1, changed("b")),
            (0, changing(Some("a"), "c")),
            (0, changed("c")),
        ];
        let found = check(steps).unwrap_err();
        assert!(found.starts_with("k: no order"), "{found}");
        assert!(found.contains("to \"c\"") && found.contains("Some(\"b\")"));
    }

    #[test]
    fn read_of_an_old_value_is_found() {
        let steps = vec![
            (0, changing(None, "a")),
            (0, changed("a")),
            (1, reading()),
            (1, read(None)),
        ];
        let found = check(steps).unwrap_err();
        assert!(found.contains("worker 1 read None"), "{found}");
    }

    #[test]
    fn change_without_an_answer_takes_effect_at_any_time_once_or_never() {
        let unanswered = |last: Option<&str>| {
            check(vec![
                (0, changing(None, "a")),
                (1, reading()),
                (1, read(None)),
                (2, reading()),
                (2, read(last)),
            ])
        };
        assert_eq!(unanswered(None), Ok(()));
        assert_eq!(unanswered(Some("a")), Ok(()));
        let back = vec![
            (0, changing(None, "a")),
            (1, reading()),
            (1, read(Some("a"))),
            (2, reading()),
            (2, read(None)),
        ];
        assert!(check(back).is_err());
    }

    #[test]
    fn refused_change_takes_no_effect() {
        let steps = vec![
            (0, changing(None, "a")),
            (0, refused("a")),
            (1, reading()),
            (1, read(Some("a"))),
        ];
        assert!(check(steps).is_err());
    }

    /// What a real register does, with calls and returns around each moment of effect.
    fn histories() -> impl Strategy<Value = Vec<(u64, u64, bool)>> {
        // The time before and after the moment of effect, and whether it is a read.
        prop::collection::vec((0..20_u64, 0..20_u64, any::<bool>()), 1..60)
    }

    /// Their steps. Each operation has a process of its own.
    fn steps(history: &[(u64, u64, bool)]) -> Vec<(Moment, usize, RegisterStep)> {
        let mut steps = Vec::new();
        let mut value: Option<String> = None;
        for (who, (before, after, is_read)) in history.iter().enumerate() {
            let effect = 100 + 10 * who as u64;
            let (called, returned) = (at(effect - before), at(effect + after));
            match is_read {
                true => {
                    steps.push((called, who, reading()));
                    steps.push((returned, who, read(value.as_deref())));
                }
                false => {
                    let to = effect.to_string();
                    steps.push((called, who, changing(value.as_deref(), &to)));
                    steps.push((returned, who, changed(&to)));
                    value = Some(to);
                }
            }
        }
        steps.sort_by_key(|(at, ..)| *at);
        steps
    }

    proptest! {
        #[test]
        fn histories_of_a_real_register_are_right(history in histories()) {
            prop_assert_eq!(check_registers(steps(&history)), Ok(()));
        }

        #[test]
        fn read_from_before_its_call_is_found(history in histories()) {
            let mut steps = steps(&history);
            let to = |step: &RegisterStep| match step {
                RegisterStep::Changed { to, .. } => Some(to.clone()),
                _ => None,
            };
            // Long after everything, the last but one.
            let values: Vec<_> = steps.iter().filter_map(|(_, _, step)| to(step)).collect();
            let mut values: Vec<u64> = values.iter().map(|value| value.parse().unwrap()).collect();
            values.sort_unstable();
            prop_assume!(!values.is_empty());
            let old = values.iter().rev().nth(1).map(u64::to_string);
            steps.push((at(100_000), 1_000, reading()));
            steps.push((at(100_001), 1_000, read(old.as_deref())));
            prop_assert!(check_registers(steps).is_err());
        }
    }
}
