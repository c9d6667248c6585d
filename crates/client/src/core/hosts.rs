//! Where to connect next, and when.

use std::time::Duration;

use rand::Rng;
use rand::seq::SliceRandom as _;

use crate::options::address::Endpoint;

/// The longest pause after the first round in which every server failed. It doubles with each further round.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// What to do next to get a connection.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Try this server.
    Try(Endpoint),
    /// Every server was tried: wait this long, then ask again.
    Pause(Duration),
}

/// The servers of a session: tried in rounds, each in a new random order, with a growing random pause between rounds, so that
/// a thousand clients of a restarted server do not connect at once (thundering herd).
#[derive(Debug)]
pub(crate) struct Hosts {
    all: Vec<Endpoint>,
    /// The servers left in the present round.
    round: Vec<Endpoint>,
    /// Rounds without success.
    failed: u32,
}

impl Hosts {
    pub(crate) fn new(all: Vec<Endpoint>, random: &mut impl Rng) -> Self {
        let mut hosts = Self {
            all,
            round: Vec::new(),
            failed: 0,
        };
        hosts.shuffle(random);
        hosts
    }

    pub(crate) fn next(&mut self, random: &mut impl Rng) -> Next {
        match self.round.pop() {
            Some(endpoint) => Next::Try(endpoint),
            None => {
                self.shuffle(random);
                let pause = PAUSE_MIN.saturating_mul(1 << self.failed.min(16));
                self.failed += 1;
                Next::Pause(pause.min(PAUSE_MAX).mul_f64(random.random_range(0.5..1.0)))
            }
        }
    }

    /// Returns how long to wait after a lost connection before the next attempt. If another process has taken the session over, it gets
    /// time to use it. The random length keeps the clients of a failed server from connecting to the next one all at once.
    pub(crate) fn after_loss(random: &mut impl Rng) -> Duration {
        PAUSE_MIN.mul_f64(random.random_range(0.5..2.0))
    }

    /// Rounds in which every server failed.
    pub(crate) fn failed_rounds(&self) -> u32 {
        self.failed
    }

    /// A connection was established: the next search starts from the beginning.
    pub(crate) fn succeeded(&mut self, random: &mut impl Rng) {
        self.failed = 0;
        self.shuffle(random);
    }

    fn shuffle(&mut self, random: &mut impl Rng) {
        self.round.clone_from(&self.all);
        self.round.shuffle(random);
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng as _;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn every_server_is_tried_once_a_round_and_pauses_grow() {
        let mut random = StdRng::seed_from_u64(1);
        let all: Vec<_> = (1..4)
            .map(|n| Endpoint::Tcp(format!("zk{n}"), 2181))
            .collect();
        let mut hosts = Hosts::new(all.clone(), &mut random);
        let mut pauses = Vec::new();
        for _ in 0..12 {
            let mut tried = Vec::new();
            pauses.push(loop {
                match hosts.next(&mut random) {
                    Next::Try(endpoint) => tried.push(endpoint),
                    Next::Pause(pause) => break pause,
                }
            });
            tried.sort_by_key(ToString::to_string);
            assert_eq!(tried, all);
        }
        assert!(pauses[0] >= PAUSE_MIN / 2 && pauses[0] < PAUSE_MIN);
        assert!(pauses[11] >= PAUSE_MAX / 2 && pauses[11] <= PAUSE_MAX);
    }
}
