//! Faults and their times. All are planned before a run starts, so that a failing run can be repeated with fewer of them.

use std::fmt;

use rand::Rng;
use rand::seq::IndexedRandom as _;

use crate::world::Ms;

/// A fault. Workers and servers are numbered from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "said of each")]
pub enum Fault {
    /// The connections of a worker break, at any byte. The servers learn it later, or not at all.
    Cut {
        worker: usize,
        server_hears: Option<Ms>,
    },
    /// Nothing passes between a worker and a server, and neither notices.
    Silence {
        worker: usize,
        server: usize,
        time: Ms,
    },
    /// Nothing passes between a worker and any server.
    CutOff { worker: usize, time: Ms },
    /// A worker receives nothing from any server, while servers receive from it.
    Deaf { worker: usize, time: Ms },
    /// The process of a worker is stopped (SIGSTOP), or its machine is suspended: clocks keep running.
    Pause { worker: usize, time: Ms },
    /// The process of a worker is killed, and another one started.
    Kill { worker: usize, time: Ms },
    /// One task of a worker gets no CPU time.
    Starve { worker: usize, time: Ms },
    /// A server is killed, and started again.
    ServerCrash { server: usize, time: Ms },
    /// A server is paused.
    ServerPause { server: usize, time: Ms },
    /// A server is cut off from the others, but not from its clients.
    ServerCutOff { server: usize, time: Ms },
    /// A server receives nothing from the leader, which still receives from the server.
    ServerDeaf { server: usize, time: Ms },
    /// The present leader is killed.
    LeaderCrash { time: Ms },
    /// The present leader is paused.
    LeaderPause { time: Ms },
    /// The present leader is cut off from the others.
    LeaderCutOff { time: Ms },
    /// A server is started again, and all servers grant shorter sessions from then on.
    ShortSessions { server: usize, time: Ms },
    /// The embedded server is killed at a disk operation: the first if `operations` is 1. What it wrote stays, synced or not.
    KillAtDisk { operations: u64, time: Ms },
    /// The machine of the embedded server loses power, now or at a disk operation. What was not synced may be lost or torn.
    PowerLoss { operations: u64, time: Ms },
    /// The next fsync of the embedded server fails, and its pages count as clean from then on. The server stops, and is started again.
    FailedSync { time: Ms },
}

impl Fault {
    /// The same fault, which is over in at most `left`.
    pub(crate) fn over_in(mut self, left: Ms) -> Self {
        match &mut self {
            Self::Cut { .. } => {}
            Self::Silence { time, .. }
            | Self::CutOff { time, .. }
            | Self::Deaf { time, .. }
            | Self::Pause { time, .. }
            | Self::Kill { time, .. }
            | Self::Starve { time, .. }
            | Self::ServerCrash { time, .. }
            | Self::ServerPause { time, .. }
            | Self::ServerCutOff { time, .. }
            | Self::ServerDeaf { time, .. }
            | Self::LeaderCrash { time }
            | Self::LeaderPause { time }
            | Self::LeaderCutOff { time }
            | Self::ShortSessions { time, .. }
            | Self::KillAtDisk { time, .. }
            | Self::PowerLoss { time, .. }
            | Self::FailedSync { time } => *time = left.min(*time),
        }
        self
    }

