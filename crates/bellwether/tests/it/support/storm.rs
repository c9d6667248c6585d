//! Histories of all recipes: clients behind separate fault proxies, and random faults from one seed.
//!
//! `BELLWETHER_HISTORIES_SECONDS` makes each test last that long, round after round, each with the next seed;
//! `BELLWETHER_HISTORIES_SEED` is the first seed.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bellwether_testkit::{Climate, Engine, FaultProxy, Forecast, Recorder, Scope, Target, Weather};
use rand::SeedableRng as _;
use rand::rngs::StdRng;

/// Session timeout of the clients under faults.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(1);

/// Duration of the faults in one round.
const ROUND: Duration = Duration::from_secs(5);

/// The longest time between two faults.
const CALM_MAX: Duration = Duration::from_millis(200);

/// Generates two tests from each round, which gets a [`Storm`]: on the embedded server, and on Apache's. A third test plays all of them on an
/// ensemble, where sessions move between members.
macro_rules! under_faults {
    ($($name:ident: $round:expr,)*) => {
        mod embedded {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let mut engine = bellwether_testkit::Engine::embedded().await.unwrap();
                $crate::support::storm::rounds(&mut engine, $round).await;
            })*
        }

        mod apache {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                let mut engine = bellwether_testkit::Engine::apache().await.unwrap();
                $crate::support::storm::rounds(&mut engine, $round).await;
            })*
        }

        mod ensemble {
            use super::*;

            #[tokio::test(flavor = "multi_thread")]
            async fn all_are_right_under_faults() {
                let mut engine = bellwether_testkit::Engine::ensemble().await.unwrap();
                $(
                    eprintln!(stringify!($name));
                    // On the heap: the states of all of them do not fit on a stack.
                    Box::pin($crate::support::storm::rounds(&mut engine, $round)).await;
                )*
            }
        }
    };
}

/// Plays rounds of one seed each until the time is over, at least one. Prints the seeds.
pub(crate) async fn rounds(engine: &mut Engine, mut round: impl AsyncFnMut(Storm<'_>)) {
    let end = Instant::now() + Duration::from_secs(setting("SECONDS").unwrap_or(0));
    let mut seed = setting("SEED").unwrap_or_else(seed_by_the_clock);
    loop {
        eprintln!("seed {seed}");
        round(Storm::new(engine, seed)).await;
        if Instant::now() >= end {
            return;
        }
        seed += 1;
    }
}

/// A seed for a test without a given one. Prints it.
pub(crate) fn seed() -> u64 {
    let seed = setting("SEED").unwrap_or_else(seed_by_the_clock);
    eprintln!("seed {seed}");
    seed
}

fn seed_by_the_clock() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    u64::from(now.unwrap().subsec_nanos())
}

fn setting(name: &str) -> Option<u64> {
    let name = format!("BELLWETHER_HISTORIES_{name}");
    let value = std::env::var(&name).ok()?;
    Some(
        value
            .parse()
            .unwrap_or_else(|_| panic!("{name}={value} is not a number")),
    )
}

/// One round: a server, the clients under faults, and their recorded history.
pub(crate) struct Storm<'a> {
    pub(crate) seed: u64,
    pub(crate) engine: &'a mut Engine,
    pub(crate) recorder: Recorder,
    targets: Vec<Arc<Target>>,
}

impl<'a> Storm<'a> {
    pub(crate) fn new(engine: &'a mut Engine, seed: u64) -> Self {
        Self {
            seed,
            engine,
            recorder: Recorder::new(seed),
            targets: Vec::new(),
        }
    }

    /// A proxy for the next client. In front of an ensemble, each client begins at another member, and moves whenever it reconnects.
    pub(crate) async fn proxy(&self) -> FaultProxy {
        let mut servers = self.engine.addresses();
        let first = self.targets.len() % servers.len();
        servers.rotate_left(first);
        FaultProxy::in_turn(&servers).await.unwrap()
    }

    /// Exposes the client behind a proxy to faults, and its process if it has its own. Clients are numbered in this order.
    pub(crate) fn expose(&mut self, proxy: FaultProxy, process: Option<u32>) {
        self.targets.push(Arc::new(Target { proxy, process }));
    }

    /// Like [`proxy`](Self::proxy) and [`expose`](Self::expose), for a client in this process. Returns its connect string.
    pub(crate) async fn exposed(&mut self) -> String {
        let proxy = self.proxy().await;
        let address = proxy.connect_string();
        self.expose(proxy, None);
        address
    }

    /// Random numbers of a client: the same for the same seed.
    pub(crate) fn random(&self, who: usize) -> StdRng {
        StdRng::seed_from_u64(self.seed.wrapping_add(who as u64))
    }

    /// Injects faults, and ends them.
    pub(crate) async fn pass(&mut self) {
        let climate = Climate {
            contenders: self.targets.len(),
            session_timeout: SESSION_TIMEOUT,
            calm_max: CALM_MAX,
            scope: Scope {
                links: true,
                pauses: true,
                kills: false,
                restarts: true,
            },
        };
        let mut weather = Weather {
            targets: &self.targets,
            engine: self.engine,
            recorder: &self.recorder,
        };
        let forecast = Forecast::new(self.seed, climate);
        weather.pass(forecast, ROUND).await.unwrap();
    }
}
