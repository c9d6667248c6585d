//! One run: workers, servers and faults of a plan, and the verdict.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use bellwether_client::seam;
use bellwether_testkit::History;
use bellwether_testkit::history::{Moment, Terms, What};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;

use crate::faults::Fault;
use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::servers::{AnyServers, Census, Embedded, Ensemble};
use crate::worker::{Gone, Recorder, Worker, options};
use crate::world::{Clock, Core, Executor, Ms, Net, OBSERVER, Parts, Process, Trace, in_history};

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

/// The present run, for its observer.
#[derive(Clone)]
pub(crate) struct Stage {
    core: Rc<Core>,
    servers: Rc<RefCell<AnyServers>>,
}

thread_local! {
    static STAGE: RefCell<Option<Stage>> = const { RefCell::new(None) };
    static EXECUTOR: RefCell<Option<Executor<Rc<RefCell<AnyServers>>>>> = const { RefCell::new(None) };
}

impl Stage {
    fn with<T>(act: impl FnOnce(&Self) -> T) -> T {
        let stage = STAGE.with(|stage| stage.borrow().clone());
        act(&stage.expect("a simulation runs on this thread"))
    }

    /// The present moment of the run.
    pub(crate) fn now() -> Ms {
        Self::with(|stage| stage.core.now())
    }

    /// The present moment, as used in histories.
    pub(crate) fn moment() -> Moment {
        in_history(Self::now())
    }

    fn census() -> Census {
        Self::with(|stage| stage.servers.borrow().census())
    }
}

impl fmt::Debug for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stage")
    }
}

/// Time limit for every worker to complete a round after the faults have ended: in session timeouts, plus a while in which the servers
/// delete empty directories.
const RECOVERY_TIMEOUTS: u64 = 40;
const RECOVERY_MORE: Ms = 60_000;

/// Parameters for the checks of holds.
pub(crate) fn hold_terms(plan: &Plan, capacity: u32) -> Terms {
    Terms {
        capacity,
        session_timeout: Duration::from_millis(plan.session_timeout),
        grace: Duration::from_millis(plan.session_timeout / 20 + 10),
    }
}

/// Runs a plan.
///
/// # Panics
///
/// If no runtime can be created.
pub fn run<R: Recipe>(plan: &Plan) -> Verdict {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime without sockets needs nothing");
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
    STAGE.with(|present| present.borrow_mut().replace(stage));
    let entered = seam::enter(core.clone());
    seam::make_mistake(plan.client_mistake);
    let executor = Executor::new(core.clone(), servers, seeds.random());
    EXECUTOR.with(|present| present.borrow_mut().replace(executor));
    let recorder = Recorder::new(core.shared.clone(), plan.workers);
    let conductor = Conductor {
        plan: plan.clone(),
        recipe: R::new(plan),
        recorder: recorder.clone(),
        random: StdRng::seed_from_u64(seeds.random()),
        workers: Vec::new(),
        stop: watch::Sender::new(false),
    };
    let (over, mut is_over) = watch::channel(None);
    let gives_up = over.clone();
    core.spawn(OBSERVER, async move {
        let violation = conductor.run().await.err();
        over.send_replace(Some(violation));
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
            gives_up.send_replace(Some(Some(SPINS.to_owned())));
        }
        polled
    }));
    // An error means that the run has ended.
    let _ = runtime.block_on(is_over.wait_for(Option::is_some));
    let simulated = Duration::from_millis(core.now());
    // Tasks must be dropped while their world exists.
    drop(runtime);
    EXECUTOR.with(|present| present.borrow_mut().take());
    STAGE.with(|present| present.borrow_mut().take());
    drop(entered);
    let violation = is_over.borrow().clone().flatten();
    let rounds = recorder.rounds().iter().map(|(_, count)| count).sum();
    core.shared.with(|Parts { trace, .. }| Verdict {
        violation,
        sum: trace.sum(),
        events: trace.count(),
        simulated,
        rounds,
        trace: trace.take_lines(),
    })
}

/// The violation of a run whose executor gave up.
const SPINS: &str = "a task runs on and on, and no time passes";

/// Directs a run: starts workers, injects faults, and waits for recovery.
struct Conductor<R> {
    plan: Plan,
    recipe: R,
    recorder: Recorder,
    random: StdRng,
    workers: Vec<Slot>,
    stop: watch::Sender<bool>,
}

/// The current process of a worker.
struct Slot {
    process: Process,
    paused_until: Ms,
    /// When it is started again, if it was killed.
    starts_at: Option<Ms>,
}

