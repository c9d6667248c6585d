//! Random faults from one seed.
//!
//! A [`Forecast`] says which fault comes when and to whom: the same for the same seed. [`Weather::pass`] makes them happen
//! to the contenders behind their proxies. What the contenders are doing at that moment is up to the machine, so
//! another run with the seed has the same faults and not the same history.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use bellwether_server::proto::op::Op;
use rand::rngs::StdRng;
use rand::seq::SliceRandom as _;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::engine::Engine;
use crate::history::{Recorder, What};
use crate::proxy::{Cut, Direction, FaultProxy, SeenRequest};

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

/// A contender that faults happen to.
#[derive(Debug)]
pub struct Target {
    /// What it speaks to its server through.
    pub proxy: FaultProxy,
    /// The id of the process to pause, if it has one of its own.
    pub process: Option<u32>,
}

/// The contenders and the server that faults happen to.
#[derive(Debug)]
pub struct Weather<'a> {
    /// By their numbers.
    pub targets: &'a [Arc<Target>],
    /// The server of all.
    pub engine: &'a mut Engine,
    /// Takes note.
    pub recorder: &'a Recorder,
}

impl Weather<'_> {
    /// Makes faults happen for a time, and ends them.
    ///
    /// # Errors
    ///
    /// If the server does not come back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends no fault that has begun.
    pub async fn pass(&mut self, forecast: Forecast, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        let mut lasting = JoinSet::new();
        for Forewarning {
            after,
            who,
            at_holder,
            spell,
        } in forecast
        {
            let next = (Instant::now() + after).min(end);
            // Whatever else goes on is in tasks of its own.
            tokio::time::sleep_until(next).await;
            if next == end {
                break;
            }
            let holder = self.recorder.last_granted().filter(|_| at_holder);
            let who = holder.unwrap_or(who);
            if spell == Spell::Restart {
                self.recorder
                    .record(who, What::Fault("server restarts".into()));
                self.engine.restart().await?;
                self.recorder
                    .record(who, What::Fault("server is back".into()));
            } else {
                let target = Arc::clone(&self.targets[who]);
                lasting.spawn(befall(who, target, spell, self.recorder.clone()));
            }
            while lasting.try_join_next().is_some() {}
        }
        while lasting.join_next().await.is_some() {}
        for target in self.targets {
            target.proxy.calm();
        }
        Ok(())
    }
}

/// One fault, from its beginning to its end.
async fn befall(who: usize, target: Arc<Target>, spell: Spell, recorder: Recorder) {
    let proxy = &target.proxy;
    if !matches!(spell, Spell::Expire | Spell::Pause(_)) {
        recorder.record(who, What::Fault(format!("{spell:?}")));
    }
    match spell {
        Spell::Cut(how) => proxy.cut(how).await,
        Spell::Outage(time) => {
            proxy.refuse(true);
            proxy.cut(Cut::Close).await;
            last(time).await;
            proxy.refuse(false);
        }
        Spell::Hold(direction, time) => {
            proxy.hold(direction);
            last(time).await;
            proxy.resume(direction);
        }
        Spell::Delay {
            direction,
            by,
            lasting,
        } => {
            proxy.delay(direction, by);
            last(lasting).await;
            proxy.delay(direction, Duration::ZERO);
        }
        Spell::SwallowReply(passing) => drop(proxy.swallow_reply_where(after(passing))),
        Spell::DropRequest(passing) => drop(proxy.drop_request_where(after(passing))),
        Spell::Expire => {
            recorder.record(who, What::Expired);
            if let Err(error) = proxy.expire_session().await {
                // The server is away, or the client was quicker to take its session back.
                recorder.record(who, What::Fault(format!("not expired: {error:#}")));
            }
        }
        Spell::Pause(time) => {
            let process = target.process.and_then(|id| i32::try_from(id).ok());
            let Some(process) = process.and_then(Pid::from_raw) else {
                return;
            };
            recorder.record(who, What::Paused);
            // An error means that it has ended, and then it is paused for good.
            let _ = kill_process(process, Signal::STOP);
            last(time).await;
            let _ = kill_process(process, Signal::CONT);
            recorder.record(who, What::Resumed);
        }
        Spell::Restart => unreachable!("the server is not one contender's"),
    }
}

/// Picks the request after so many others. Pings do not count: nobody waits for their replies.
fn after(passing: usize) -> impl Fn(&SeenRequest) -> bool {
    let left = AtomicUsize::new(passing);
    move |request| {
        request.op != Op::Ping
            && left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                .is_err()
    }
}

#[expect(clippy::disallowed_methods, reason = "so long is what the fault lasts")]
async fn last(time: Duration) {
    tokio::time::sleep(time).await;
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
