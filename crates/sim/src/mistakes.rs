//! Deliberate mistakes in the recipes, the client and the server, each with the recipe that shows it: proof that the checks find them.
//!
//! The code under test has no trace of them. They are [patches](Patch) of a [copy of the workspace](Workspace), where each is switched on for a
//! run.

mod patch;
mod workspace;

pub use crate::switch::ARE_HERE;
pub use patch::{FailingTest, Patch};
pub use workspace::{Programs, Workspace};

use crate::plan::Plan;
use crate::recipes;

/// A deliberate mistake in a recipe that shows it.
#[derive(Debug, Clone, Copy)]
pub struct Mistake {
    /// Its name on the command line.
    pub name: &'static str,
    /// The name of the patch. Some mistakes are made in several recipes.
    pub patch: &'static str,
    /// The recipe that shows it.
    pub recipe: &'static str,
    /// The plan of a seed, without the mistake.
    plan: fn(u64) -> Plan,
}

const fn mistake(name: &'static str, recipe: &'static str) -> Mistake {
    Mistake {
        name,
        patch: name,
        recipe,
        plan: Plan::of,
    }
}

/// Mistakes that no run shows, because the recipe does not depend on what they leave out.
pub const HARMLESS: &[Mistake] = &[
    mistake("skip-sync-of-own-node", "lock").by("skip-sync"),
    mistake("skip-sync-of-claim", "queue").by("skip-sync"),
];

/// Mistakes that the checks must find, and `docs/proof.md` lists. Some are made in several recipes, so that the checks of each are seen to fail.
pub const ALL: &[Mistake] = &[
    mistake("sort-by-whole-name", "lock"),
    mistake("adopt-any-owner", "lock"),
    mistake("ignore-expiry", "lock"),
    mistake("skip-relist", "lock"),
    mistake("trust-connection", "lock"),
    mistake("trust-reads", "lock"),
    mistake("timeout-once", "lock"),
    mistake("no-margin", "lock"),
    mistake("date-at-reply", "lock"),
    mistake("delete-once", "lock"),
    mistake("pass-on-any-wake", "barrier"),
    mistake("settle-any-version", "queue"),
    mistake("retry-blindly", "counter"),
    mistake("ignore-due-time", "delay-queue"),
    mistake("decide-early", "two-phase"),
    mistake("unknown-is-refusal", "lock"),
    mistake("skip-sync", "barrier"),
    mistake("trust-sync", "barrier"),
    mistake("look-before-retry", "queue"),
    mistake("leave-stragglers", "lock").on(Plan::torn),
    mistake("look-once", "lock").on(Plan::torn),
    mistake("forget-receipt", "barrier").on(Plan::torn),
    mistake("delete-by-path", "simple-lock").on(Plan::torn),
    mistake("count-twice", "double-barrier").on(Plan::torn),
    mistake("leave-claim", "queue"),
    mistake("gone-is-ours", "queue").on(Plan::embedded),
    mistake("give-up-place", "double-barrier").on(Plan::crowded),
    mistake("upgrade-among-readers", "rwlock"),
    mistake("ignore-limit", "semaphore"),
    mistake("skip-relist-with-mark", "marked-lock").by("skip-relist"),
    mistake("skip-relist-of-several", "multi-lock").by("skip-relist"),
    mistake("skip-relist-of-rivals", "rival-locks").by("skip-relist"),
    mistake("skip-relist-again", "reentrant-lock").by("skip-relist"),
    mistake("skip-relist-of-sides", "reentrant-rwlock").by("skip-relist"),
    mistake("skip-relist-of-candidate", "election").by("skip-relist"),
    mistake("skip-relist-of-leader", "election-with-lock").by("skip-relist"),
    mistake("settle-any-version-of-rank", "priority-queue").by("settle-any-version"),
    mistake("retry-task-blindly", "tasks").by("retry-blindly"),
    mistake("retry-value-blindly", "config").by("retry-blindly"),
    mistake("retry-folder-blindly", "config-folder").by("retry-blindly"),
    mistake("retry-name-blindly", "names").by("retry-blindly"),
    mistake("look-once-for-member", "group")
        .by("look-once")
        .on(Plan::torn),
    mistake("trust-lost-hold", "lock").on(Plan::wiped),
    mistake("lost-by-task", "lock").on(Plan::starved),
    mistake("one-write", "latecomers").on(recipes::stalls),
    mistake("retry-write-blindly", "lock-with-fenced-write")
        .by("retry-blindly")
        .on(Plan::torn),
    mistake("retry-note-blindly", "marked-lock")
        .by("retry-blindly")
        .on(Plan::torn),
    mistake("skip-sync-of-counter", "counter").by("skip-sync"),
    mistake("write-unfenced", "lock-with-fenced-write"),
    mistake("write-unfenced-by-claim", "queue-with-fenced-write").by("write-unfenced"),
    mistake("write-last", "lock"),
    mistake("overload-is-final", "cache").on(Plan::overloaded),
    mistake("date-one-ping", "lock").on(Plan::late),
    mistake("no-sync", "queue").on(Plan::embedded),
    mistake("trust-cache", "lock").on(Plan::failing_disk),
];

impl Mistake {
    const fn by(mut self, patch: &'static str) -> Self {
        self.patch = patch;
        self
    }

    const fn on(mut self, plan: fn(u64) -> Plan) -> Self {
        self.plan = plan;
        self
    }

    /// The mistake of a name.
    pub fn find(name: &str) -> Option<&'static Self> {
        let mut all = ALL.iter().chain(HARMLESS);
        all.find(|mistake| mistake.name == name)
    }

    /// The plan of a seed with the servers and faults that the mistake needs, without the mistake.
    pub fn plan(&self, seed: u64) -> Plan {
        (self.plan)(seed)
    }

    /// The same plan with the mistake.
    pub fn make(&self, plan: Plan) -> Plan {
        Plan {
            mistake: Some(self.patch),
            ..plan
        }
    }

    /// The first seed that shows the mistake, among `seeds` seeds from 0 on, and the violation.
    ///
    /// # Errors
    ///
    /// If a run that fails with the mistake fails without it too: then the recipe is wrong, and the seed shows nothing.
    pub fn first_seed(&self, seeds: u64) -> Result<Option<(u64, String)>, String> {
        let run = recipes::find(self.recipe).ok_or("no such recipe")?;
        for seed in 0..seeds {
            let plan = self.plan(seed);
            let Some(violation) = run(&self.make(plan.clone())).violation else {
                continue;
            };
            return match run(&plan).violation {
                None => Ok(Some((seed, violation))),
                Some(wrong) => Err(format!("seed {seed} is wrong without the mistake: {wrong}")),
            };
        }
        Ok(None)
    }
}