impl<R: Recipe> Conductor<R> {
    async fn run(mut self) -> Result<(), String> {
        for who in 0..self.plan.workers {
            let process = self.start(who);
            self.workers.push(Slot {
                process,
                paused_until: 0,
                starts_at: None,
            });
        }
        let mut faults = self.plan.faults.clone().into_iter().peekable();
        loop {
            let now = Stage::now();
            self.end_faults(now);
            while let Some((_, fault)) = faults.next_if(|(at, _)| *at <= now) {
                self.make(fault, now);
            }
            let next = faults.peek().map(|(at, _)| *at);
            let next = next.into_iter().chain(self.next_end(now)).min();
            let next = next.unwrap_or(self.plan.duration).min(self.plan.duration);
            if now >= self.plan.duration {
                break;
            }
            sleep_until(next.max(now + 1)).await;
        }
        self.check(&self.recorder)?;
        self.recover().await
    }

    /// Starts the process of a worker.
    fn start(&mut self, who: usize) -> Process {
        let drift = self.plan.drift_ppm;
        let clock = Clock {
            drift_ppm: self.random.random_range(-drift..=drift),
            day_offset: Duration::from_millis(self.random.random_range(0..1_000)),
        };
        let seed = self.random.random();
        let (recipe, recorder) = (self.recipe.clone(), self.recorder.clone());
        let stopped = self.stop.subscribe();
        let plan = &self.plan;
        Stage::with(|stage| {
            let process = stage.core.start(clock);
            let shared = &stage.core.shared;
            let mut connect = options(shared, process, plan.servers.members, plan.session_timeout);
            if let Some(sabotage) = plan.sabotage {
                connect = connect.sabotage(sabotage);
            }
            let worker = Worker {
                who,
                random: StdRng::seed_from_u64(seed),
                recorder,
                stopped,
                work_max: plan.work_max,
                rest_max: plan.rest_max,
                options: connect,
            };
            stage.core.spawn(process, live(recipe, worker));
            process
        })
    }

    fn make(&mut self, fault: Fault, now: Ms) {
        // What was delayed when faults end must not be overtaken.
        let fault = fault.over_in(self.plan.duration.saturating_sub(now));
        let who = fault.worker().unwrap_or(0);
        if fault.worker().is_some()
            && (who >= self.workers.len() || self.workers[who].starts_at.is_some())
        {
            return;
        }
        let is_paused = self.workers[who].paused_until > now;
        let process = self.workers[who].process;
        let (members, short) = (self.plan.servers.members, self.plan.session_timeout / 2);
        match fault {
            Fault::Pause { .. } | Fault::Kill { .. } if is_paused => return,
            _ => self.recorder.note(who, What::Fault(fault.to_string())),
        }
        match fault {
            Fault::Pause { time, .. } => {
                self.recorder.note(who, What::Paused);
                self.workers[who].paused_until = now + time;
            }
            Fault::Kill { time, .. } => {
                self.recorder.killed(who);
                self.recipe.killed(who);
                self.workers[who].starts_at = Some(now + time);
            }
            _ => {}
        }
        Stage::with(|stage| {
            let core = &stage.core;
            match fault {
                Fault::Pause { .. } => return core.pause(process),
                Fault::Kill { .. } => return core.kill(process),
                Fault::Starve { time, .. } => return core.starve(process, now + time),
                _ => {}
            }
            let mut servers = stage.servers.borrow_mut();
            core.shared.with(|it| match fault {
                Fault::Cut { server_hears, .. } => {
                    for conn in it.net.of(Some(process)) {
                        it.net.cut(&mut it.agenda, now, conn, server_hears);
                    }
                }
                Fault::Silence { server, time, .. } => it.net.hold(process, server, now + time),
                Fault::CutOff { time, .. } => {
                    for server in 0..members {
                        it.net.hold(process, server, now + time);
                    }
                }
                Fault::Deaf { time, .. } => it.net.deafen(process, now + time),
                Fault::Pause { .. } | Fault::Kill { .. } | Fault::Starve { .. } => {}
                _ => servers.suffer(it, fault, short),
            });
        });
    }

    /// When the next pause or absence of a worker ends.
    fn next_end(&self, now: Ms) -> Option<Ms> {
        let ends = self.workers.iter().flat_map(|slot| {
            let paused = Some(slot.paused_until).filter(|until| *until > now);
            [paused, slot.starts_at]
        });
        ends.flatten().min()
    }

    /// Ends the faults of workers whose time is over.
    fn end_faults(&mut self, now: Ms) {
        for who in 0..self.workers.len() {
            let slot = &mut self.workers[who];
            if slot.paused_until > 0 && slot.paused_until <= now {
                slot.paused_until = 0;
                let process = slot.process;
                self.recorder.note(who, What::Resumed);
                Stage::with(|stage| stage.core.resume(process));
            }
            if self.workers[who].starts_at.is_some_and(|at| at <= now) {
                let process = self.start(who);
                self.workers[who].process = process;
                self.workers[who].starts_at = None;
            }
        }
    }

