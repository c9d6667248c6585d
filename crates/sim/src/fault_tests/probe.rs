//! Workers that write, read, watch and look at the clock all the time, and note what they notice of one fault.
//!
//! Answers arrive in the order of the requests of a session, so reads wait behind a write: half of the workers only read.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::Client;
use bellwether::zk::{self, CreateMode, SessionState, WatchMode};
use bellwether_testkit::History;

use crate::faults::Fault;
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::run::run;
use crate::servers::EnsembleSettings;
use crate::stage::Stage;
use crate::worker::{Gone, Worker};
use crate::world::{Ms, server_epoch_ms};

/// The session timeout. No fault takes so long that a client gives up its connection by itself.
pub(super) const TIMEOUT: Ms = 4_000;
pub(super) const WORKERS: usize = 6;
/// The first of the workers that only read.
pub(super) const READERS: usize = 3;
/// When the fault happens, and its duration.
pub(super) const AT: Ms = TIMEOUT / 2;
pub(super) const TIME: Ms = TIMEOUT / 4;
/// Time between two requests.
pub(super) const PAUSE: Ms = 20;
/// Within the fault: what was on its way when it began has arrived.
pub(super) const DURING: Range<Ms> = AT + 30..AT + TIME;
pub(super) const AFTER: Range<Ms> = AT + TIME..AT + TIMEOUT;

/// What one worker has noticed.
#[derive(Debug, Clone, Default)]
pub(super) struct Seen {
    pub(super) ticks: Vec<Ms>,
    pub(super) writes: Vec<Write>,
    /// When reads were answered.
    pub(super) reads: Vec<Ms>,
    /// When events of another worker's node arrived.
    pub(super) events: Vec<Ms>,
    pub(super) disconnects: Vec<Ms>,
}

/// A write that was answered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Write {
    /// When a server decided it.
    pub(super) made: Ms,
    pub(super) answered: Ms,
    pub(super) epoch: i64,
    pub(super) session: i64,
    pub(super) timeout: Ms,
}

impl Seen {
    pub(super) fn has_ticked(&self, time: &Range<Ms>) -> bool {
        any(&self.ticks, time)
    }

    pub(super) fn has_read(&self, time: &Range<Ms>) -> bool {
        any(&self.reads, time)
    }

    pub(super) fn has_written(&self, time: &Range<Ms>) -> bool {
        self.writes
            .iter()
            .any(|write| time.contains(&write.answered))
    }

    pub(super) fn has_lost_connection(&self, time: &Range<Ms>) -> bool {
        any(&self.disconnects, time)
    }

    /// Neither an answer nor the end of a connection.
    pub(super) fn has_heard_nothing(&self, time: &Range<Ms>) -> bool {
        !self.has_read(time) && !self.has_written(time) && !self.has_lost_connection(time)
    }

    /// When a server decided the write that was answered only after the fault.
    pub(super) fn late_write(&self) -> Ms {
        let mut writes = self.writes.iter();
        let late = writes.find(|write| write.answered >= AT + TIME).unwrap();
        late.made
    }

    pub(super) fn last_write(&self) -> Write {
        *self.writes.last().unwrap()
    }
}

pub(super) fn any(times: &[Ms], time: &Range<Ms>) -> bool {
    times.iter().any(|at| time.contains(at))
}

#[derive(Debug, Clone)]
struct Probe(Arc<Mutex<Vec<Seen>>>);

thread_local! {
    static PROBE: RefCell<Option<Probe>> = const { RefCell::new(None) };
}

impl Probe {
    fn see(&self, who: usize, what: impl FnOnce(&mut Seen)) {
        what(&mut self.0.lock().unwrap()[who]);
    }

    async fn write(&self, worker: &Worker, raw: &zk::Client) {
        let path = path(worker.who);
        // It may be there already.
        let _ = raw.create(&path, b"", CreateMode::Persistent).await;
        while !worker.is_calm() {
            if let Ok(stat) = raw.set(&path, b"", None).await {
                let write = Write {
                    made: u64::try_from(stat.mtime - server_epoch_ms(0)).unwrap(),
                    answered: Stage::now(),
                    epoch: stat.mzxid >> 32,
                    session: raw.session_id(),
                    timeout: u64::try_from(raw.session_timeout().as_millis()).unwrap(),
                };
                self.see(worker.who, |seen| seen.writes.push(write));
            }
            wait(PAUSE).await;
        }
    }

    async fn read(&self, worker: &Worker, raw: &zk::Client) {
        while !worker.is_calm() {
            if raw.exists("/").await.is_ok() {
                let now = Stage::now();
                self.see(worker.who, |seen| seen.reads.push(now));
            }
            wait(PAUSE).await;
        }
    }

