//! Which fault comes when, and to whom.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::proxy::{Cut, Direction};

/// One thing that goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spell {
    /// The connection ends, and the next one is welcome.
    Cut(Cut),
    /// The connection ends, and no other one is made for a time.
    Outage(Duration),
    /// Nothing passes this way for a time, and connections stay open.
    Hold(Direction, Duration),
    /// Each frame takes so long, for a time.
    #[expect(missing_docs, reason = "said above")]
    Delay {
        direction: Direction,
        by: Duration,
        lasting: Duration,
    },
    /// The server gets a request, and its reply is lost with the connection. So many requests pass before.
    SwallowReply(usize),
    /// A request does not reach the server, and the connection ends. So many requests pass before.
    DropRequest(usize),
    /// The session ends at once.
    Expire,
    /// The process is stopped for a time.
    Pause(Duration),
    /// The server ends and starts again.
    Restart,
}

/// How rough it is.
#[derive(Debug, Clone, Copy)]
pub struct Climate {
    /// How many contenders there are.
    pub contenders: usize,
    /// Their session timeout; faults that last are shorter and longer than this.
    pub session_timeout: Duration,
    /// The longest time from one fault to the next.
    pub calm_max: Duration,
}

/// One fault to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forewarning {
    /// How long after the one before.
    pub after: Duration,
    /// Whom it happens to.
    pub who: usize,
    /// Whether it happens to the last who was granted something instead: a fault of a holder shows most.
    pub at_holder: bool,
    /// What happens.
    pub spell: Spell,
}

/// Faults to come, without end.
///
/// They are dealt from a shuffled pack that has each kind, so that a short run sees all of them.
#[derive(Debug)]
pub struct Forecast {
    climate: Climate,
    random: StdRng,
    pack: Vec<Kind>,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Cut,
    ShortOutage,
    LongOutage,
    ShortHold,
    LongHold,
    Delay,
    SwallowReply,
    DropRequest,
    Expire,
    ShortPause,
    LongPause,
    Restart,
}

impl Kind {
    /// What is cheap comes more often.
    const PACK: [Self; 23] = [
        Self::Cut,
        Self::Cut,
        Self::Cut,
        Self::ShortOutage,
        Self::ShortOutage,
        Self::LongOutage,
        Self::ShortHold,
        Self::ShortHold,
        Self::LongHold,
        Self::Delay,
        Self::SwallowReply,
        Self::SwallowReply,
        Self::SwallowReply,
        Self::SwallowReply,
        Self::DropRequest,
        Self::DropRequest,
        Self::DropRequest,
        Self::Expire,
        Self::Expire,
        Self::ShortPause,
        Self::ShortPause,
        Self::LongPause,
        Self::Restart,
    ];
}

impl Forecast {
    /// The faults of a seed.
    pub fn new(seed: u64, climate: Climate) -> Self {
        Self {
            climate,
            random: StdRng::seed_from_u64(seed),
            pack: Vec::new(),
        }
    }

    fn spell(&mut self, kind: Kind) -> Spell {
        match kind {
            Kind::Cut if self.random.random() => Spell::Cut(Cut::Close),
            Kind::Cut => Spell::Cut(Cut::Reset),
            Kind::ShortOutage => Spell::Outage(self.short()),
            Kind::LongOutage => Spell::Outage(self.long()),
            Kind::ShortHold => Spell::Hold(self.direction(), self.short()),
            Kind::LongHold => Spell::Hold(self.direction(), self.long()),
            Kind::Delay => Spell::Delay {
                direction: self.direction(),
                by: self.short() / 4,
                lasting: self.long(),
            },
            Kind::SwallowReply => Spell::SwallowReply(self.random.random_range(0..6)),
            Kind::DropRequest => Spell::DropRequest(self.random.random_range(0..6)),
            Kind::Expire => Spell::Expire,
            Kind::ShortPause => Spell::Pause(self.short()),
            Kind::LongPause => Spell::Pause(self.long()),
            Kind::Restart => Spell::Restart,
        }
    }

    /// A time that a session survives.
    fn short(&mut self) -> Duration {
        self.part_of_timeout(0.0, 0.6)
    }

    /// A time that a session may just survive, or not at all.
    fn long(&mut self) -> Duration {
        self.part_of_timeout(0.7, 2.0)
    }

    fn part_of_timeout(&mut self, least: f64, most: f64) -> Duration {
        let part = self.random.random_range(least..most);
        self.climate.session_timeout.mul_f64(part)
    }

    fn direction(&mut self) -> Direction {
        let all = [Direction::ToServer, Direction::ToClient, Direction::Both];
        all[self.random.random_range(0..all.len())]
    }
}

impl Iterator for Forecast {
    type Item = Forewarning;

    fn next(&mut self) -> Option<Forewarning> {
        if self.pack.is_empty() {
            self.pack = Kind::PACK.to_vec();
            self.pack.shuffle(&mut self.random);
        }
        let kind = self.pack.pop()?;
        Some(Forewarning {
            after: self.climate.calm_max.mul_f64(self.random.random()),
            who: self.random.random_range(0..self.climate.contenders),
            at_holder: self.random.random(),
            spell: self.spell(kind),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::mem::discriminant;

    use super::*;

    const CLIMATE: Climate = Climate {
        contenders: 3,
        session_timeout: Duration::from_secs(1),
        calm_max: Duration::from_millis(100),
    };

    #[test]
    fn the_same_seed_brings_the_same_faults() {
        let faults = |seed| Forecast::new(seed, CLIMATE).take(100).collect::<Vec<_>>();
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn a_pack_has_every_kind_for_somebody() {
        let dealt: Vec<_> = Forecast::new(1, CLIMATE).take(Kind::PACK.len()).collect();
        let kinds: HashSet<_> = dealt
            .iter()
            .map(|fault| discriminant(&fault.spell))
            .collect();
        assert_eq!(kinds.len(), 9);
        let whom: HashSet<_> = dealt.iter().map(|fault| fault.who).collect();
        assert_eq!(whom.len(), 3);
        assert!(dealt.iter().all(|fault| fault.after <= CLIMATE.calm_max));
    }
}
