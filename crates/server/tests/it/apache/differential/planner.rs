//! Random plans, from a seed.

use bellwether_testkit::{Create, Request};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::pair::Settings;
use super::plan::{Plan, Step};
use crate::apache::vocabulary::{Theme, Vocabulary};

/// Builds one plan.
#[derive(Debug)]
pub(super) struct Planner {
    rng: StdRng,
    vocabulary: Vocabulary,
    sessions: usize,
    /// One write at a time, see `a_hard_limit_holds_for_every_write`.
    singly: bool,
}

impl Planner {
    pub(super) fn new(seed: u64, settings: Settings) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let themes = [Theme::Watches, Theme::Access, Theme::Quotas];
        let theme = *themes.choose(&mut rng).unwrap();
        let singly = settings.enforce_quota && theme == Theme::Quotas;
        let mut vocabulary = Vocabulary::new(seed, theme);
        if singly {
            vocabulary = vocabulary.with_short_multis();
        }
        Self {
            sessions: rng.random_range(2..=4),
            rng,
            vocabulary,
            singly,
        }
    }

    pub(super) fn plan(mut self) -> Plan {
        // An empty tree answers most requests with the same error.
        let seedlings = self.vocabulary.seedlings();
        let size = if self.singly { 1 } else { seedlings.len() };
        let segments = seedlings.chunks(size).map(<[_]>::to_vec);
        let mut steps: Vec<_> = segments
            .map(|requests| Step::Send { who: 0, requests })
            .collect();
        let count = if self.singly { 10..60 } else { 4..20 };
        for _ in 0..self.rng.random_range(count) {
            steps.push(self.step());
        }
        Plan {
            sessions: self.sessions,
            steps,
        }
    }

    fn step(&mut self) -> Step {
        let who = self.rng.random_range(0..self.sessions);
        let requests = match self.rng.random_range(0..100) {
            0..5 => return Step::Reattach { who },
            5..10 => return Step::Reopen { who },
            // Apache answers both out of order, so they are sent alone.
            10..17 => vec![self.vocabulary.authentication()],
            17..19 => vec![self.vocabulary.unknown()],
            _ => self.segment(who),
        };
        Step::Send { who, requests }
    }

    fn segment(&mut self, who: usize) -> Vec<Request> {
        let count = match self.rng.random_range(0..3) {
            _ if self.singly => 1,
            0 => 1,
            1 => self.rng.random_range(1..6),
            _ => self.rng.random_range(1..=40),
        };
        let mut requests = Vec::new();
        for _ in 0..count {
            let request = self.vocabulary.request(who);
            let is_last = must_be_last(&request);
            requests.push(request);
            if is_last {
                break;
            }
        }
        requests
    }
}

/// Whether a request right after this one may see an incomplete effect of it.
fn must_be_last(request: &Request) -> bool {
    match request {
        // See `a_new_access_list_counts_for_the_next_write`.
        Request::SetAcl { .. } => true,
        // See `nothing_is_left_of_a_spoiled_multi`.
        Request::Multi(operations) => operations.iter().any(|operation| {
            matches!(
                operation,
                Request::Create(Create {
                    flags: Create::TTL | Create::TTL_SEQUENTIAL,
                    ttl_ms: None,
                    ..
                })
            )
        }),
        _ => false,
    }
}
