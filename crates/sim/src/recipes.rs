//! All recipes that a run can test.

mod barriers;
mod cache;
mod counter;
mod folder;
mod holds;
mod latecomers;
mod lock;
mod members;
mod names;
mod priority;
mod queue;
mod shared;
mod tasks;
mod transactions;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::stage::{Verdict, run};

use holds::Holds;
pub(crate) use latecomers::stalls;

/// Runs a plan with one recipe.
pub type Runner = fn(&Plan) -> Verdict;

/// All recipes, by name. Not a constant: the recipes would be compiled once more in every crate that names it.
pub static ALL: &[(&str, Runner)] = &[
    row::<Holds<lock::FairLock>>(),
    row::<Holds<lock::MarkedLock>>(),
    row::<Holds<lock::PlainLock>>(),
    row::<Holds<lock::BothLocks>>(),
    row::<Holds<lock::Leaders>>(),
    row::<Holds<lock::LeaderWithLock>>(),
    row::<Holds<shared::ReadWrite>>(),
    row::<Holds<shared::Permits>>(),
    row::<barriers::Gate>(),
    row::<barriers::Meetings>(),
    row::<queue::Items>(),
    row::<queue::LateItems>(),
    row::<priority::Ranked>(),
    row::<tasks::Chores>(),
    row::<counter::Sum>(),
    row::<members::Members>(),
    row::<members::Values>(),
    row::<folder::Pairs>(),
    row::<names::Owners>(),
    row::<cache::Copies>(),
    row::<transactions::Commits>(),
];

const fn row<R: Recipe>() -> (&'static str, Runner) {
    (R::NAME, run::<R>)
}

/// Recipes that belong to one plan only.
static SPECIAL: &[(&str, Runner)] = &[row::<latecomers::Latecomers>()];

/// The recipe of a name.
pub fn find(name: &str) -> Option<Runner> {
    ALL.iter()
        .chain(SPECIAL)
        .find(|(known, _)| *known == name)
        .map(|(_, run)| *run)
}
