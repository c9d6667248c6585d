//! Makes a failing run smaller: fewer faults, fewer workers, less time.

use crate::plan::Plan;
use crate::recipes::Runner;

/// Maximum number of runs in a search for a smaller plan.
const RUNS_MAX: usize = 300;

/// Returns the smallest plan found to fail, and its violation. `plan` must fail.
pub fn shrink(run: Runner, plan: &Plan) -> (Plan, String) {
    let mut smallest = plan.clone();
    let mut wrong = run(plan).violation.unwrap_or_default();
    let mut runs = 0;
    loop {
        let mut is_smaller = false;
        for candidate in candidates(&smallest) {
            if runs == RUNS_MAX {
                return (smallest, wrong);
            }
            runs += 1;
            if let Some(violation) = run(&candidate).violation {
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

/// Slightly smaller plans, the boldest reductions first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut all = Vec::new();
    let count = plan.faults.len();
    let mut size = count;
    while size > 0 {
        for from in (0..count).step_by(size) {
            let mut smaller = plan.clone();
            smaller.faults.drain(from..(from + size).min(count));
            all.push(smaller);
        }
        size /= 2;
    }
    if plan.workers > 2 {
        let mut smaller = plan.clone();
        smaller.workers -= 1;
        let gone = smaller.workers;
        smaller
            .faults
            .retain(|(_, fault)| fault.worker() != Some(gone));
        all.push(smaller);
    }
    let last = plan.faults.last().map_or(0, |(at, _)| *at);
    let shorter = (plan.duration / 2).max(last + 1);
    if shorter < plan.duration {
        let mut smaller = plan.clone();
        smaller.duration = shorter;
        all.push(smaller);
    }
    all
}
