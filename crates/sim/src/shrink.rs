//! Makes a failing run smaller: fewer faults, fewer workers, less time.

use crate::plan::Plan;
use crate::recipes::Runner;
use crate::world::Ms;

/// Maximum number of runs in a search for a smaller plan.
const RUNS_MAX: usize = 300;

/// The part of a plan that a smaller run keeps. Together with the seed it says how to repeat that run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Number of workers.
    pub workers: usize,
    /// How long faults happen.
    pub duration: Ms,
    /// Which faults of the plan happen, by their places in its list.
    pub faults: Vec<usize>,
}

impl Part {
    /// All of a plan.
    pub fn all(plan: &Plan) -> Self {
        Self {
            workers: plan.workers,
            duration: plan.duration,
            faults: (0..plan.faults.len()).collect(),
        }
    }

    /// This part of a plan.
    #[must_use]
    pub fn of(&self, plan: &Plan) -> Plan {
        let faults = self.faults.iter();
        let faults = faults.filter_map(|place| plan.faults.get(*place).copied());
        let is_there = |worker: Option<usize>| worker.is_none_or(|worker| worker < self.workers);
        Plan {
            workers: self.workers,
            duration: self.duration,
            faults: faults
                .filter(|(_, fault)| is_there(fault.worker()))
                .collect(),
            ..plan.clone()
        }
    }

    /// Slightly smaller parts, the boldest reductions first.
    fn smaller(&self, plan: &Plan) -> Vec<Self> {
        let mut all = Vec::new();
        let count = self.faults.len();
        let mut size = count;
        while size > 0 {
            for from in (0..count).step_by(size) {
                let mut smaller = self.clone();
                smaller.faults.drain(from..(from + size).min(count));
                all.push(smaller);
            }
            size /= 2;
        }
        if self.workers > 2 {
            all.push(Self {
                workers: self.workers - 1,
                ..self.clone()
            });
        }
        let at = |place: &usize| plan.faults.get(*place).map(|(at, _)| *at);
        let last = self.faults.last().and_then(at).unwrap_or(0);
        let duration = (self.duration / 2).max(last + 1);
        if duration < self.duration {
            all.push(Self {
                duration,
                ..self.clone()
            });
        }
        all
    }
}

/// Returns the smallest part of a plan that was found to fail in the same way, and its violation. `plan` must fail.
pub fn shrink(run: Runner, plan: &Plan) -> (Part, String) {
    let mut smallest = Part::all(plan);
    let mut wrong = run(plan).violation.unwrap_or_default();
    let mut runs = 0;
    loop {
        let mut is_smaller = false;
        for candidate in smallest.smaller(plan) {
            if runs == RUNS_MAX {
                return (smallest, wrong);
            }
            runs += 1;
            let violation = run(&candidate.of(plan)).violation;
            if let Some(violation) = violation.filter(|other| kind(other) == kind(&wrong)) {
                (smallest, wrong) = (candidate, violation);
                is_smaller = true;
                break;
            }
        }
        if !is_smaller {
            return (smallest, wrong);
        }
    }
}

/// What two violations of one kind have in common: their text up to the first number or detail.
fn kind(violation: &str) -> &str {
    let end = violation.find(|c: char| c == ':' || c.is_ascii_digit());
    &violation[..end.unwrap_or(violation.len())]
}
