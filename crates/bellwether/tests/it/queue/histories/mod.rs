//! Producers and consumers under random faults.

mod claims;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether::{Client, Error, ErrorKind, connect};
use bellwether_testkit::history::deliveries::{
    DeliveryStep, check_delivery, check_due, check_order,
};
use bellwether_testkit::history::{Pulse, What};
use bellwether_testkit::{Cut, Engine, Op};
use bellwether_torture::workload::shelf::{Shelf, Work, now_ms};
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::claims::Claims;
use crate::support::place::soon;
use crate::support::storm::{SESSION_TIMEOUT, Storm};

const PRODUCERS: usize = 2;
const CONSUMERS: usize = 3;

/// Time limit until everything is delivered after the faults have ended.
const RECOVERY_MAX: Duration = Duration::from_secs(20);

/// Maximum time of work on an item, and of a pause between puts.
const MOMENT_MAX: Duration = Duration::from_millis(20);

/// One item in this many takes longer than a session that is cut off survives.
const LONG_ONE_IN: u32 = 50;
const LONG: Duration = Duration::from_secs(2);

/// How long a consumer that did not run may still believe in its claim after it continues.
const GRACE: Duration = Duration::from_millis(250);

under_faults! {
    queue_is_right_under_faults: async |round| storm(Shelf::Queue, round).await,
    priority_queue_is_right_under_faults: async |round| storm(Shelf::Priority, round).await,
    delay_queue_is_right_under_faults: async |round| storm(Shelf::Delay, round).await,
    tasks_are_right_under_faults: async |round| storm(Shelf::Tasks, round).await,
    queue_keeps_its_order_over_lost_replies: async |round| {
        showers(Shelf::Queue, &round).await.check();
    },
    priority_queue_keeps_its_order_over_lost_replies: async |round| {
        showers(Shelf::Priority, &round).await.check();
    },
    delay_queue_keeps_its_order_over_lost_replies: async |round| {
        showers(Shelf::Delay, &round).await.check();
    },
}

/// State that all participants of a round share.
#[derive(Clone)]
struct Round {
    recipe: Shelf,
    path: String,
    steps: Arc<Mutex<Vec<DeliveryStep>>>,
    claims: Claims,
    /// The number of the producer or consumer.
    who: usize,
    stopped: watch::Receiver<bool>,
}

impl Round {
    fn new(recipe: Shelf, seed: u64) -> (Self, watch::Sender<bool>) {
        let (stop, stopped) = watch::channel(false);
        let round = Self {
            recipe,
            path: format!("/histories/{recipe:?}-{seed}"),
            steps: Arc::default(),
            claims: Claims::default(),
            who: 0,
            stopped,
        };
        (round, stop)
    }