    /// The worker that it affects.
    pub fn worker(&self) -> Option<usize> {
        match *self {
            Self::Cut { worker, .. }
            | Self::Silence { worker, .. }
            | Self::CutOff { worker, .. }
            | Self::Deaf { worker, .. }
            | Self::Pause { worker, .. }
            | Self::Kill { worker, .. }
            | Self::Starve { worker, .. } => Some(worker),
            _ => None,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// Number of kinds. A run has a few kinds often rather than all of them rarely, because combinations of few kinds find most bugs (swarm
/// testing).
const KINDS: usize = 14;

/// The kinds of faults in a run, and their rate.
#[derive(Debug, Clone)]
pub(crate) struct Weather {
    weights: [u32; KINDS],
    /// The mean time between two faults.
    pause: Ms,
    session_timeout: Ms,
    workers: usize,
    servers: usize,
}

impl Weather {
    pub(crate) fn some(
        random: &mut impl Rng,
        session_timeout: Ms,
        workers: usize,
        servers: usize,
    ) -> Self {
        let mut weights = [0; KINDS];
        for (kind, weight) in weights.iter_mut().enumerate() {
            let is_used = random.random_ratio(1, 2) && (servers > 1 || !(8..=12).contains(&kind));
            *weight = u32::from(is_used) * random.random_range(1..=4);
        }
        // Between ten faults per session timeout and one in three timeouts.
        let pause = session_timeout / 10 * random.random_range(1..=30);
        Self {
            weights,
            pause,
            session_timeout,
            workers,
            servers,
        }
    }

    /// The faults within `duration`, in order.
    pub(crate) fn forecast(&self, random: &mut impl Rng, duration: Ms) -> Vec<(Ms, Fault)> {
        let total: u32 = self.weights.iter().sum();
        let mut faults = Vec::new();
        let mut at = 0;
        if total == 0 {
            return faults;
        }
        loop {
            at += random.random_range(1..=2 * self.pause);
            if at >= duration {
                return faults;
            }
            let mut left = random.random_range(0..total);
            let kind = self
                .weights
                .iter()
                .position(|weight| match left.checked_sub(*weight) {
                    Some(rest) => {
                        left = rest;
                        false
                    }
                    None => true,
                });
            faults.push((at, self.fault(random, kind.unwrap_or(0))));
        }
    }

    fn fault(&self, random: &mut impl Rng, kind: usize) -> Fault {
        let worker = random.random_range(0..self.workers);
        let server = random.random_range(0..self.servers);
        let time = self.time(random);
        match kind {
            0 | 1 => Fault::Cut {
                worker,
                server_hears: random.random_bool(0.5).then_some(time / 4),
            },
            2 => Fault::Silence {
                worker,
                server,
                time,
            },
            3 => Fault::CutOff { worker, time },
            4 => Fault::Pause { worker, time },
            5 => Fault::Kill { worker, time },
            6 => Fault::Starve {
                worker,
                time: self.session_timeout / 40,
            },
            7 => Fault::ServerCrash { server, time },
            8 => Fault::ServerCutOff { server, time },
            9 => Fault::LeaderCrash { time },
            10 => Fault::LeaderPause { time },
            11 => Fault::LeaderCutOff { time },
            12 => Fault::ServerDeaf { server, time },
            _ if random.random_ratio(1, 2) => Fault::ServerPause { server, time },
            _ => Fault::ShortSessions { server, time },
        }
    }

    /// Duration of a fault: often near the times that decide something.
    fn time(&self, random: &mut impl Rng) -> Ms {
        let t = self.session_timeout;
        let parts = [
            t / 100,
            t / 20,
            t / 6,
            t / 4,
            t / 2,
            t * 3 / 4,
            t * 9 / 10,
            t,
            t * 5 / 4,
            2 * t,
        ];
        let part = parts.choose(random).copied().unwrap_or(t);
        part * random.random_range(80..=120) / 100 + 1
    }
}

/// Scenarios in which a session expires while its worker still believes in it, one after the other.
pub(crate) fn stories(
    random: &mut impl Rng,
    timeout: Ms,
    workers: usize,
    servers: usize,
    duration: Ms,
) -> Vec<(Ms, Fault)> {
    let mut faults = Vec::new();
    let mut at = timeout;
    while at + 4 * timeout < duration {
        let worker = random.random_range(0..workers);
        let server = random.random_range(0..servers);
        let cut_off = Fault::CutOff {
            worker,
            time: timeout * random.random_range(11..=20) / 10,
        };
        match random.random_range(0..6) {
            0 => faults.push((at, cut_off)),
            // Replies arrive late, and then nothing more: two of the workers, so that one of them is often the holder.
            5 => {
                let late = timeout * random.random_range(10..20) / 100;
                for worker in [worker, (worker + 1) % workers] {
                    faults.push((at, Fault::Deaf { worker, time: late }));
                    let time = timeout * 3 / 2;
                    faults.push((at + late + 4, Fault::CutOff { worker, time }));
                }
            }
            // A reply that arrives late, and then nothing more.
            1 => {
                let late = timeout * random.random_range(20..45) / 100;
                let silences = (0..servers).map(|server| Fault::Silence {
                    worker,
                    server,
                    time: late,
                });
                faults.extend(silences.map(|silence| (at, silence)));
                faults.push((at + late + 10, cut_off));
            }
            // Reads are answered, and writes are not.
            2 if servers > 1 => faults.push((
                at,
                Fault::ServerCutOff {
                    server,
                    time: timeout * random.random_range(11..=20) / 10,
                },
            )),
            // Sessions become shorter, and then one expires.
            3 => {
                let time = timeout / 20;
                faults.push((at, Fault::ShortSessions { server, time }));
                faults.push((at + timeout, cut_off));
            }
            _ => faults.push((
                at,
                Fault::Pause {
                    worker,
                    time: timeout * random.random_range(5..=12) / 10,
                },
            )),
        }
        at += timeout * random.random_range(30..=50) / 10;
    }
    faults
}

/// Faults of the disk under the embedded server, in order.
pub(crate) fn disk_faults(random: &mut impl Rng, timeout: Ms, duration: Ms) -> Vec<(Ms, Fault)> {
    let mut faults = Vec::new();
    // Between three faults per session timeout and one in five timeouts; a quarter of the runs have none.
    let pause = timeout / 3 * random.random_range(1..=15);
    let mut at = match random.random_ratio(1, 4) {
        true => duration,
        false => random.random_range(1..=2 * pause),
    };
    while at < duration {
        let time = timeout * random.random_range(1..=60) / 100 + 1;
        // Zero is now, between two messages. A log file is created in five operations, and a restart takes some more.
        let operations = random.random_range(0..=12);
        let fault = match random.random_range(0..5) {
            0 => Fault::FailedSync { time },
            1 | 2 => Fault::KillAtDisk { operations, time },
            _ => Fault::PowerLoss { operations, time },
        };
        faults.push((at, fault));
        at += random.random_range(1..=2 * pause);
    }
    faults
}