    async fn watch(&self, worker: &Worker, raw: &zk::Client) {
        let path = path((worker.who + 1) % READERS);
        loop {
            let Ok(mut watch) = raw.watch(&path, WatchMode::Persistent).await else {
                continue;
            };
            while watch.next().await.is_ok() {
                let now = Stage::now();
                self.see(worker.who, |seen| seen.events.push(now));
            }
        }
    }

    async fn tick(&self, worker: &Worker) {
        while !worker.is_calm() {
            let now = Stage::now();
            self.see(worker.who, |seen| seen.ticks.push(now));
            wait(10).await;
        }
    }

    async fn notice(&self, worker: &Worker, raw: &zk::Client) {
        let mut states = raw.states();
        while states.changed().await.is_ok() {
            if *states.borrow_and_update() == SessionState::Disconnected {
                let now = Stage::now();
                self.see(worker.who, |seen| seen.disconnects.push(now));
            }
        }
    }
}

fn path(who: usize) -> String {
    format!("/probe{who}")
}

#[expect(clippy::disallowed_methods, reason = "in virtual time")]
async fn wait(time: Ms) {
    tokio::time::sleep(Duration::from_millis(time)).await;
}

impl Recipe for Probe {
    const NAME: &'static str = "probe";

    fn new(plan: &Plan) -> Self {
        let probe = Self(Arc::new(Mutex::new(vec![Seen::default(); plan.workers])));
        PROBE.set(Some(probe.clone()));
        probe
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        if !worker.is_calm() {
            let raw = client.raw();
            let write = async {
                if worker.who < READERS {
                    self.write(worker, &raw).await;
                }
            };
            let work = async { tokio::join!(write, self.read(worker, &raw), self.tick(worker)) };
            tokio::select! {
                biased;
                _ = work => {}
                () = self.watch(worker, &raw) => {}
                () = self.notice(worker, &raw) => {}
            }
        }
        wait(5).await;
        Ok(Round::Done)
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        Ok(())
    }

    fn may_stay(&self, _: &str) -> bool {
        true
    }
}

/// A plan without any trouble but these faults.
pub(super) fn calm(members: usize, faults: Vec<(Ms, Fault)>) -> Plan {
    let plan = Plan::of(0);
    Plan {
        workers: WORKERS,
        duration: AFTER.end,
        session_timeout: TIMEOUT,
        servers: EnsembleSettings {
            members,
            tick: TIMEOUT / 4,
            sync_limit: 5,
            link_delay: 0..3,
            lag_max: 0,
            stalls: 0,
            pace_max: 0,
            election: 50..100,
            timeout_max: 5 * TIMEOUT,
            to_laggard: 0,
            ..plan.servers
        },
        embedded: None,
        latency_max: 3,
        drift_ppm: 0,
        rest_max: 0,
        faults,
        ..plan
    }
}

/// What the workers of a plan see.
pub(super) fn watch(plan: &Plan) -> Vec<Seen> {
    assert_eq!(run::<Probe>(plan).violation, None, "{:?}", plan.faults);
    let Probe(seen) = PROBE.take().unwrap();
    let seen = seen.lock().unwrap().clone();
    // Everybody works before and after the fault.
    for (who, one) in seen.iter().enumerate() {
        assert!(one.has_read(&(AT - 200..AT)) && one.has_read(&AFTER));
        assert!(who >= READERS || one.has_written(&(AT - 200..AT)) && one.has_written(&AFTER));
    }
    seen
}

/// What workers of a single server see of a fault.
pub(super) fn on_one(fault: Fault) -> Vec<Seen> {
    watch(&calm(1, vec![(AT, fault)]))
}

/// What workers of an ensemble see of a fault.
pub(super) fn on_three(fault: Fault) -> Vec<Seen> {
    watch(&calm(3, vec![(AT, fault)]))
}

/// What workers of the embedded server see of a fault.
pub(super) fn on_embedded(fault: Fault) -> Vec<Seen> {
    watch(&embedded(fault))
}

pub(super) fn embedded(fault: Fault) -> Plan {
    let mut plan = Plan::embedded(0);
    let Some(embedded) = &mut plan.embedded else {
        unreachable!("it is the plan of an embedded server");
    };
    embedded.snap_count = 2;
    embedded.sync_max = 1;
    Plan {
        embedded: plan.embedded,
        ..calm(1, vec![(AT, fault)])
    }
}

pub(super) fn assert_unaffected(seen: &[Seen]) {
    for one in seen {
        assert!(one.has_ticked(&DURING) && one.has_read(&DURING));
        assert!(one.writes.is_empty() || one.has_written(&DURING));
        assert!(!one.has_lost_connection(&(AT..AFTER.end)));
    }
}
