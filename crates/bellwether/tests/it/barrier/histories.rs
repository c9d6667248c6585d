//! Members of a double barrier under random faults.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::barrier::BarrierGuard;
use bellwether::{Client, DoubleBarrier, Error, ErrorKind, connect};
use bellwether_testkit::history::Moment;
use bellwether_testkit::history::rounds::{RoundStay, check_rounds};
use bellwether_testkit::{Cut, FaultProxy, TestServer};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::place::soon;
use crate::support::storm::{SESSION_TIMEOUT, Storm};

/// One more than the size of a round, so that one is always surplus.
const MEMBERS: usize = 4;
const SIZE: usize = 3;

/// How long a member that gave up while it was cut off may count: until its session expires, a few ticks late on a busy machine.
const LINGER: Duration = Duration::from_secs(2);

/// Time limit for all members to enter and leave once after the faults have ended.
const RECOVERY_MAX: Duration = Duration::from_secs(15);

const PATH: &str = "/histories/barrier";

under_faults! {
    double_barrier_is_right_under_faults: meet,
}

async fn meet(mut storm: Storm<'_>) {
    let (seed, path) = (storm.seed, format!("{PATH}-{}", storm.seed));
    let mut crew = Crew::new(&path);
    for who in 0..MEMBERS {
        let address = storm.exposed().await;
        crew.add(who, address, storm.random(who));
    }
    // All members have met once, and the permanent nodes of the barrier exist.
    crew.everybody_met(Moment::now()).await;
    storm.pass().await;
    crew.everybody_met(Moment::now()).await;
    let faults = storm.recorder.history();
    let mut stays = crew.stop().await;
    for stay in &mut stays {
        stay.excuse(faults.events(), SESSION_TIMEOUT);
    }
    let rounds: Vec<_> = stays.iter().filter_map(|stay| stay.left).collect();
    eprintln!("{} stays, {} in order", stays.len(), rounds.len());
    if let Err(wrong) = check_rounds(&stays, SIZE, LINGER) {
        panic!("{wrong} (seed {seed})");
    }
    // Nodes of an abandoned session are deleted when the server expires it.
    let mut turns = tokio::time::interval(Duration::from_millis(20));
    soon(async {
        loop {
            turns.tick().await;
            let census = storm.engine.census().await.unwrap();
            if (census.ephemerals, census.watches) == (0, 0) {
                return;
            }
        }
    })
    .await;
    // The path and the directory of members stay; and the last round, if no member saw it end.
    let outside = connect(storm.engine.connect_string()).await.unwrap();
    let left = soon(outside.raw().children(&path)).await.unwrap();
    for name in left {
        let path = format!("{path}/{name}");
        let children = soon(outside.raw().children(&path)).await.unwrap();
        assert!(
            children.iter().all(|name| name.starts_with("ready-")),
            "{path} has {children:?} (seed {seed})"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn members_wait_for_the_last_however_often_they_are_woken() {
    let server = TestServer::start().await.unwrap();
    let mut crew = Crew::new(PATH);
    let mut proxies = Vec::new();
    for who in 0..2 {
        let proxy = FaultProxy::start(server.address()).await.unwrap();
        let random = StdRng::seed_from_u64(who as u64);
        crew.add(who, proxy.connect_string(), random);
        proxies.push(proxy);
    }
    // Two of three members, woken repeatedly by a new connection.
    for _ in 0..20 {
        for proxy in &proxies {
            proxy.cut(Cut::Reset).await;
        }
        soon(async {
            while proxies.iter().any(|proxy| proxy.connections_now() == 0) {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    if let Err(wrong) = check_rounds(&crew.stop().await, SIZE, LINGER) {
        panic!("{wrong}");
    }
}

/// The members, and what they have done so far.
struct Crew {
    path: String,
    members: JoinSet<()>,
    stays: Arc<Mutex<Vec<RoundStay>>>,
    stopped: watch::Sender<bool>,
}

impl Crew {
    fn new(path: &str) -> Self {
        Self {
            path: path.to_owned(),
            members: JoinSet::new(),
            stays: Arc::default(),
            stopped: watch::Sender::default(),
        }
    }

    fn add(&mut self, who: usize, address: String, random: StdRng) {
        let member = Member {
            who,
            path: self.path.clone(),
            address,
            random,
            stays: Arc::clone(&self.stays),
            stopped: self.stopped.subscribe(),
        };
        self.members.spawn(member.run());
    }

    fn stays(&self) -> Vec<RoundStay> {
        self.stays.lock().unwrap().clone()
    }

    /// Waits until each member has entered and left normally since then.
    async fn everybody_met(&self, since: Moment) {
        let mut turns = tokio::time::interval(Duration::from_millis(20));
        let met = async {
            let met = |who: usize| {
                let stays = self.stays();
                let mut own = stays.iter().filter(|stay| stay.who == who);
                own.any(|stay| stay.arrived >= since && stay.left.is_some())
            };
            while !(0..self.members.len()).all(met) {
                turns.tick().await;
            }
        };
        if timeout(RECOVERY_MAX, met).await.is_err() {
            let stays = self.stays();
            let last = |who| stays.iter().rfind(|stay| stay.who == who);
            let last: Vec<_> = (0..self.members.len()).filter_map(last).collect();
            panic!("not all members have met; their last stays are {last:#?}");
        }
    }

    async fn stop(mut self) -> Vec<RoundStay> {
        self.stopped.send_replace(true);
        while let Some(ended) = soon(self.members.join_next()).await {
            ended.unwrap();
        }
        self.stays()
    }
}

struct Member {
    who: usize,
    path: String,
    address: String,
    random: StdRng,
    stays: Arc<Mutex<Vec<RoundStay>>>,
    stopped: watch::Receiver<bool>,
}

impl Member {
    /// Uses one session after the other.
    async fn run(mut self) {
        while !*self.stopped.borrow() {
            let session = connect(&self.address).session_timeout(SESSION_TIMEOUT);
            if let Ok(client) = session.await {
                self.use_session(&client).await;
                client.close().await;
            }
        }
    }

    async fn use_session(&mut self, client: &Client) {
        let barrier = DoubleBarrier::new(client, &self.path, SIZE);
        let session = client.session_id();
        while !*self.stopped.borrow() && client.session_id() == session {
            let index = {
                let mut stays = self.stays.lock().unwrap();
                stays.push(RoundStay::begin(self.who));
                stays.len() - 1
            };
            match self.enter(&barrier).await {
                Some(Ok(inside)) => self.stay(index, inside).await,
                Some(Err(Error {
                    kind: ErrorKind::SessionEnded,
                    ..
                })) => {
                    self.note(index, |stay, now| stay.gave_up = Some(now));
                    return;
                }
                Some(Err(_)) | None => self.note(index, |stay, now| stay.gave_up = Some(now)),
            }
        }
    }

    /// `None` if it gave up, at whatever point.
    async fn enter(&mut self, barrier: &DoubleBarrier) -> Option<Result<BarrierGuard, Error>> {
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

    /// Works inside, and leaves in one of several ways.
    async fn stay(&mut self, index: usize, inside: BarrierGuard) {
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

    fn note(&self, index: usize, what: impl FnOnce(&mut RoundStay, Moment)) {
        let mut stays = self.stays.lock().unwrap();
        what(&mut stays[index], Moment::now());
    }
}
