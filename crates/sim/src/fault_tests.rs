//! Each fault does what it says: workers write, read, watch and look at the clock all the time, and note what they notice of one fault.
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
const TIMEOUT: Ms = 4_000;
const WORKERS: usize = 6;
/// The first of the workers that only read.
const READERS: usize = 3;
/// When the fault happens, and its duration.
const AT: Ms = TIMEOUT / 2;
const TIME: Ms = TIMEOUT / 4;
/// Time between two requests.
const PAUSE: Ms = 20;
/// Within the fault: what was on its way when it began has arrived.
const DURING: Range<Ms> = AT + 30..AT + TIME;
const AFTER: Range<Ms> = AT + TIME..AT + TIMEOUT;

/// What one worker has noticed.
#[derive(Debug, Clone, Default)]
struct Seen {
    ticks: Vec<Ms>,
    writes: Vec<Write>,
    /// When reads were answered.
    reads: Vec<Ms>,
    /// When events of another worker's node arrived.
    events: Vec<Ms>,
    disconnects: Vec<Ms>,
}

/// A write that was answered.
#[derive(Debug, Clone, Copy)]
struct Write {
    /// When a server decided it.
    made: Ms,
    answered: Ms,
    epoch: i64,
    session: i64,
    timeout: Ms,
}

impl Seen {
    fn has_ticked(&self, time: &Range<Ms>) -> bool {
        any(&self.ticks, time)
    }

    fn has_read(&self, time: &Range<Ms>) -> bool {
        any(&self.reads, time)
    }

    fn has_written(&self, time: &Range<Ms>) -> bool {
        self.writes
            .iter()
            .any(|write| time.contains(&write.answered))
    }

    fn has_lost_connection(&self, time: &Range<Ms>) -> bool {
        any(&self.disconnects, time)
    }

    /// Neither an answer nor the end of a connection.
    fn has_heard_nothing(&self, time: &Range<Ms>) -> bool {
        !self.has_read(time) && !self.has_written(time) && !self.has_lost_connection(time)
    }

    /// When a server decided the write that was answered only after the fault.
    fn late_write(&self) -> Ms {
        let mut writes = self.writes.iter();
        let late = writes.find(|write| write.answered >= AT + TIME).unwrap();
        late.made
    }

    fn last_write(&self) -> Write {
        *self.writes.last().unwrap()
    }
}

