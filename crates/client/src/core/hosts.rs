//! Where to connect next, and when.

use std::time::Duration;

use rand::Rng;
use rand::seq::SliceRandom as _;

use crate::options::address::Endpoint;

/// The longest pause after the first round in which every server failed. It doubles with each further round.
const PAUSE_MIN: Duration = Duration::from_millis(20);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// The servers of a session: tried in rounds, each in a new random order, with a growing random pause between rounds, so that
/// a thousand clients of a restarted server do not connect at once (thundering herd). The server that was tried last is the last one of
/// the next round: its connection was lost, or it has failed.
#[derive(Debug)]
pub(crate) struct Hosts {
    all: Vec<Endpoint>,
    /// The servers left in the present round, last one first.
    round: Vec<Endpoint>,
    /// The server that was tried last.
    last: Option<Endpoint>,
    /// Rounds without success.
    failed: u32,
}

impl Hosts {
    pub(crate) fn new(all: Vec<Endpoint>, random: &mut impl Rng) -> Self {
        let mut hosts = Self {
            all,
            round: Vec::new(),
            last: None,
            failed: 0,
        };
        hosts.shuffle(random);
        hosts
    }

    /// The server to try next; `None` if every one was tried in this round.
    pub(crate) fn next(&mut self) -> Option<Endpoint> {
        let next = self.round.pop()?;
        self.last = Some(next.clone());
        Some(next)
    }

    /// Whether a server is left in this round.
    pub(crate) fn has_next(&self) -> bool {
        !self.round.is_empty()
    }

    /// No server was reached in this round. Returns how long to wait before the next one.
    pub(crate) fn failed(&mut self, random: &mut impl Rng) -> Duration {
        self.shuffle(random);
        let pause = PAUSE_MIN.saturating_mul(1 << self.failed.min(16));
        self.failed += 1;
        pause.min(PAUSE_MAX).mul_f64(random.random_range(0.5..1.0))
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
        // They are taken from the end.
        let is_other = |endpoint: &Endpoint| Some(endpoint) != self.last.as_ref();
        self.round.sort_by_key(is_other);
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
        let mut last = None;
        for _ in 0..12 {
            let mut tried: Vec<_> = std::iter::from_fn(|| hosts.next()).collect();
            assert!(last.is_none() || tried.last() == last.as_ref());
            last = tried.last().cloned();
            tried.sort_by_key(ToString::to_string);
            assert_eq!(tried, all);
            pauses.push(hosts.failed(&mut random));
        }
        assert!(pauses[0] >= PAUSE_MIN / 2 && pauses[0] < PAUSE_MIN);
        assert!(pauses[11] >= PAUSE_MAX / 2 && pauses[11] <= PAUSE_MAX);
    }

    #[test]
    fn server_whose_connection_was_lost_is_tried_last() {
        let mut random = StdRng::seed_from_u64(1);
        let all: Vec<_> = (1..4)
            .map(|n| Endpoint::Tcp(format!("zk{n}"), 2181))
            .collect();
        let mut hosts = Hosts::new(all, &mut random);
        for _ in 0..50 {
            let lost = hosts.next().unwrap();
            hosts.succeeded(&mut random);
            let tried: Vec<_> = std::iter::from_fn(|| hosts.next()).collect();
            assert_eq!(tried.len(), 3);
            assert_eq!(tried[2], lost);
            hosts.succeeded(&mut random);
        }
    }
}
