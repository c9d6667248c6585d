//! One run: the simulated world of a plan, and the verdict.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bellwether_client::environment;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use crate::conductor::Conductor;
use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::recorder::Recorder;
use crate::servers::{AnyServers, Embedded, Ensemble};
use crate::stage::Stage;
use crate::switch;
use crate::world::{Core, Executor, Net, OBSERVER, Parts, Trace};

/// How a run ended.
#[derive(Debug, Clone)]
pub struct Verdict {
    /// The violation, if there was one.
    pub violation: Option<String>,
    /// Checksum over every event of the run.
    pub sum: u64,
    /// Number of events.
    pub events: u64,
    /// Virtual time that passed.
    pub simulated: Duration,
    /// Number of rounds that the workers completed.
    pub rounds: u64,
    /// One line per event, if the plan asked for them.
    pub trace: Vec<String>,
}

pub(crate) type StageExecutor = Executor<Rc<RefCell<AnyServers>>>;

thread_local! {
    static EXECUTOR: RefCell<Option<StageExecutor>> = const { RefCell::new(None) };
}

/// Runs a plan.
///
/// # Panics
///
/// If no runtime can be created.
pub fn run<R: Recipe>(plan: &Plan) -> Verdict {
    let runtime = runtime();
    let mut seeds = StdRng::seed_from_u64(plan.seed);
    let guard = runtime.enter();
    let latency = 0..plan.latency_max;
    let net = Net::new(StdRng::seed_from_u64(seeds.random()), latency);
    let core = Core::new(seeds.random(), net, Trace::new(plan.with_trace));
    let servers = match &plan.embedded {
        None => AnyServers::ensemble(Ensemble::new(plan.servers.clone(), seeds.random())),
        Some(settings) => {
            let (limits, settings) = (&plan.servers, settings.clone());
            let server = Embedded::new(core.clone(), limits, settings, seeds.random());
            AnyServers::embedded(server)
        }
    };
    let servers = Rc::new(RefCell::new(servers));
    let stage = Stage {
        core: core.clone(),
        servers: servers.clone(),
    };
    stage.enter();
    let entered = environment::enter(core.clone());
    switch::make(plan.mistake);
    let executor = Executor::new(core.clone(), servers, seeds.random());
    let recorder = Recorder::new(core.shared.clone(), plan.workers);
    let random = StdRng::seed_from_u64(seeds.random());
    let conductor = Conductor::new(plan.clone(), R::new(plan), recorder.clone(), random);
    drop(guard);
    let violation = play(runtime, executor, conductor.run()).flatten().err();
    drop(entered);
    switch::make(None);
    let rounds = recorder.rounds().iter().map(|(_, count)| count).sum();
    let simulated = Duration::from_millis(core.now());
    core.shared.with(|Parts { trace, .. }| Verdict {
        violation,
        sum: trace.sum(),
        events: trace.count(),
        simulated,
        rounds,
        trace: trace.take_lines(),
    })
}

/// A runtime whose clock stands still while something can run.
pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing")
}

/// Runs `main` and everything that it starts on the present stage, which it leaves.
///
/// # Errors
///
/// Says why `main` did not return.
pub(crate) fn play<T: Clone + Send + Sync + 'static>(
    runtime: Runtime,
    executor: StageExecutor,
    main: impl Future<Output = T> + Send + 'static,
) -> Result<T, String> {
    EXECUTOR.with(|present| present.borrow_mut().replace(executor));
    let (over, mut is_over) = watch::channel(None);
    let gives_up = over.clone();
    let guard = runtime.enter();
    Stage::with(|stage| {
        stage.core.spawn(OBSERVER, async move {
            let value = main.await;
            over.send_replace(Some(Ok(value)));
        });
    });
    drop(guard);
    // A task like the others: if it were what the runtime blocks on, the runtime would look at its timers after every step.
    let ending = is_over.clone();
    runtime.spawn(std::future::poll_fn(move |cx| {
        let polled = EXECUTOR.with(|present| match &mut *present.borrow_mut() {
            Some(executor) => executor.poll(cx, || ending.borrow().is_some()),
            None => Poll::Ready(()),
        });
        if polled.is_ready() && ending.borrow().is_none() {
            let panicked = Stage::with(|stage| stage.core.panicked());
            let wrong = panicked.unwrap_or_else(|| SPINS.to_owned());
            gives_up.send_replace(Some(Err(wrong)));
        }
        polled
    }));
    // An error means that the run has ended.
    let _ = runtime.block_on(is_over.wait_for(Option::is_some));
    // Tasks must be dropped while their world exists.
    drop(runtime);
    EXECUTOR.with(|present| present.borrow_mut().take());
    Stage::leave();
    let over = is_over.borrow().clone();
    over.unwrap_or_else(|| Err(SPINS.to_owned()))
}

/// The violation of a run whose executor gave up.
const SPINS: &str = "a task runs on and on, and no time passes";
