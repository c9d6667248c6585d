//! Members of a double barrier, each behind a fault proxy of its own, under random faults.
//!
//! `BELLWETHER_HISTORIES_SEED` makes the same faults come again, and `BELLWETHER_HISTORIES_SECONDS` makes them last.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::{BarrierError, Client, DoubleBarrier, Inside, Sabotage, connect};
use bellwether_testkit::history::rounds::{Stay, check_rounds};
use bellwether_testkit::history::{Moment, What};
use bellwether_testkit::{
    Climate, Cut, Engine, FaultProxy, Forecast, Recorder, Target, TestServer, Weather,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::place::soon;
use crate::weather_settings;

/// One more than make a round, so that there is always one too many.
const MEMBERS: usize = 4;
const SIZE: usize = 3;

const SESSION_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a member that gave up while it was cut off may be counted: its session ends then, a few ticks late on a busy machine.
const LINGER: Duration = Duration::from_secs(2);

/// How long it may take until everybody has come and gone without faults.
const RECOVERY_MAX: Duration = Duration::from_secs(15);

/// How long faults go on, unless told otherwise.
const FAULTS: Duration = Duration::from_secs(5);

const CLIMATE: Climate = Climate {
    contenders: MEMBERS,
    session_timeout: SESSION_TIMEOUT,
    calm_max: Duration::from_millis(200),
};

const PATH: &str = "/histories/barrier";

#[tokio::test(flavor = "multi_thread")]
async fn double_barrier_is_right_under_faults_embedded() {
    under_faults(Engine::embedded().await.unwrap()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn double_barrier_is_right_under_faults_apache() {
    under_faults(Engine::apache().await.unwrap()).await;
}

async fn under_faults(mut engine: Engine) {
    let seed = weather_settings::seed();
    let faults = weather_settings::duration().unwrap_or(FAULTS);
    let recorder = Recorder::new(seed);
    let mut crew = Crew::default();
    for who in 0..MEMBERS {
        let proxy = FaultProxy::start(engine.addresses()[0]).await.unwrap();
        crew.add(who, proxy, seed, None);
    }
    // Everybody has met once, and what stays of a barrier is there.
    crew.everybody_met(Moment::now()).await;
    let mut weather = Weather {
        targets: &crew.targets,
        engine: &mut engine,
        recorder: &recorder,
    };
    let forecast = Forecast::new(seed, CLIMATE);
    weather.pass(forecast, faults).await.unwrap();
    crew.everybody_met(Moment::now()).await;
    let expired: Vec<_> = recorder
        .history()
        .events()
        .iter()
        .filter(|event| event.what == What::Expired)
        .map(|event| (event.who, event.at))
        .collect();
    let mut stays = crew.stop().await;
    for stay in &mut stays {
        excuse(stay, &expired);
    }
    let rounds: Vec<_> = stays.iter().filter_map(|stay| stay.left).collect();
    eprintln!("{} stays, {} in order", stays.len(), rounds.len());
    if let Err(wrong) = check_rounds(&stays, SIZE, LINGER) {
        panic!("{wrong} (seed {seed})");
    }
    // What a session had that was given up goes when the server ends it.
    let mut turns = tokio::time::interval(Duration::from_millis(20));
    soon(async {
        loop {
            turns.tick().await;
            let census = engine.census().await.unwrap();
            if (census.ephemerals, census.watches) == (0, 0) {
                return;
            }
        }
    })
    .await;
    // The path and the directory of the next round; one that somebody was late for may wait for the server to clear it away.
    let outside = connect(engine.connect_string()).await.unwrap();
    let left = soon(outside.raw().list_children(PATH)).await.unwrap();
    for name in left {
        let path = format!("{PATH}/{name}");
        let children = soon(outside.raw().list_children(&path)).await.unwrap();
        assert!(
            children.iter().all(|name| name == "ready"),
            "{path} has {children:?} (seed {seed})"
        );
    }
}

/// A session that was ended by another hand ended the membership then, whenever the member heard of it.
fn excuse(stay: &mut Stay, expired: &[(usize, Moment)]) {
    let Some((entered, _)) = stay.entered else {
        return;
    };
    let until = stay.leaving.unwrap_or(Moment::NEVER);
    let ended = expired
        .iter()
        // The hook may have been at work when the member was let in.
        .filter(|(who, at)| *who == stay.who && at.plus(SESSION_TIMEOUT) >= entered && *at <= until)
        .map(|(_, at)| (*at).max(entered))
        .min();
    if let Some(ended) = ended {
        stay.leaving = Some(ended);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn member_that_passes_on_any_wake_up_is_caught() {
    for (sabotage, caught) in [(None, false), (Some(Sabotage::PassOnAnyWake), true)] {
        let server = TestServer::start().await.unwrap();
        let mut crew = Crew::default();
        for who in 0..2 {
            let proxy = FaultProxy::start(server.address()).await.unwrap();
            crew.add(who, proxy, 1, sabotage);
        }
        // Two of three, woken again and again by a new connection.
        for _ in 0..20 {
            for target in &crew.targets {
                target.proxy.cut(Cut::Reset).await;
            }
            soon(async {
                while crew
                    .targets
                    .iter()
                    .any(|target| target.proxy.connections_now() == 0)
                {
                    tokio::task::yield_now().await;
                }
            })
            .await;
        }
        let verdict = check_rounds(&crew.stop().await, SIZE, LINGER);
        assert_eq!(verdict.is_err(), caught, "{verdict:?}");
    }
}

/// The members, and what they have done so far.
#[derive(Default)]
struct Crew {
    targets: Vec<Arc<Target>>,
    members: JoinSet<()>,
    stays: Arc<Mutex<Vec<Stay>>>,
    stopped: watch::Sender<bool>,
}

impl Crew {
    fn add(&mut self, who: usize, proxy: FaultProxy, seed: u64, sabotage: Option<Sabotage>) {
        let member = Member {
            who,
            address: proxy.connect_string(),
            sabotage,
            random: StdRng::seed_from_u64(seed.wrapping_add(who as u64)),
            stays: Arc::clone(&self.stays),
            stopped: self.stopped.subscribe(),
        };
        self.members.spawn(member.run());
        self.targets.push(Arc::new(Target {
            proxy,
            process: None,
        }));
    }

    fn stays(&self) -> Vec<Stay> {
        self.stays.lock().unwrap().clone()
    }

    /// Waits until each one has come and gone in order since then.
    async fn everybody_met(&self, since: Moment) {
        let mut turns = tokio::time::interval(Duration::from_millis(20));
        let met = async {
            let met = |who: usize| {
                let stays = self.stays();
                let mut own = stays.iter().filter(|stay| stay.who == who);
                own.any(|stay| stay.arrived >= since && stay.left.is_some())
            };
            while !(0..self.targets.len()).all(met) {
                turns.tick().await;
            }
        };
        if timeout(RECOVERY_MAX, met).await.is_err() {
            let stays = self.stays();
            let last = |who| stays.iter().rfind(|stay| stay.who == who);
            let last: Vec<_> = (0..self.targets.len()).filter_map(last).collect();
            panic!("not everybody has met; their last stays are {last:#?}");
        }
    }

    async fn stop(mut self) -> Vec<Stay> {
        self.stopped.send_replace(true);
        while let Some(ended) = soon(self.members.join_next()).await {
            ended.unwrap();
        }
        self.stays()
    }
}

struct Member {
    who: usize,
    address: String,
    sabotage: Option<Sabotage>,
    random: StdRng,
    stays: Arc<Mutex<Vec<Stay>>>,
    stopped: watch::Receiver<bool>,
}

impl Member {
    /// One session after the other.
    async fn run(mut self) {
        while !*self.stopped.borrow() {
            let mut session = connect(&self.address).session_timeout(SESSION_TIMEOUT);
            if let Some(sabotage) = self.sabotage {
                session = session.sabotage(sabotage);
            }
            if let Ok(client) = session.await {
                self.use_session(&client).await;
                client.close().await;
            }
        }
    }

    async fn use_session(&mut self, client: &Client) {
        let barrier = DoubleBarrier::new(client, PATH, SIZE);
        while !*self.stopped.borrow() && !client.is_ended() {
            let index = {
                let mut stays = self.stays.lock().unwrap();
                stays.push(Stay::begin(self.who));
                stays.len() - 1
            };
            match self.enter(&barrier).await {
                Some(Ok(inside)) => self.stay(index, inside).await,
                Some(Err(BarrierError::SessionEnded { .. })) => {
                    self.note(index, |stay, now| stay.gave_up = Some(now));
                    return;
                }
                Some(Err(_)) | None => self.note(index, |stay, now| stay.gave_up = Some(now)),
            }
        }
    }

    /// `None` if it gave up, wherever it was.
    async fn enter(&mut self, barrier: &DoubleBarrier) -> Option<Result<Inside, BarrierError>> {
        let mut stopped = self.stopped.clone();
        let limit = match self.random.random_ratio(1, 8) {
            true => Duration::from_millis(self.random.random_range(0..20)),
            false => Duration::from_secs(60),
        };
        tokio::select! {
            entered = timeout(limit, barrier.enter()) => entered.ok(),
            _ = stopped.wait_for(|stopped| *stopped) => None,
        }
    }

    /// Does something inside, and leaves in one way or another.
    async fn stay(&mut self, index: usize, inside: Inside) {
        let round = inside.round();
        self.note(index, |stay, now| stay.entered = Some((now, round)));
        let work = Duration::from_millis(self.random.random_range(0..10));
        let _ = timeout(work, inside.lost()).await;
        self.note(index, |stay, now| stay.leaving = Some(now));
        if self.random.random_ratio(1, 10) {
            return drop(inside);
        }
        let mut stopped = self.stopped.clone();
        let left = tokio::select! {
            left = inside.leave() => left.is_ok(),
            _ = stopped.wait_for(|stopped| *stopped) => false,
        };
        if left {
            self.note(index, |stay, now| stay.left = Some(now));
        }
    }

    fn note(&self, index: usize, what: impl FnOnce(&mut Stay, Moment)) {
        let mut stays = self.stays.lock().unwrap();
        what(&mut stays[index], Moment::now());
    }
}