fn any(times: &[Ms], time: &Range<Ms>) -> bool {
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
fn calm(members: usize, faults: Vec<(Ms, Fault)>) -> Plan {
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
fn watch(plan: &Plan) -> Vec<Seen> {
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
fn on_one(fault: Fault) -> Vec<Seen> {
    watch(&calm(1, vec![(AT, fault)]))
}

/// What workers of an ensemble see of a fault.
fn on_three(fault: Fault) -> Vec<Seen> {
    watch(&calm(3, vec![(AT, fault)]))
}

/// What workers of the embedded server see of a fault.
fn on_embedded(fault: Fault) -> Vec<Seen> {
    watch(&embedded(fault))
}

fn embedded(fault: Fault) -> Plan {
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

fn assert_unaffected(seen: &[Seen]) {
    for one in seen {
        assert!(one.has_ticked(&DURING) && one.has_read(&DURING));
        assert!(one.writes.is_empty() || one.has_written(&DURING));
        assert!(!one.has_lost_connection(&(AT..AFTER.end)));
    }
}

#[test]
fn without_faults_nobody_notices_any() {
    assert_unaffected(&watch(&calm(1, Vec::new())));
    assert_unaffected(&watch(&calm(3, Vec::new())));
}

#[test]
fn cut_breaks_the_connection_of_one_worker() {
    for server_hears in [None, Some(10)] {
        let seen = on_three(Fault::Cut {
            worker: 0,
            server_hears,
        });
        assert!(seen[0].has_lost_connection(&(AT..AT + 5)));
        assert_unaffected(&seen[1..]);
    }
}

#[test]
fn nothing_passes_through_silence() {
    let seen = on_one(Fault::Silence {
        worker: 0,
        server: 0,
        time: TIME,
    });
    assert!(seen[0].has_heard_nothing(&DURING) && seen[0].has_ticked(&DURING));
    assert!(!any(&seen[0].events, &DURING));
    assert_unaffected(&seen[1..]);
}

#[test]
fn worker_that_is_cut_off_reaches_no_server() {
    let seen = on_three(Fault::CutOff {
        worker: 0,
        time: TIME,
    });
    assert!(seen[0].has_heard_nothing(&DURING) && !any(&seen[0].events, &DURING));
    assert_unaffected(&seen[1..]);
}

#[test]
fn servers_receive_from_a_deaf_worker() {
    let seen = on_three(Fault::Deaf {
        worker: 0,
        time: TIME,
    });
    assert!(seen[0].has_heard_nothing(&DURING) && !any(&seen[0].events, &DURING));
    assert!(seen[0].late_write() < AT + 50);
    assert_unaffected(&seen[1..]);
}

#[test]
fn mute_worker_receives_from_servers() {
    let seen = on_three(Fault::Mute {
        worker: 0,
        time: TIME,
    });
    assert!(seen[0].has_heard_nothing(&DURING));
    assert!(any(&seen[0].events, &DURING));
    assert!(seen[0].late_write() >= AT + TIME);
    assert_unaffected(&seen[1..]);
}

#[test]
fn paused_worker_does_not_run() {
    let seen = on_three(Fault::Pause {
        worker: 0,
        time: TIME,
    });
    assert!(!seen[0].has_ticked(&(AT + 1..AT + TIME)));
    assert!(!seen[0].has_lost_connection(&AFTER));
    assert_unaffected(&seen[1..]);
}

#[test]
fn killed_worker_starts_again_with_another_session() {
    let seen = on_three(Fault::Kill {
        worker: 0,
        time: TIME,
    });
    assert!(!seen[0].has_ticked(&(AT + 1..AT + TIME)));
    assert_ne!(seen[0].writes[0].session, seen[0].last_write().session);
    assert_unaffected(&seen[1..]);
}

#[test]
fn paused_worker_can_be_killed() {
    let pause = Fault::Pause {
        worker: 0,
        time: TIME,
    };
    let kill = Fault::Kill {
        worker: 0,
        time: TIME / 4,
    };
    let seen = watch(&calm(3, vec![(AT, pause), (AT + TIME / 4, kill)]));
    assert!(!seen[0].has_ticked(&(AT + 1..AT + TIME / 2)));
    assert!(seen[0].has_ticked(&(AT + TIME / 2..AT + TIME)));
    assert_ne!(seen[0].writes[0].session, seen[0].last_write().session);
}

#[test]
fn starvation_stops_one_task_of_a_worker() {
    let time = TIMEOUT / 20;
    let during = AT + 20..AT + time;
    let starve = Fault::Starve { worker: 0, time };
    let (mut main, mut of_client) = (0, 0);
    for seed in 0..12 {
        let mut plan = calm(3, vec![(AT, starve)]);
        plan.seed = seed;
        let seen = watch(&plan);
        assert!(!seen[0].has_lost_connection(&(AT..AFTER.end)));
        assert_unaffected(&seen[1..]);
        match (seen[0].has_ticked(&during), seen[0].has_read(&during)) {
            (false, false) => main += 1,
            (true, false) => of_client += 1,
            // A task that had nothing to do.
            _ => {}
        }
    }
    assert!(main > 0 && of_client > 0, "{main} {of_client}");
}

#[test]
fn crash_of_a_server_ends_its_connections() {
    let crash = Fault::ServerCrash {
        server: 0,
        time: TIME,
    };
    for seen in [on_one(crash), on_embedded(crash)] {
        for one in &seen {
            assert!(one.has_lost_connection(&(AT..AT + 10)));
            assert!(!one.has_read(&DURING) && !one.has_written(&DURING));
        }
    }
}

#[test]
fn paused_server_answers_nobody() {
    let pause = Fault::ServerPause {
        server: 0,
        time: TIME,
    };
    for seen in [on_one(pause), on_embedded(pause)] {
        assert!(seen.iter().all(|one| one.has_heard_nothing(&DURING)));
    }
}

/// What workers see of a fault of a follower, as readers and as writers: at least one writer has that server.
fn on_a_follower(fault: fn(usize) -> Fault) -> (Vec<Seen>, Vec<Seen>) {
    // Server 0 leads.
    let seen = [1, 2].map(|server| on_three(fault(server)));
    let is_hit = |seen: &Vec<Seen>| seen[..READERS].iter().any(|one| !one.has_written(&DURING));
    let mut writers = seen.into_iter().find(is_hit).unwrap();
    let readers = writers.split_off(READERS);
    (readers, writers)
}

/// No connection has ended, every read was answered, and the writes of some workers.
fn assert_writes_hang(readers: &[Seen], writers: &[Seen]) {
    let both = readers.iter().chain(writers);
    assert!(
        both.clone()
            .all(|one| !one.has_lost_connection(&(AT..AFTER.end)))
    );
    assert!(readers.iter().all(|one| one.has_read(&DURING)));
    assert!(writers.iter().any(|one| one.has_written(&DURING)));
}

#[test]
fn server_that_is_cut_off_answers_reads_only() {
    let (readers, writers) = on_a_follower(|server| Fault::ServerCutOff { server, time: TIME });
    assert_writes_hang(&readers, &writers);
    // Also those whose request had left before; but not those that wait for an answer.
    let mut hanging = writers.iter().filter(|one| !one.has_written(&DURING));
    assert!(hanging.all(|one| one.late_write() >= AT + TIME || one.late_write() < AT));
}

#[test]
fn leader_receives_from_a_deaf_server() {
    let (readers, writers) = on_a_follower(|server| Fault::ServerDeaf { server, time: TIME });
    assert_writes_hang(&readers, &writers);
    let mut hanging = writers.iter().filter(|one| !one.has_written(&DURING));
    assert!(hanging.all(|one| one.late_write() < AT + 50));
}

#[test]
fn crash_of_the_leader_makes_another_one() {
    let seen = on_three(Fault::LeaderCrash { time: TIME });
    assert!(
        seen.iter()
            .all(|one| one.has_lost_connection(&(AT..AT + 10)))
    );
    for one in &seen[..READERS] {
        assert_eq!(one.writes[0].epoch + 1, one.last_write().epoch);
        assert!(one.has_written(&(AT..AT + TIME)));
    }
}

/// No connection has ended, no write was answered, and there is the same leader as before.
fn assert_nothing_decided(seen: &[Seen]) {
    assert!(
        seen.iter()
            .all(|one| !one.has_lost_connection(&(AT..AFTER.end)))
    );
    for one in &seen[..READERS] {
        assert!(!one.has_written(&DURING));
        assert_eq!(one.writes[0].epoch, one.last_write().epoch);
    }
}

#[test]
fn paused_leader_answers_nobody() {
    // Workers choose other servers in each run.
    let seen = (0..6).flat_map(|seed| {
        let mut plan = calm(3, vec![(AT, Fault::LeaderPause { time: TIME })]);
        plan.seed = seed;
        let seen = watch(&plan);
        assert_nothing_decided(&seen);
        seen.into_iter().skip(READERS)
    });
    let (of_followers, of_leader): (Vec<Seen>, _) = seen.partition(|one| one.has_read(&DURING));
    assert!(!of_followers.is_empty() && !of_leader.is_empty());
}

#[test]
fn leader_that_is_cut_off_answers_reads_only() {
    let seen = on_three(Fault::LeaderCutOff { time: TIME });
    assert_nothing_decided(&seen);
    assert!(seen[READERS..].iter().all(|one| one.has_read(&DURING)));
}

#[test]
fn sessions_become_shorter() {
    let short = Fault::ShortSessions {
        server: 0,
        time: TIME / 4,
    };
    for seen in [on_one(short), on_embedded(short)] {
        for one in &seen[..READERS] {
            assert_eq!(one.writes[0].timeout, TIMEOUT);
            assert_eq!(one.last_write().timeout, TIMEOUT / 2);
        }
    }
}

#[test]
fn server_ends_at_a_disk_operation() {
    for operations in [0, 1, 3] {
        let kill = Fault::KillAtDisk {
            operations,
            time: TIME,
        };
        let power_loss = Fault::PowerLoss {
            operations,
            is_silent: false,
            time: TIME,
        };
        for one in [kill, power_loss].into_iter().flat_map(on_embedded) {
            assert!(one.has_lost_connection(&(AT..AT + 50)));
            assert!(!one.has_written(&(AT + 50..AT + TIME)));
        }
    }
}

#[test]
fn machine_that_dies_silently_resets_connections_when_it_is_back() {
    let power_loss = Fault::PowerLoss {
        operations: 0,
        is_silent: true,
        time: TIME,
    };
    for one in on_embedded(power_loss) {
        assert!(one.has_heard_nothing(&DURING));
        assert!(one.has_lost_connection(&(AT + TIME..AT + TIME + 10)));
    }
}

#[test]
fn server_stops_when_an_fsync_fails() {
    let failed = Fault::FailedSync {
        of_names: false,
        time: TIME,
    };
    for one in on_embedded(failed) {
        assert!(one.has_lost_connection(&(AT..AT + 100)));
        assert!(!one.has_written(&(AT + 100..AT + TIME)));
    }
}

/// A server goes on after the directory of a snapshot, and stops after that of a log.
#[test]
fn server_may_stop_when_an_fsync_of_the_directory_fails() {
    let failed = Fault::FailedSync {
        of_names: true,
        time: TIME,
    };
    let has_stopped = (0..10).any(|seed| {
        let mut plan = embedded(failed);
        plan.seed = seed;
        let seen = watch(&plan);
        let is_down = |one: &Seen| one.has_lost_connection(&(AT..AT + 500));
        seen.iter().all(is_down)
    });
    assert!(has_stopped);
}
