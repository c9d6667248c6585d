//! Plans which fault happens when, and to which contender.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::proxy::{Cut, Direction};

/// One kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spell {
    /// The connection is cut, and the next one succeeds.
    Cut(Cut),
    /// The connection is cut, and new ones are refused for a time.
    Outage(Duration),
    /// Nothing passes in this direction for a time, and connections stay open.
    Hold(Direction, Duration),
    /// Each frame is delayed, for a time.
    #[expect(missing_docs, reason = "said above")]
    Delay {
        direction: Direction,
        by: Duration,
        lasting: Duration,
    },
    /// The server receives a request, but its reply is lost with the connection, after this number of other requests.
    SwallowReply(usize),
    /// A request does not reach the server, and the connection is cut, after this number of other requests.
    DropRequest(usize),
    /// The session ends at once.
    Expire,
    /// The process is stopped for a time.
    Pause(Duration),
    /// The process is killed and started again.
    Kill,
    /// The server ends and starts again.
    Restart,
}

/// Parameters of the faults.
#[derive(Debug, Clone, Copy)]
pub struct Climate {
    /// The number of contenders.
    pub contenders: usize,
    /// Their session timeout; faults that last are shorter and longer than this.
    pub session_timeout: Duration,
    /// The longest time from one fault to the next.
    pub calm_max: Duration,
    /// What may be disturbed.
    pub scope: Scope,
}

/// What faults happen to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// Connections of contenders.
    pub links: bool,
    /// Processes of contenders are paused.
    pub pauses: bool,
    /// Processes of contenders are killed, by a caller that starts them again.
    pub kills: bool,
    /// Servers are restarted.
    pub restarts: bool,
}

/// One planned fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forewarning {
    /// The time after the previous fault.
    pub after: Duration,
    /// The contender.
    pub who: usize,
    /// Whether it affects the contender with the latest grant instead: faults of holders reveal most.
    pub at_holder: bool,
    /// The fault.
    pub spell: Spell,
}

/// An endless sequence of faults; empty if there is nothing to disturb.
///
/// They are dealt from a shuffled pack that contains each kind, so that even a short run has all of them.
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
    Kill,
    Restart,
}

impl Kind {
    /// Cheap faults are more frequent.
    const PACK: [Self; 25] = [
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
        Self::Kill,
        Self::Kill,
        Self::Restart,
    ];

    fn is_in(self, scope: Scope) -> bool {
        match self {
            Self::ShortPause | Self::LongPause => scope.pauses,
            Self::Kill => scope.kills,
            Self::Restart => scope.restarts,
            _ => scope.links,
        }
    }
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
            Kind::Kill => Spell::Kill,
            Kind::Restart => Spell::Restart,
        }
    }

    /// A time that a session survives.
    fn short(&mut self) -> Duration {
        self.part_of_timeout(0.0, 0.6)
    }

    /// A time that a session may barely survive, or not survive.
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
            let scope = self.climate.scope;
            let pack = Kind::PACK.into_iter().filter(|kind| kind.is_in(scope));
            self.pack = pack.collect();
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
        scope: Scope {
            links: true,
            pauses: true,
            kills: true,
            restarts: true,
        },
    };

    #[test]
    fn the_same_seed_brings_the_same_faults() {
        let faults = |seed| Forecast::new(seed, CLIMATE).take(100).collect::<Vec<_>>();
        assert_eq!(faults(7), faults(7));
        assert_ne!(faults(7), faults(8));
    }

    #[test]
    fn nothing_outside_the_scope_is_disturbed() {
        let scope = Scope {
            links: false,
            pauses: true,
            kills: true,
            restarts: false,
        };
        let climate = Climate { scope, ..CLIMATE };
        for fault in Forecast::new(1, climate).take(100) {
            assert!(matches!(fault.spell, Spell::Pause(_) | Spell::Kill));
        }
        let scope = Scope {
            pauses: false,
            kills: false,
            ..scope
        };
        let climate = Climate { scope, ..CLIMATE };
        assert_eq!(Forecast::new(1, climate).next(), None);
    }

    #[test]
    fn a_pack_has_every_kind_for_somebody() {
        let dealt: Vec<_> = Forecast::new(1, CLIMATE).take(Kind::PACK.len()).collect();
        let kinds: HashSet<_> = dealt
            .iter()
            .map(|fault| discriminant(&fault.spell))
            .collect();
        assert_eq!(kinds.len(), 10);
        let whom: HashSet<_> = dealt.iter().map(|fault| fault.who).collect();
        assert_eq!(whom.len(), 3);
        assert!(dealt.iter().all(|fault| fault.after <= CLIMATE.calm_max));
    }
}
