//! Faults and their times. All are planned before a run starts, so that a failing run can be repeated with fewer of them.

use std::fmt;

use rand::Rng;
use rand::distr::Distribution as _;
use rand::distr::weighted::WeightedIndex;
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
    /// No server receives anything from a worker, while the worker receives from them.
    Mute { worker: usize, time: Ms },
    /// What servers send to a worker arrives later by `delay`.
    Late { worker: usize, delay: Ms, time: Ms },
    /// The process of a worker is stopped (SIGSTOP), or its machine is suspended: clocks keep running.
    Pause { worker: usize, time: Ms },
    /// The process of a worker is killed, and another one started.
    Kill { worker: usize, time: Ms },
    /// One task of a worker gets no CPU time.
    Starve { worker: usize, time: Ms },
    /// A server is killed, and started again.
    ServerCrash { server: usize, time: Ms },
    /// A server is paused (SIGSTOP): its connections stay open, new ones are accepted, and nothing is answered.
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
    /// An operator deletes the directories of the recipe, with everything in them.
    Wipe,
    /// The embedded server is killed at a disk operation: the first if `operations` is 1. What it wrote stays, synced or not.
    KillAtDisk { operations: u64, time: Ms },
    /// The machine of the embedded server loses power, now or at a disk operation. What was not synced may be lost or torn. If it dies
    /// silently, workers hear nothing until the machine is back; else their connections are reset at once.
    PowerLoss {
        operations: u64,
        is_silent: bool,
        time: Ms,
    },
    /// The next fsync of the embedded server fails: of a file, whose pages count as clean from then on, or of the directory. The server
    /// stops, and is started again; a snapshot that fails does not stop it.
    FailedSync { of_names: bool, time: Ms },
}

