//! The course of a run: workers are started, faults happen and end, everybody recovers, and nothing is left behind.

use std::time::Duration;

use bellwether::{Client, zk};
use bellwether_testkit::History;
use bellwether_testkit::history::{SERVERS, What};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::timeout;

use crate::faults::Fault;
use crate::operator::wipe;
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::recorder::Recorder;
use crate::stage::Stage;
use crate::worker::{Gone, Phase, Worker, options};
use crate::world::{Clock, Ms, OBSERVER, Process};

/// Time limit for every worker to complete a round after the faults have ended: in session timeouts, plus a while in which the servers
/// delete empty directories.
const RECOVERY_TIMEOUTS: u64 = 40;
const RECOVERY_MORE: Ms = 60_000;

/// Time limit for the last check of a recipe, which may take thousands of items.
const LAST_CHECK_LIMIT: Duration = Duration::from_secs(24 * 3_600);

/// Directs a run: starts workers, injects faults, and waits for recovery.
pub(crate) struct Conductor<R> {
    plan: Plan,
    recipe: R,
    recorder: Recorder,
    random: StdRng,
    workers: Vec<Slot>,
    phase: watch::Sender<Phase>,
}

/// How many tasks an idle worker may have: the driver, the janitor and the heartbeat of its session, the task that keeps the client open, and
/// its main loop.
const TASKS_OF_IDLE_MAX: usize = 5;

/// The current process of a worker.
struct Slot {
    process: Process,
    paused_until: Ms,
    /// When the last of its tasks that got no CPU time gets some again.
    starved_until: Ms,
    /// When it is started again, if it was killed.
    starts_at: Option<Ms>,
}

impl<R: Recipe> Conductor<R> {
    pub(crate) fn new(plan: Plan, recipe: R, recorder: Recorder, random: StdRng) -> Self {
        Self {
            plan,
            recipe,
            recorder,
            random,
            workers: Vec::new(),
            phase: watch::Sender::new(Phase::Faults),
        }
    }

