//! All recipes that a run can test.

mod barriers;
mod fenced;
mod holds;
mod latecomers;
mod queues;
mod state;
mod transactions;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::run::{Verdict, run};

use holds::{Holds, lock, reentrant, rwlock, semaphore};
pub(crate) use latecomers::stalls;
use queues::queue::Items;
use queues::{delay, fifo, priority, tasks};
use state::{cache, config, counter, folder, group, names};

/// Runs a plan with one recipe.
pub type Runner = fn(&Plan) -> Verdict;

/// All recipes, by name. Not a constant: the recipes would be compiled once more in every crate that names it.
pub static ALL: &[(&str, Runner)] = &[
    row::<Holds<lock::FairLock>>(),
    row::<Holds<lock::MarkedLock>>(),
    row::<Holds<lock::PlainLock>>(),
    row::<Holds<lock::BothLocks>>(),
    row::<Holds<lock::RivalLocks>>(),
    row::<Holds<reentrant::Nested>>(),
    row::<Holds<reentrant::NestedSides>>(),
    row::<Holds<lock::Leaders>>(),
    row::<Holds<lock::LeaderWithLock>>(),
    row::<Holds<rwlock::ReadWrite>>(),
    row::<Holds<semaphore::Permits>>(),
    row::<barriers::Gate>(),
    row::<barriers::Meetings>(),
    row::<Items<fifo::AsPut>>(),
    row::<Items<delay::Late>>(),
    row::<Items<priority::Ranked>>(),
    row::<tasks::Chores>(),
    row::<fenced::UnderLock>(),
    row::<fenced::UnderClaim>(),
    row::<counter::CounterSum>(),
    row::<group::Members>(),
    row::<config::Values>(),
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

/// All recipes, and those that belong to one plan only.
pub fn every() -> impl Iterator<Item = &'static (&'static str, Runner)> {
    ALL.iter().chain(SPECIAL)
}

/// The recipe of a name.
pub fn find(name: &str) -> Option<Runner> {
    every()
        .find(|(known, _)| *known == name)
        .map(|(_, run)| *run)
}