    /// Ends all faults. Every worker must complete a round; then all leave, and nothing may be left behind.
    async fn recover(mut self) -> Result<(), String> {
        self.end_faults(Ms::MAX);
        Stage::with(|stage| {
            let mut servers = stage.servers.borrow_mut();
            stage.core.shared.with(|it| {
                it.net.calm();
                servers.calm(it);
            });
        });
        let calm = Stage::now();
        let limit = calm + RECOVERY_TIMEOUTS * self.plan.session_timeout + RECOVERY_MORE;
        let step = self.plan.session_timeout / 4;
        loop {
            let rounds = self.recorder.rounds();
            let late = rounds.iter().position(|(last, _)| *last <= calm);
            let has_one = rounds.iter().any(|(last, _)| *last > calm);
            match late {
                None => break,
                Some(_) if !R::IS_FAIR && has_one => break,
                Some(who) if Stage::now() > limit => {
                    self.check(&self.recorder)?;
                    return Err(format!(
                        "worker {who} made no progress after all faults had ended"
                    ));
                }
                Some(_) => sleep_until(Stage::now() + step).await,
            }
        }
        self.stop.send_replace(true);
        self.finish().await?;
        let limit = Stage::now() + RECOVERY_TIMEOUTS * self.plan.session_timeout + RECOVERY_MORE;
        loop {
            match self.leftovers() {
                None => break,
                Some(left) if Stage::now() > limit => {
                    self.check(&self.recorder)?;
                    return Err(format!("left behind: {left}"));
                }
                Some(_) => sleep_until(Stage::now() + step).await,
            }
        }
        self.check(&self.recorder)
    }

    /// Runs the last check of the recipe, after all workers have stopped.
    async fn finish(&self) -> Result<(), String> {
        let limit = Stage::now() + RECOVERY_TIMEOUTS * self.plan.session_timeout + RECOVERY_MORE;
        let is_running = || {
            Stage::with(|stage| {
                let mut slots = self.workers.iter();
                slots.any(|slot| stage.core.task_count(slot.process) > 0)
            })
        };
        while is_running() && Stage::now() < limit {
            sleep_until(Stage::now() + self.plan.session_timeout / 4).await;
        }
        let connect = Stage::with(|stage| {
            let (servers, timeout) = (self.plan.servers.members, self.plan.session_timeout);
            options(&stage.core.shared, OBSERVER, servers, timeout)
        });
        let client = connect
            .await
            .map_err(|error| format!("no last session: {error}"))?;
        let finished = self.recipe.finish(&client).await;
        client.close().await;
        finished
    }

    /// What stopped workers left behind.
    fn leftovers(&self) -> Option<String> {
        let census = Stage::census();
        let mut nodes = census.nodes.iter();
        if let Some(node) = nodes.find(|path| !self.recipe.may_stay(path)) {
            return Some(format!("node {node}"));
        }
        if census.sessions > 0 {
            return Some(format!("{} sessions", census.sessions));
        }
        if census.watches > 0 {
            return Some(format!("{} watches", census.watches));
        }
        Stage::with(|stage| {
            for (who, slot) in self.workers.iter().enumerate() {
                let tasks = stage.core.task_count(slot.process);
                if tasks > 0 {
                    return Some(format!("{tasks} tasks of worker {who}"));
                }
            }
            let conns = stage.core.shared.with(|it| it.net.open());
            (conns > 0).then(|| format!("{conns} connections"))
        })
    }

    fn check(&self, recorder: &Recorder) -> Result<(), String> {
        let history = History::new(self.plan.seed, recorder.events());
        self.recipe.check(&self.plan, &history)?;
        let wrong = Stage::with(|stage| stage.servers.borrow().wrong());
        wrong.map_or(Ok(()), Err)
    }
}

/// Main loop of a process: one round after the other.
async fn live(recipe: impl Recipe, mut worker: Worker) {
    let Some(client) = worker.session().await else {
        return;
    };
    while !worker.is_stopped() {
        match recipe.round(&mut worker, &client).await {
            Ok(()) => {
                worker.count_round();
                worker.rest().await;
            }
            // The client opens the next session by itself.
            Err(Gone) => worker.pause().await,
        }
    }
    client.close().await;
}

#[expect(clippy::disallowed_methods, reason = "the clock of the run")]
async fn sleep_until(at: Ms) {
    let now = Stage::now();
    tokio::time::sleep(Duration::from_millis(at.saturating_sub(now))).await;
}
