//! All parameters of a run, drawn from its seed.

use std::time::Duration;

use bellwether_testkit::history::Terms;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use crate::faults::{Fault, Weather, disk_faults, late_answers, stories};
use crate::servers::{EmbeddedSettings, EnsembleSettings};
use crate::world::Ms;

/// Maximum clock error, in parts per million.
const DRIFT_PPM_MAX: i64 = 5_000;

/// An empty directory exists for at least this many round trips.
const ROUND_TRIPS_OF_DIRECTORY: u64 = 20;

/// The parameters of a run. The same plan makes the same run, event for event.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The source of every choice that the plan does not fix.
    pub seed: u64,
    /// Number of processes that use the recipe.
    pub workers: usize,
    /// How long faults happen.
    pub duration: Ms,
    /// The session timeout that workers ask for.
    pub session_timeout: Ms,
    /// The servers.
    pub servers: EnsembleSettings,
    /// Runs the embedded server instead of the model, with the tick and the limits of `servers`.
    pub embedded: Option<EmbeddedSettings>,
    /// Maximum latency between a worker and a server.
    pub latency_max: Ms,
    /// Maximum clock error of a worker, in parts per million.
    pub drift_ppm: i64,
    /// Maximum time of work under a hold, and of a pause between two rounds.
    pub work_max: Ms,
    /// Maximum time that a worker rests after each round.
    pub rest_max: Ms,
    /// Faults and their times.
    pub faults: Vec<(Ms, Fault)>,
    /// Maximum number of requests that a worker may have in flight. If there is one, each worker exceeds it now and then.
    pub requests_max: Option<usize>,
    /// The patch of a deliberate mistake.
    pub mistake: Option<&'static str>,
    /// Whether to keep a line per event.
    pub with_trace: bool,
}

impl Plan {
    /// The plan of a seed. One in three is about session expiry.
    pub fn of(seed: u64) -> Self {
        match seed % 3 {
            2 => Self::edges(seed),
            _ => Self::swarm(seed),
        }
    }

    /// A plan with some kinds of faults, and everything else at random.
    fn swarm(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let workers = random.random_range(2..=6);
        let ticks = random.random_range(2..=10);
        let tick = *[200, 500, 1_000, 2_000]
            .choose(&mut random)
            .unwrap_or(&1_000);
        let session_timeout: Ms = ticks * tick;
        let members = *[1, 3, 3, 3, 5].choose(&mut random).unwrap_or(&3);
        let sync_limit = random.random_range(2..=10);
        let is_quick = random.random_bool(0.5);
        let link_max = if is_quick {
            3
        } else {
            (session_timeout / 60).max(3)
        };
        let latency_max = match random.random_bool(0.5) {
            true => 3,
            false => (session_timeout / 60).max(3),
        };
        let lag_max = match random.random_range(0..3) {
            0 => 0,
            1 => session_timeout / 10,
            _ => sync_limit * tick,
        };
        let lag_changes = *[5, 5, 50].choose(&mut random).unwrap_or(&5);
        let pace_max = *[0, 0, session_timeout / 100, session_timeout / 20]
            .choose(&mut random)
            .unwrap_or(&0);
        let reap_every = *[0, 5_000, 60_000].choose(&mut random).unwrap_or(&5_000);
        let servers = EnsembleSettings {
            members,
            tick,
            sync_limit,
            link_delay: 0..link_max,
            lag_max,
            lag_changes,
            stalls: u32::from(lag_max > 0),
            stall_max: tick / 2,
            pace_max,
            reap_every,
            election: 50..session_timeout,
            expires_early: random.random_bool(0.7),
            forgives: random.random_bool(0.7),
            timeout_max: 20 * tick,
            to_laggard: *[0, 0, 25, 100].choose(&mut random).unwrap_or(&0),
        };
        let duration = session_timeout * random.random_range(5..=20);
        let weather = Weather::some(&mut random, session_timeout, workers, members);
        let faults = weather.forecast(&mut random, duration);
        Self {
            seed,
            workers,
            duration,
            session_timeout,
            servers,
            embedded: None,
            latency_max,
            drift_ppm: *[0, 100, DRIFT_PPM_MAX].choose(&mut random).unwrap_or(&0),
            work_max: *[
                20,
                session_timeout / 10,
                session_timeout,
                3 * session_timeout,
            ]
            .choose(&mut random)
            .unwrap_or(&20),
            rest_max: 0,
            faults,
            requests_max: None,
            mistake: None,
            with_trace: false,
        }
        .with_time_for_directories()
    }