    fn note(&self, step: DeliveryStep) {
        self.steps.lock().unwrap().push(step);
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    async fn until_stopped(&self) {
        let mut stopped = self.stopped.clone();
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }

    async fn produce(self, client: Client, mut random: StdRng, name: usize) {
        let place = self.recipe.at(&client, &self.path);
        for number in 0.. {
            if self.is_stopped() {
                break;
            }
            let rank = self.recipe.next_rank(&mut random);
            let item = format!("{rank} {name}.{number}");
            self.note(DeliveryStep::Putting { item: item.clone() });
            match place.put(rank, &item).await {
                Ok(()) => self.note(DeliveryStep::Put { item }),
                Err(Error {
                    kind: ErrorKind::OutcomeUnknown(_),
                    ..
                }) => {}
                Err(Error {
                    kind:
                        ErrorKind::SessionEnded | ErrorKind::NoSession(_) | ErrorKind::Disconnected(_),
                    ..
                }) => self.note(DeliveryStep::NotPut { item }),
                Err(error) => panic!("{error}: {error:?}"),
            }
            moment(&mut random).await;
        }
        drop(place);
        client.close().await;
    }

    /// Takes, works, and settles the item in one of the possible ways; `neatly`, always by acknowledging.
    async fn consume(self, client: Client, mut random: StdRng, neatly: bool) {
        let place = self.recipe.at(&client, &self.path);
        while !self.is_stopped() {
            self.note(DeliveryStep::Taking);
            let taken = tokio::select! {
                taken = place.take() => taken,
                () = self.until_stopped() => break,
            };
            match taken {
                Ok(Some(work)) => self.work(work, &mut random, neatly).await,
                Ok(None) => moment(&mut random).await,
                Err(
                    error @ Error {
                        kind:
                            ErrorKind::SessionEnded
                            | ErrorKind::NoSession(_)
                            | ErrorKind::Disconnected(_),
                        ..
                    },
                ) => eprintln!("{error}"),
                Err(error) => panic!("{error}: {error:?}"),
            }
        }
        drop(place);
        client.close().await;
    }

    async fn work(&self, work: Work, random: &mut StdRng, neatly: bool) {
        let (item, token) = (work.item(), work.hold().token().number());
        self.note(DeliveryStep::Delivered {
            item: item.clone(),
            node: work.hold().node().to_owned(),
            token,
            at_ms: now_ms(),
        });
        let note = |what| self.claims.note(&item, self.who, what);
        note(What::Granted { token, weight: 1 });
        // Some work lasts until its claim is lost, if its session expires.
        let is_long = !neatly && random.random_range(0..LONG_ONE_IN) == 0;
        let time = if is_long { LONG } else { MOMENT_MAX };
        let lost = tokio::select! {
            () = pause(time.mul_f64(random.random())) => false,
            () = work.hold().lost() => true,
        };
        note(match lost {
            true => What::Lost { token },
            false => What::Releasing { token },
        });
        match random.random_range(0..10) {
            0 if !neatly => return drop(work),
            // If that fails, the item is delivered again.
            1 if !neatly => return drop(work.fail().await),
            // A careless consumer continues although its claim is lost.
            2..7 if lost => return,
            _ => {}
        }
        self.note(DeliveryStep::Acking {
            item: item.clone(),
            token,
        });
        match work.succeed().await {
            Ok(()) => self.note(DeliveryStep::Acked { item, token }),
            Err(Error {
                kind: ErrorKind::LostWithSession,
                ..
            }) => {}
            Err(Error {
                kind: ErrorKind::NotHeld,
                ..
            }) => self.note(DeliveryStep::NotAcked { item, token }),
            Err(error) => panic!("{error}: {error:?}"),
        }
    }

    /// Waits until only dead letters are left, and records them.
    async fn until_empty(&self, engine: &Engine) {
        let client = connect(engine.connect_string()).await.unwrap();
        let place = self.recipe.at(&client, &self.path);
        let mut turns = tokio::time::interval(Duration::from_millis(50));
        let end = Instant::now() + RECOVERY_MAX;
        loop {
            turns.tick().await;
            let (items, dead) = place.left().await.unwrap();
            if items == 0 || Instant::now() > end {
                // If something is left, the check finds that it was lost.
                for item in dead {
                    self.note(DeliveryStep::Dead { item });
                }
                break;
            }
        }
        drop(place);
        client.close().await;
    }

    fn steps(&self) -> Vec<DeliveryStep> {
        self.steps.lock().unwrap().clone()
    }
}

/// All kinds of faults, for several producers and consumers.
async fn storm(recipe: Shelf, mut storm: Storm<'_>) {
    let seed = storm.seed;
    let mut before = storm.engine.census().await.unwrap();
    // Dead letters and done tasks stay.
    before.nodes = u64::MAX;
    let (round, stop) = Round::new(recipe, seed);
    let (producing, producing_stopped) = watch::channel(false);
    let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
    for who in 0..PRODUCERS + CONSUMERS {
        let address = storm.exposed().await;
        let client = connect(address).session_timeout(SESSION_TIMEOUT).await;
        let (client, random) = (client.unwrap(), storm.random(who));
        let round = Round {
            who,
            ..round.clone()
        };
        if who < PRODUCERS {
            let round = Round {
                stopped: producing_stopped.clone(),
                ..round
            };
            producers.spawn(round.produce(client, random, who));
        } else {
            consumers.spawn(round.consume(client, random, false));
        }
    }
    // All consumers are in this process.
    let pulse = Pulse::start({
        let recorder = storm.recorder.clone();
        move |since| {
            for who in PRODUCERS..PRODUCERS + CONSUMERS {
                recorder.record(who, What::Stalled { since });
            }
        }
    });
    storm.pass().await;

    producing.send_replace(true);
    soon(producers.join_all()).await;
    round.until_empty(storm.engine).await;
    stop.send_replace(true);
    soon(consumers.join_all()).await;
    drop(pulse);
    let faults = storm.recorder.history();
    if let Err(violation) = round.claims.check(&faults, seed, SESSION_TIMEOUT, GRACE) {
        panic!("{violation}");
    }
    let steps = round.steps();
    let count = |kind: fn(&DeliveryStep) -> bool| steps.iter().filter(|step| kind(step)).count();
    let acked = count(|step| matches!(step, DeliveryStep::Acked { .. }));
    let dead = count(|step| matches!(step, DeliveryStep::Dead { .. }));
    eprintln!("{acked} acknowledged, {dead} dead");
    let due = check_due(&steps, |item| recipe.due_ms(item));
    for verdict in [check_delivery(&steps), due] {
        if let Err(violation) = verdict {
            show(&steps, &violation);
            panic!("{violation} (seed {seed})");
        }
    }
    assert!(acked > 0, "nothing was done (seed {seed})");
    if let Err(left) = storm.engine.back_at(&before, RECOVERY_MAX).await {
        panic!("{left:#} (seed {seed})");
    }
}

/// The history of one producer and one consumer whose sessions last.
struct Shower {
    recipe: Shelf,
    seed: u64,
    steps: Vec<DeliveryStep>,
}

impl Shower {
    fn check(&self) {
        let Self {
            recipe,
            seed,
            steps,
        } = self;
        let order = check_order(steps, |item| recipe.rank(item));
        let due = check_due(steps, |item| recipe.due_ms(item));
        for verdict in [check_delivery(steps), order, due] {
            if let Err(violation) = verdict {
                show(steps, &violation);
                panic!("{violation} (seed {seed})");
            }
        }
    }
}

/// Lost requests, lost replies and cut connections, for one producer and one consumer: no session expires, so nothing excuses a wrong
/// order.
async fn showers(recipe: Shelf, storm: &Storm<'_>) -> Shower {
    const FAULTS: usize = 60;

    let seed = storm.seed;
    let (round, stop) = Round::new(recipe, seed);
    let (producing, producing_stopped) = watch::channel(false);
    let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
    let mut proxies = Vec::new();
    for who in 0..2 {
        let proxy = storm.proxy().await;
        let options = connect(proxy.connect_string()).session_timeout(Duration::from_secs(30));
        let (client, random) = (options.await.unwrap(), storm.random(who));
        let round = round.clone();
        if who == 0 {
            let round = Round {
                stopped: producing_stopped.clone(),
                ..round
            };
            producers.spawn(round.produce(client, random, who));
        } else {
            consumers.spawn(round.consume(client, random, true));
        }
        proxies.push(proxy);
    }
    let mut random = storm.random(2);
    for _ in 0..FAULTS {
        let proxy = &proxies[random.random_range(0..proxies.len())];
        let fault = match random.random_range(0..3) {
            0 => Some(proxy.swallow_reply(Op::Multi)),
            1 => Some(proxy.drop_request(Op::Multi)),
            _ => None,
        };
        match fault {
            Some(fault) => drop(tokio::time::timeout(MOMENT_MAX * 2, fault.happened()).await),
            None => proxy.cut(Cut::Reset).await,
        }
        moment(&mut random).await;
    }
    for proxy in &proxies {
        proxy.calm();
    }
    producing.send_replace(true);
    soon(producers.join_all()).await;
    round.until_empty(storm.engine).await;
    stop.send_replace(true);
    soon(consumers.join_all()).await;
    Shower {
        recipe,
        seed,
        steps: round.steps(),
    }
}

/// Prints the events of the item that a violation names first.
fn show(steps: &[DeliveryStep], violation: &str) {
    let item = violation.split(" was ").next().unwrap_or_default();
    for step in steps.iter().filter(|step| step.item() == Some(item)) {
        eprintln!("{step:?}");
    }
}

async fn moment(random: &mut StdRng) {
    pause(MOMENT_MAX.mul_f64(random.random())).await;
}

#[expect(clippy::disallowed_methods, reason = "stands for work")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
