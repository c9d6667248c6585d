//! Deliberate mistakes in the recipes, each with the recipe that shows it: proof that the checks find them.

use bellwether::Sabotage;

use crate::plan::Plan;
use crate::recipes;

/// A deliberate mistake, and the recipe that shows it.
#[derive(Debug, Clone, Copy)]
pub struct Mistake {
    /// Its name on the command line.
    pub name: &'static str,
    /// What the recipes do wrong.
    pub sabotage: Sabotage,
    /// The recipe that shows it.
    pub recipe: &'static str,
}

const fn mistake(name: &'static str, sabotage: Sabotage, recipe: &'static str) -> Mistake {
    Mistake {
        name,
        sabotage,
        recipe,
    }
}

/// All mistakes.
pub const ALL: &[Mistake] = &[
    mistake("sort-by-whole-name", Sabotage::SortByWholeName, "lock"),
    mistake("adopt-any-owner", Sabotage::AdoptAnyOwner, "lock"),
    mistake("ignore-expiry", Sabotage::IgnoreExpiry, "lock"),
    mistake("skip-relist", Sabotage::SkipRelist, "lock"),
    mistake("trust-connection", Sabotage::TrustConnection, "lock"),
    mistake("trust-reads", Sabotage::TrustReads, "lock"),
    mistake("timeout-once", Sabotage::TimeoutOnce, "lock"),
    mistake("no-margin", Sabotage::NoMargin, "lock"),
    mistake("date-at-reply", Sabotage::DateAtReply, "lock"),
    mistake("delete-once", Sabotage::DeleteOnce, "lock"),
    mistake("pass-on-any-wake", Sabotage::PassOnAnyWake, "barrier"),
    mistake("settle-any-version", Sabotage::SettleAnyVersion, "queue"),
    mistake("retry-blindly", Sabotage::RetryBlindly, "counter"),
    mistake("ignore-due-time", Sabotage::IgnoreDueTime, "delay-queue"),
    mistake("decide-early", Sabotage::DecideEarly, "two-phase"),
    mistake("unknown-is-refusal", Sabotage::UnknownIsRefusal, "lock"),
    mistake("skip-sync", Sabotage::SkipSync, "lock"),
    mistake("skip-sync", Sabotage::SkipSync, "queue"),
    mistake("skip-sync", Sabotage::SkipSync, "counter"),
    mistake("skip-sync", Sabotage::SkipSync, "barrier"),
    mistake("leave-claim", Sabotage::LeaveClaim, "queue"),
];

impl Mistake {
    /// The mistake of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        ALL.iter().find(|mistake| mistake.name == name)
    }

    /// The first seed that shows the mistake, among `seeds` seeds from 0 on, and the violation.
    pub fn first_seed(&self, seeds: u64) -> Option<(u64, String)> {
        let run = recipes::find(self.recipe)?;
        (0..seeds).find_map(|seed| {
            let plan = Plan::of(seed);
            let violation = run(&plan.clone().sabotaged(self.sabotage)).violation?;
            // The run fails only because of the mistake.
            let is_right_without = run(&plan).violation.is_none();
            is_right_without.then_some((seed, violation))
        })
    }
}