impl Fault {
    /// The same fault, which is over in at most `left`.
    pub(crate) fn over_in(mut self, left: Ms) -> Self {
        match &mut self {
            Self::Cut { .. } | Self::Wipe => {}
            Self::Silence { time, .. }
            | Self::CutOff { time, .. }
            | Self::Deaf { time, .. }
            | Self::Mute { time, .. }
            | Self::Late { time, .. }
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
            | Self::FailedSync { time, .. } => *time = left.min(*time),
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
            | Self::Mute { worker, .. }
            | Self::Late { worker, .. }
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

/// A kind of fault in [`Weather`].
struct FaultKind {
    /// How often it is drawn, compared with the others of a run.
    weight: u32,
    /// Whether it needs more than one server.
    needs_ensemble: bool,
    make: fn(Drawn) -> Fault,
}

/// What is drawn for a fault of any kind.
struct Drawn {
    worker: usize,
    server: usize,
    time: Ms,
    /// How long a task may get no CPU time.
    short: Ms,
    server_hears: Option<Ms>,
}

/// A kind of fault that a single server can have too.
const fn any(weight: u32, make: fn(Drawn) -> Fault) -> FaultKind {
    FaultKind {
        weight,
        needs_ensemble: false,
        make,
    }
}

/// A kind of fault that only an ensemble has.
const fn ensemble(weight: u32, make: fn(Drawn) -> Fault) -> FaultKind {
    FaultKind {
        weight,
        needs_ensemble: true,
        make,
    }
}

/// All kinds, but for those of disks.
const KINDS: [FaultKind; 17] = [
    any(2, |it| Fault::Cut {
        worker: it.worker,
        server_hears: it.server_hears,
    }),
    any(1, |it| Fault::Silence {
        worker: it.worker,
        server: it.server,
        time: it.time,
    }),
    any(1, |it| Fault::CutOff {
        worker: it.worker,
        time: it.time,
    }),
    any(1, |it| Fault::Deaf {
        worker: it.worker,
        time: it.time,
    }),
    any(1, |it| Fault::Mute {
        worker: it.worker,
        time: it.time,
    }),
    any(1, |it| Fault::Late {
        worker: it.worker,
        delay: 4 * it.short,
        time: it.time,
    }),
    any(1, |it| Fault::Pause {
        worker: it.worker,
        time: it.time,
    }),
    any(1, |it| Fault::Kill {
        worker: it.worker,
        time: it.time,
    }),
    any(1, |it| Fault::Starve {
        worker: it.worker,
        time: it.short,
    }),
    any(1, |it| Fault::ServerCrash {
        server: it.server,
        time: it.time,
    }),
    any(1, |it| Fault::ServerPause {
        server: it.server,
        time: it.time,
    }),
    any(1, |it| Fault::ShortSessions {
        server: it.server,
        time: it.time,
    }),
    ensemble(1, |it| Fault::ServerCutOff {
        server: it.server,
        time: it.time,
    }),
    ensemble(1, |it| Fault::ServerDeaf {
        server: it.server,
        time: it.time,
    }),
    ensemble(1, |it| Fault::LeaderCrash { time: it.time }),
    ensemble(1, |it| Fault::LeaderPause { time: it.time }),
    ensemble(1, |it| Fault::LeaderCutOff { time: it.time }),
];

/// The kinds of faults in a run, and their rate. A run has a few kinds often rather than all of them rarely, because combinations of few
/// kinds find most bugs (swarm testing).
#[derive(Debug, Clone)]
pub(crate) struct Weather {
    /// Of each kind; zero if the run does not have it.
    weights: [u32; KINDS.len()],
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
        let weights = KINDS.map(|kind| {
            let is_used = random.random_ratio(1, 2) && (servers > 1 || !kind.needs_ensemble);
            u32::from(is_used) * kind.weight * random.random_range(1..=4)
        });
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
        let mut faults = Vec::new();
        let mut at = 0;
        let Ok(kinds) = WeightedIndex::new(self.weights) else {
            // All weights are zero.
            return faults;
        };
        loop {
            at += random.random_range(1..=2 * self.pause);
            if at >= duration {
                return faults;
            }
            let kind = &KINDS[kinds.sample(random)];
            faults.push((at, (kind.make)(self.draw(random))));
        }
    }

    fn draw(&self, random: &mut impl Rng) -> Drawn {
        let time = self.time(random);
        Drawn {
            worker: random.random_range(0..self.workers),
            server: random.random_range(0..self.servers),
            time,
            short: random.random_range(1..=starve_max(self.session_timeout).max(1)),
            server_hears: random.random_bool(0.5).then_some(time / 4),
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

/// How long a task may get no CPU time. A hold ends T/10 before its session can expire, which has to cover this delay, and that of clocks
/// and network. After a pause the checks give a worker T/20 and a little more until it must have noticed (`Plan::hold_terms`).
fn starve_max(session_timeout: Ms) -> Ms {
    session_timeout / 20
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
        match random.random_range(0..7) {
            0 => faults.push((at, cut_off)),
            // No request arrives, while replies and events do.
            6 => {
                let time = timeout * random.random_range(11..=20) / 10;
                faults.push((at, Fault::Mute { worker, time }));
            }
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

/// Answers to pings come late, one ping after the other, until no request arrives any more: those on their way then prove nothing.
pub(crate) fn late_answers(
    random: &mut impl Rng,
    timeout: Ms,
    workers: usize,
    duration: Ms,
) -> Vec<(Ms, Fault)> {
    let mut faults = Vec::new();
    let mut at = timeout;
    while at + 4 * timeout < duration {
        for worker in 0..workers - 1 {
            let delay = timeout * random.random_range(17..24) / 100;
            let time = 3 * timeout;
            faults.push((
                at,
                Fault::Late {
                    worker,
                    delay,
                    time,
                },
            ));
            let time = 2 * timeout;
            let later = at + timeout * random.random_range(50..150) / 100;
            faults.push((later, Fault::Mute { worker, time }));
        }
        at += 5 * timeout;
    }
    faults.sort_by_key(|(at, _)| *at);
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
            0 => Fault::FailedSync {
                of_names: random.random_bool(0.5),
                time,
            },
            1 | 2 => Fault::KillAtDisk { operations, time },
            _ => Fault::PowerLoss {
                operations,
                is_silent: random.random_bool(0.5),
                time,
            },
        };
        faults.push((at, fault));
        at += random.random_range(1..=2 * pause);
    }
    faults
}