    /// The same plan with directories that exist for long enough to be used.
    pub(crate) fn with_time_for_directories(mut self) -> Self {
        let servers = &mut self.servers;
        let sync_max = self.embedded.as_ref().map_or(0, |disk| disk.sync_max);
        let round_trip = self.latency_max + servers.link_delay.end + servers.pace_max + sync_max;
        let stalled = u64::from(servers.stalls > 1) * servers.stall_max;
        let least = ROUND_TRIPS_OF_DIRECTORY * round_trip + 2 * (servers.lag_max + stalled);
        servers.reap_every = servers.reap_every.max(least);
        self
    }

    /// A plan in which sessions expire at the first moment allowed, while workers keep their holds as long as they can: few faults, longer
    /// than a session timeout, clocks with the maximum error, and a fast network.
    fn edges(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0xed9e);
        let mut plan = Self::swarm(seed);
        let timeout = plan.session_timeout;
        let members = *[1, 3].choose(&mut random).unwrap_or(&3);
        plan.workers = 3;
        plan.work_max = 3 * timeout;
        plan.latency_max = 3;
        plan.drift_ppm = DRIFT_PPM_MAX;
        plan.servers = EnsembleSettings {
            members,
            tick: timeout / 4,
            stall_max: timeout / 8,
            sync_limit: 10,
            link_delay: 0..3,
            expires_early: true,
            timeout_max: 5 * timeout,
            ..plan.servers
        };
        plan.duration = 24 * timeout;
        plan.faults = stories(&mut random, timeout, plan.workers, members, plan.duration);
        plan
    }

    /// A plan in which connections break all the time, while threads of the servers stall: writes arrive behind their retries. Half of these
    /// plans have other faults too.
    pub fn torn(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x7042);
        let mut plan = Self::swarm(seed);
        let timeout = 4_000;
        plan.session_timeout = timeout;
        plan.workers = 3;
        plan.latency_max = 3;
        plan.servers = EnsembleSettings {
            // A write is late only if the worker has returned to the server that has it.
            members: *[1, 1, 3].choose(&mut random).unwrap_or(&1),
            tick: timeout / 2,
            timeout_max: 5 * timeout,
            election: 50..timeout,
            link_delay: 0..3,
            lag_max: timeout / 10,
            stalls: 10,
            stall_max: *[timeout / 20, timeout / 4, timeout]
                .choose(&mut random)
                .unwrap_or(&timeout),
            ..plan.servers
        };
        plan.work_max = 20;
        plan.duration = 10 * timeout;
        plan.faults = (0..plan.duration)
            .step_by(usize::try_from(timeout / 20).unwrap_or(1).max(1))
            .map(|at| {
                let cut = Fault::Cut {
                    worker: random.random_range(0..plan.workers),
                    server_hears: Some(1),
                };
                (at, cut)
            })
            .collect();
        if random.random_bool(0.5) {
            let more = plan.weather(&mut random);
            plan.faults.extend(more);
            plan.faults.sort_by_key(|(at, _)| *at);
        }
        plan.with_time_for_directories()
    }

    /// The plan of a seed with an operator who deletes directories now and then.
    pub fn wiped(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x317e);
        let mut plan = Self::swarm(seed);
        let pause = plan.session_timeout;
        let mut at = random.random_range(0..pause);
        while at < plan.duration {
            plan.faults.push((at, Fault::Wipe));
            at += random.random_range(pause / 4..2 * pause);
        }
        if random.random_bool(0.5) {
            plan.faults.retain(|(_, fault)| *fault == Fault::Wipe);
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// Whether an operator deletes directories.
    pub(crate) fn has_operator(&self) -> bool {
        self.faults.iter().any(|(_, fault)| *fault == Fault::Wipe)
    }

    /// A plan about session expiry, in which tasks get no CPU time, now this one, now that.
    pub fn starved(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x57a2);
        let mut plan = Self::edges(seed);
        let short = (plan.session_timeout / 20).max(1);
        let mut at = 0;
        while at < plan.duration {
            let starve = Fault::Starve {
                worker: random.random_range(0..plan.workers),
                time: random.random_range(1..=short),
            };
            plan.faults.push((at, starve));
            at += random.random_range(1..=short);
        }
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// A plan about session expiry on a single server, whose answers come late.
    pub fn late(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0x1a7e);
        let mut plan = Self::edges(seed);
        plan.servers.members = 1;
        plan.faults = late_answers(
            &mut random,
            plan.session_timeout,
            plan.workers,
            plan.duration,
        );
        plan
    }

    /// A plan with more workers than a double barrier has places, whose servers lag as far as they may.
    pub fn crowded(seed: u64) -> Self {
        let mut plan = Self::swarm(seed);
        plan.workers = 6;
        // Clients leave a server that lags by more than T/4 while they wait.
        plan.servers.lag_max = match seed % 2 {
            0 => plan.session_timeout / 5,
            _ => plan.servers.sync_limit * plan.servers.tick,
        };
        plan.servers.lag_changes = 50;
        plan.work_max = 20;
        plan.duration *= 3;
        plan.with_time_for_directories()
    }

    /// A plan in which workers have more requests in flight than they may.
    pub fn overloaded(seed: u64) -> Self {
        Self {
            requests_max: Some(30),
            ..Self::swarm(seed)
        }
    }

    /// A plan of the embedded server whose disk fails all the time, also in the middle of a sync.
    pub fn failing_disk(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0xfa11);
        let mut plan = Self::embedded(seed);
        let timeout = plan.session_timeout;
        let mut at = 0;
        while at < plan.duration {
            at += random.random_range(timeout / 2..=timeout);
            let time = timeout / 20 + 1;
            let failed = Fault::FailedSync {
                of_names: false,
                time,
            };
            let lost = Fault::PowerLoss {
                operations: 0,
                is_silent: false,
                time,
            };
            // What the server takes for synced is lost with the power.
            let later = at + random.random_range(timeout / 4..=timeout);
            plan.faults.extend([(at, failed), (later, lost)]);
        }
        plan.faults.retain(|(at, _)| *at < plan.duration);
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// The plan of a seed on the embedded server: a single server, whose disk and machine fail too.
    pub fn embedded(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0xd15c);
        let mut plan = Self::of(seed);
        let (timeout, workers, duration) = (plan.session_timeout, plan.workers, plan.duration);
        plan.servers.members = 1;
        // A server without followers is quick: without a pause, workers would complete a hundred thousand rounds.
        plan.work_max = plan.work_max.max(timeout / 20);
        plan.embedded = Some(EmbeddedSettings::some(&mut random, timeout));
        plan.faults = match seed % 3 {
            2 => stories(&mut random, timeout, workers, 1, duration),
            _ => Weather::some(&mut random, timeout, workers, 1).forecast(&mut random, duration),
        };
        let of_disk = disk_faults(&mut random, timeout, duration);
        plan.faults.extend(of_disk);
        plan.faults.sort_by_key(|(at, _)| *at);
        plan.with_time_for_directories()
    }

    /// The plan of a seed with realistic timeouts, and ten workers that rest most of the time: for long runs.
    pub fn long(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let mut plan = Self::swarm(seed).stretched(&mut random);
        plan.faults = plan.weather(&mut random);
        plan
    }

    /// The same on the embedded server.
    pub fn long_embedded(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed ^ 0xd15c);
        let mut plan = Self::embedded(seed).stretched(&mut random);
        plan.embedded = Some(EmbeddedSettings::some(&mut random, plan.session_timeout));
        plan.faults = plan.weather(&mut random);
        let of_disk = disk_faults(&mut random, plan.session_timeout, plan.duration);
        plan.faults.extend(of_disk);
        plan.faults.sort_by_key(|(at, _)| *at);
        plan
    }

    /// The parameters of a long run, without its faults.
    fn stretched(mut self, random: &mut StdRng) -> Self {
        let session_timeout = 30_000;
        self.servers.tick = 2_000;
        self.servers.stall_max = 1_000;
        self.servers.sync_limit = 5;
        self.servers.timeout_max = 40_000;
        self.servers.link_delay = 0..5;
        self.servers.lag_max = self.servers.lag_max.min(10_000);
        self.servers.election = 200..session_timeout;
        self.servers.reap_every = 60_000;
        self.workers = 10;
        self.session_timeout = session_timeout;
        self.latency_max = 10;
        self.work_max = session_timeout;
        // Within the time limit for a round after the last fault.
        self.rest_max = session_timeout * random.random_range(2..=10);
        self.duration = 3_600_000;
        self
    }

    /// Faults for the whole run.
    fn weather(&self, random: &mut StdRng) -> Vec<(Ms, Fault)> {
        let (workers, members) = (self.workers, self.servers.members);
        let weather = Weather::some(random, self.session_timeout, workers, members);
        weather.forecast(random, self.duration)
    }

    /// Parameters for the checks of holds.
    pub(crate) fn hold_terms(&self, capacity: u32) -> Terms {
        Terms {
            capacity,
            session_timeout: Duration::from_millis(self.session_timeout),
            grace: Duration::from_millis(self.session_timeout / 20 + 10),
        }
    }
}