    /// Runs to the end.
    ///
    /// # Errors
    ///
    /// Describes the violation.
    pub(crate) async fn run(mut self) -> Result<(), String> {
        for who in 0..self.plan.workers {
            let process = self.start(who);
            self.workers.push(Slot {
                process,
                paused_until: 0,
                starved_until: 0,
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
        self.check()?;
        self.recover().await?;
        self.phase.send_replace(Phase::Stopped);
        self.quiet().await?;
        self.finish().await?;
        self.phase.send_replace(Phase::Closing);
        self.within_limit(|| self.leftovers(), "left behind")
            .await?;
        self.check()
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
        let phase = self.phase.subscribe();
        let plan = &self.plan;
        Stage::with(|stage| {
            let process = stage.core.start(clock);
            let shared = &stage.core.shared;
            let mut connect = options(shared, process, plan.servers.members, plan.session_timeout);
            if let Some(requests_max) = plan.requests_max {
                connect = connect.limits(zk::Limits {
                    requests_max,
                    ..zk::Limits::default()
                });
            }
            let worker = Worker {
                who,
                random: StdRng::seed_from_u64(seed),
                recorder,
                phase,
                work_max: plan.work_max,
                rest_max: plan.rest_max,
                options: connect,
                has_operator: plan.has_operator(),
                requests_max: plan.requests_max,
            };
            stage.core.spawn(process, live(recipe, worker));
            process
        })
    }

    fn make(&mut self, fault: Fault, now: Ms) {
        // What was delayed when faults end must not be overtaken.
        let fault = fault.over_in(self.plan.duration.saturating_sub(now));
        if fault == Fault::Wipe {
            return self.wipe();
        }
        let Some(who) = fault.worker() else {
            self.recorder.note(SERVERS, What::Fault(fault.to_string()));
            let short = self.plan.session_timeout / 2;
            return Stage::with(|stage| {
                let mut servers = stage.servers.borrow_mut();
                let shared = &stage.core.shared;
                shared.with(|it| servers.suffer(it, fault, short));
            });
        };
        let Some(slot) = self.workers.get_mut(who) else {
            return;
        };
        match fault {
            _ if slot.starts_at.is_some() => return,
            Fault::Pause { .. } if slot.paused_until > now => return,
            // One task at a time: if those that a hold passes through starved one after the other, no margin would be enough.
            Fault::Starve { .. } if slot.starved_until >= now => return,
            _ => self.recorder.note(who, What::Fault(fault.to_string())),
        }
        let process = slot.process;
        match fault {
            Fault::Pause { time, .. } => {
                slot.paused_until = now + time;
                self.recorder.note(who, What::Paused);
            }
            Fault::Starve { time, .. } => slot.starved_until = now + time,
            Fault::Kill { time, .. } => {
                slot.starts_at = Some(now + time);
                self.recorder.killed(who);
                self.recipe.killed(who);
                if std::mem::take(&mut slot.paused_until) > now {
                    // The pause excuses nothing of the next process.
                    self.recorder.note(who, What::Resumed);
                }
            }
            _ => {}
        }
        let members = self.plan.servers.members;
        Stage::with(|stage| {
            let core = &stage.core;
            match fault {
                Fault::Pause { .. } => return core.pause(process),
                Fault::Kill { .. } => return core.kill(process),
                Fault::Starve { time, .. } => return core.starve(process, now + time),
                _ => {}
            }
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
                Fault::Mute { time, .. } => it.net.mute(process, now + time),
                Fault::Late { delay, time, .. } => it.net.delay(process, now + time, delay),
                _ => {}
            });
        });
    }

    /// Starts the process of an operator, who deletes the directories of the recipe.
    fn wipe(&self) {
        let (servers, timeout) = (self.plan.servers.members, self.plan.session_timeout);
        let (recorder, mut phase) = (self.recorder.clone(), self.phase.subscribe());
        let directories = self.recipe.directories();
        Stage::with(|stage| {
            let process = stage.core.start(Clock::TRUE);
            let connect = options(&stage.core.shared, process, servers, timeout);
            let wiped = async move {
                if let Ok(client) = connect.await {
                    wipe(&client, &directories, &recorder).await;
                    client.close().await;
                }
            };
            stage.core.spawn(process, async move {
                tokio::select! {
                    biased;
                    // An error means that the run has ended.
                    _ = phase.wait_for(|phase| *phase >= Phase::Calm) => {}
                    () = wiped => {}
                }
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

    /// Ends all faults. Every worker must complete a round.
    async fn recover(&mut self) -> Result<(), String> {
        self.end_faults(Ms::MAX);
        Stage::with(|stage| {
            let mut servers = stage.servers.borrow_mut();
            stage.core.shared.with(|it| {
                it.net.calm();
                servers.calm(it);
            });
        });
        self.phase.send_replace(Phase::Calm);
        let calm = Stage::now();
        let late = || {
            let rounds = self.recorder.rounds();
            let late = rounds.iter().position(|(last, _)| *last <= calm)?;
            let is_enough = !R::IS_FAIR && rounds.iter().any(|(last, _)| *last > calm);
            (!is_enough).then(|| format!("worker {late}"))
        };
        self.within_limit(late, "no progress after all faults had ended")
            .await
    }

    /// All workers end their rounds, and keep their sessions. Such a session needs no nodes, no watches, and few tasks.
    async fn quiet(&self) -> Result<(), String> {
        let busy = || {
            let busy = self.workers.len() - self.recorder.idle_count();
            (busy > 0).then(|| format!("{busy} workers"))
        };
        self.within_limit(busy, "do not end their round").await?;
        self.within_limit(|| self.kept(), "kept by idle sessions")
            .await
    }

    /// What idle sessions keep and do not need.
    fn kept(&self) -> Option<String> {
        let census = Stage::census();
        if let Some(node) = census.ephemerals.first() {
            return Some(format!("node {node}"));
        }
        if census.watches > 0 {
            return Some(format!("{} watches", census.watches));
        }
        Stage::with(|stage| {
            let mut workers = self.workers.iter().enumerate();
            workers.find_map(|(who, slot)| {
                let tasks = stage.core.task_count(slot.process);
                (tasks > TASKS_OF_IDLE_MAX).then(|| format!("{tasks} tasks of worker {who}"))
            })
        })
    }

    /// Waits until `what` finds nothing more. What it finds when the time limit is over is a violation.
    async fn within_limit(
        &self,
        what: impl Fn() -> Option<String>,
        violation: &str,
    ) -> Result<(), String> {
        let limit = Stage::now() + RECOVERY_TIMEOUTS * self.plan.session_timeout + RECOVERY_MORE;
        while let Some(found) = what() {
            if Stage::now() > limit {
                // Another violation may be the reason.
                self.check()?;
                return Err(format!("{violation}: {found}"));
            }
            sleep_until(Stage::now() + self.plan.session_timeout / 4).await;
        }
        Ok(())
    }

    /// Runs the last check of the recipe, after all workers have stopped.
    async fn finish(&self) -> Result<(), String> {
        let connect = Stage::with(|stage| {
            let (servers, timeout) = (self.plan.servers.members, self.plan.session_timeout);
            options(&stage.core.shared, OBSERVER, servers, timeout)
        });
        let finished = async {
            let client = connect
                .await
                .map_err(|error| format!("no last session: {error}"))?;
            let finished = self.recipe.finish(&client).await;
            client.close().await;
            finished
        };
        match timeout(LAST_CHECK_LIMIT, finished).await {
            Ok(finished) => finished,
            Err(_) => Err("the last check does not end".to_owned()),
        }
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

    fn check(&self) -> Result<(), String> {
        self.recorder.wrong().map_or(Ok(()), Err)?;
        let history = History::new(self.plan.seed, self.recorder.events());
        self.recipe.check(&self.plan, &history)?;
        let wrong = Stage::with(|stage| stage.servers.borrow().wrong());
        wrong.map_or(Ok(()), Err)
    }
}

/// Main loop of a process: one round after the other.
async fn live(recipe: impl Recipe, mut worker: Worker) {
    let Some(client) = worker.session().await else {
        return worker.idle().await;
    };
    match worker.requests_max {
        None => rounds(recipe, &mut worker, &client).await,
        Some(_) => {
            let flood = worker.flood(&client);
            tokio::join!(biased; flood, rounds(recipe, &mut worker, &client));
        }
    }
    worker.idle().await;
    client.close().await;
}

async fn rounds(recipe: impl Recipe, worker: &mut Worker, client: &Client) {
    while !worker.is_stopped() {
        match recipe.round(worker, client).await {
            Ok(Round::Done) => {
                worker.count_round();
                worker.rest().await;
            }
            Ok(Round::Failed) => worker.rest().await,
            // The client opens the next session by itself.
            Err(Gone) => worker.pause().await,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock of the run")]
async fn sleep_until(at: Ms) {
    let now = Stage::now();
    tokio::time::sleep(Duration::from_millis(at.saturating_sub(now))).await;
}
