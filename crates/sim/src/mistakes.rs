//! Deliberate mistakes in the recipes, the client and the server, each with the recipe that shows it: proof that the checks find them.

use bellwether::Sabotage;
use bellwether_client::seam::Mistake as ClientMistake;

use crate::plan::Plan;
use crate::recipes;
use crate::servers::ServerMistake;

/// A deliberate mistake, and the recipe that shows it.
#[derive(Debug, Clone, Copy)]
pub struct Mistake {
    /// Its name on the command line.
    pub name: &'static str,
    /// What is wrong.
    pub what: Wrong,
    /// The recipe that shows it.
    pub recipe: &'static str,
    /// The plan of a seed, without the mistake.
    plan: fn(u64) -> Plan,
}

/// What a mistake is in.
#[derive(Debug, Clone, Copy)]
pub enum Wrong {
    /// The recipes, on any server.
    Recipe(Sabotage),
    /// The client, on any server.
    Client(ClientMistake),
    /// The embedded server.
    Server(ServerMistake),
}

const fn mistake(name: &'static str, sabotage: Sabotage, recipe: &'static str) -> Mistake {
    Mistake {
        name,
        what: Wrong::Recipe(sabotage),
        recipe,
        plan: Plan::of,
    }
}

const fn of_client(name: &'static str, mistake: ClientMistake, recipe: &'static str) -> Mistake {
    Mistake {
        name,
        what: Wrong::Client(mistake),
        recipe,
        plan: Plan::of,
    }
}

const fn of_server(name: &'static str, mistake: ServerMistake, recipe: &'static str) -> Mistake {
    Mistake {
        name,
        what: Wrong::Server(mistake),
        recipe,
        plan: Plan::embedded,
    }
}

/// Mistakes that no run shows, because the recipe does not depend on what they leave out.
pub const HARMLESS: &[Mistake] = &[
    mistake("skip-sync-of-own-node", Sabotage::SkipSync, "lock"),
    mistake("skip-sync-of-claim", Sabotage::SkipSync, "queue"),
];

/// Mistakes that the checks must find, and `docs/proof.md` lists. Some are made in several recipes, so that the checks of each are seen to fail.
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
    mistake("skip-sync", Sabotage::SkipSync, "barrier"),
    mistake("trust-sync", Sabotage::TrustSync, "barrier"),
    mistake("look-before-retry", Sabotage::LookBeforeRetry, "queue"),
    mistake("leave-stragglers", Sabotage::LeaveStragglers, "lock").on(Plan::torn),
    mistake("look-once", Sabotage::LookOnce, "lock").on(Plan::torn),
    mistake("forget-receipt", Sabotage::ForgetReceipt, "barrier").on(Plan::torn),
    mistake("delete-by-path", Sabotage::DeleteByPath, "simple-lock").on(Plan::torn),
    mistake("count-twice", Sabotage::CountTwice, "double-barrier").on(Plan::torn),
    mistake("leave-claim", Sabotage::LeaveClaim, "queue"),
    mistake("gone-is-ours", Sabotage::GoneIsOurs, "queue").on(Plan::embedded),
    mistake("give-up-place", Sabotage::GiveUpPlace, "double-barrier").on(Plan::crowded),
    mistake(
        "upgrade-among-readers",
        Sabotage::UpgradeAmongReaders,
        "rwlock",
    ),
    mistake("ignore-limit", Sabotage::IgnoreLimit, "semaphore"),
    mistake("skip-relist-with-mark", Sabotage::SkipRelist, "marked-lock"),
    mistake("skip-relist-of-several", Sabotage::SkipRelist, "multi-lock"),
    mistake("skip-relist-of-rivals", Sabotage::SkipRelist, "rival-locks"),
    mistake("skip-relist-again", Sabotage::SkipRelist, "reentrant-lock"),
    mistake(
        "skip-relist-of-sides",
        Sabotage::SkipRelist,
        "reentrant-rwlock",
    ),
    mistake("skip-relist-of-candidate", Sabotage::SkipRelist, "election"),
    mistake(
        "skip-relist-of-leader",
        Sabotage::SkipRelist,
        "election-with-lock",
    ),
    mistake(
        "settle-any-version-of-rank",
        Sabotage::SettleAnyVersion,
        "priority-queue",
    ),
    mistake("retry-task-blindly", Sabotage::RetryBlindly, "tasks"),
    mistake("retry-value-blindly", Sabotage::RetryBlindly, "config"),
    mistake(
        "retry-folder-blindly",
        Sabotage::RetryBlindly,
        "config-folder",
    ),
    mistake("retry-name-blindly", Sabotage::RetryBlindly, "names"),
    mistake("look-once-for-member", Sabotage::LookOnce, "group").on(Plan::torn),
    mistake("trust-lost-hold", Sabotage::TrustLostHold, "lock").on(Plan::wiped),
    mistake("lost-by-task", Sabotage::LostByTask, "lock").on(Plan::starved),
    mistake("one-write", Sabotage::OneWrite, "latecomers").on(recipes::stalls),
    mistake(
        "retry-write-blindly",
        Sabotage::RetryBlindly,
        "lock-with-fenced-write",
    )
    .on(Plan::torn),
    mistake("retry-note-blindly", Sabotage::RetryBlindly, "marked-lock").on(Plan::torn),
    mistake("skip-sync-of-counter", Sabotage::SkipSync, "counter"),
    mistake(
        "write-unfenced",
        Sabotage::WriteUnfenced,
        "lock-with-fenced-write",
    ),
    mistake(
        "write-unfenced-by-claim",
        Sabotage::WriteUnfenced,
        "queue-with-fenced-write",
    ),
    of_client("write-last", ClientMistake::WriteLast, "lock"),
    of_client("overload-is-final", ClientMistake::OverloadIsFinal, "cache").on(Plan::overloaded),
    of_client("date-one-ping", ClientMistake::DateOnePing, "lock").on(Plan::late),
    of_server("no-sync", ServerMistake::NoSync, "queue"),
    of_server("trust-cache", ServerMistake::TrustCache, "lock").on(Plan::failing_disk),
];

impl Mistake {
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
        match self.what {
            Wrong::Recipe(sabotage) => plan.sabotaged(sabotage),
            Wrong::Client(mistake) => Plan {
                client_mistake: Some(mistake),
                ..plan
            },
            Wrong::Server(mistake) => plan.with_server_mistake(mistake),
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
