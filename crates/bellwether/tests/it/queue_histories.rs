//! Producers and consumers, each behind a fault proxy of its own, under random faults.
//!
//! `BELLWETHER_HISTORIES_SECONDS` makes each test go on for so long, round after round, each with the next seed;
//! `BELLWETHER_HISTORIES_SEED` is the first one.

mod checks;
mod claims;
mod recipe;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bellwether::{Client, PutError, Sabotage, SettleError, TakeError, connect};
use bellwether_testkit::history::{Pulse, What};
use bellwether_testkit::{
    Climate, Cut, Engine, FaultProxy, Forecast, Op, Recorder, Target, Weather,
};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::checks::{Event, History};
use self::claims::Claims;
use self::recipe::{Recipe, Work, now_ms};
use crate::place::soon;
use crate::weather_settings;

const PRODUCERS: usize = 2;
const CONSUMERS: usize = 3;
const SESSION_TIMEOUT: Duration = Duration::from_secs(1);

/// How long faults go on in one round.
const ROUND: Duration = Duration::from_secs(5);

/// How long it may take until everything is delivered when the faults have ended.
const RECOVERY_MAX: Duration = Duration::from_secs(20);

/// The longest work on an item, and the longest pause between puts.
const MOMENT_MAX: Duration = Duration::from_millis(20);

/// One work in so many may take this long: more than a session lasts that is cut off.
const LONG_ONE_IN: u32 = 50;
const LONG: Duration = Duration::from_secs(2);

/// How long a consumer that did not run may believe in its claim when it goes on.
const GRACE: Duration = Duration::from_millis(250);

const CLIMATE: Climate = Climate {
    contenders: PRODUCERS + CONSUMERS,
    session_timeout: SESSION_TIMEOUT,
    calm_max: Duration::from_millis(300),
};

macro_rules! under_faults {
    ($($name:ident: $run:expr,)*) => {
        mod embedded {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                rounds(Engine::embedded().await.unwrap(), $run).await;
            })*
        }

        mod apache {
            use super::*;

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                rounds(Engine::apache().await.unwrap(), $run).await;
            })*
        }
    };
}

under_faults! {
    queue_is_right_under_faults: async |engine, seed| storm(Recipe::Queue, engine, seed).await,
    priority_queue_is_right_under_faults: async |engine, seed| storm(Recipe::Priority, engine, seed).await,
    delay_queue_is_right_under_faults: async |engine, seed| storm(Recipe::Delay, engine, seed).await,
    tasks_are_right_under_faults: async |engine, seed| storm(Recipe::Tasks, engine, seed).await,
    queue_keeps_its_order_over_lost_replies: async |engine, seed| {
        showers(Recipe::Queue, engine, seed, None).await.check();
    },
    priority_queue_keeps_its_order_over_lost_replies: async |engine, seed| {
        showers(Recipe::Priority, engine, seed, None).await.check();
    },
    delay_queue_keeps_its_order_over_lost_replies: async |engine, seed| {
        showers(Recipe::Delay, engine, seed, None).await.check();
    },
}

#[tokio::test(flavor = "multi_thread")]
async fn retrying_blindly_would_be_noticed() {
    let mut engine = Engine::embedded().await.unwrap();
    for seed in 0..10 {
        let sabotage = Some(Sabotage::RetryBlindly);
        let shower = showers(Recipe::Queue, &mut engine, seed, sabotage).await;
        if let Err(violation) = shower.history.check_delivery() {
            assert!(
                violation.to_string().ends_with("was put twice"),
                "{violation}"
            );
            return;
        }
    }
    panic!("it was not noticed");
}

#[tokio::test(flavor = "multi_thread")]
async fn ignoring_due_times_would_be_noticed() {
    let mut engine = Engine::embedded().await.unwrap();
    for seed in 0..10 {
        let sabotage = Some(Sabotage::IgnoreDueTime);
        let shower = showers(Recipe::Delay, &mut engine, seed, sabotage).await;
        // Where consumers are busy, an item may be due by the time that one of them takes it.
        if let Err(violation) = shower.history.check_due(|item| Recipe::Delay.due_ms(item)) {
            assert!(violation.to_string().contains("was delivered early"));
            return;
        }
    }
    panic!("it was not noticed");
}

async fn rounds(mut engine: Engine, run: impl AsyncFn(&mut Engine, u64)) {
    weather_settings::rounds(async |seed| run(&mut engine, seed).await).await;
}

/// What all who take part in a round share.
#[derive(Clone)]
struct Round {
    recipe: Recipe,
    path: String,
    events: Arc<Mutex<Vec<Event>>>,
    claims: Claims,
    /// The number of the producer or consumer.
    who: usize,
    stopped: watch::Receiver<bool>,
}

impl Round {
    fn new(recipe: Recipe, seed: u64) -> (Self, watch::Sender<bool>) {
        let (stop, stopped) = watch::channel(false);
        let round = Self {
            recipe,
            path: format!("/histories/{recipe:?}-{seed}"),
            events: Arc::default(),
            claims: Claims::default(),
            who: 0,
            stopped,
        };
        (round, stop)
    }

    fn note(&self, event: Event) {
        self.events.lock().unwrap().push(event);
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }

    async fn until_stopped(&self) {
        let mut stopped = self.stopped.clone();
        let _ = stopped.wait_for(|stopped| *stopped).await;
    }

    /// The next session when this one has ended.
    async fn follow(&self, client: &mut Client) {
        while let Err(error) = client.successor().await.map(|next| *client = next) {
            eprintln!("no session: {error}");
            if self.is_stopped() {
                return;
            }
        }
    }

    async fn produce(self, mut client: Client, mut random: StdRng, name: usize) {
        let mut place = self.recipe.at(&client, &self.path);
        for number in 0.. {
            if self.is_stopped() {
                break;
            }
            let rank = self.recipe.next_rank(&mut random);
            let item = format!("{rank} {name}.{number}");
            self.note(Event::Putting(item.clone()));
            let event = match place.put(rank, &item).await {
                Ok(()) => Event::Put(item),
                Err(PutError::OutcomeUnknown { .. }) => Event::PutUnknown(item),
                Err(PutError::SessionEnded { .. } | PutError::Disconnected { .. }) => {
                    Event::NotPut(item)
                }
                Err(error) => panic!("{error}: {error:?}"),
            };
            self.note(event);
            if client.is_ended() {
                self.follow(&mut client).await;
                place = self.recipe.at(&client, &self.path);
            }
            moment(&mut random).await;
        }
        drop(place);
        client.close().await;
    }

    /// Takes, works, and ends the work in one of the ways there are; `neatly`, always the good one.
    async fn consume(self, mut client: Client, mut random: StdRng, neatly: bool) {
        let mut place = self.recipe.at(&client, &self.path);
        while !self.is_stopped() {
            self.note(Event::Taking);
            let taken = tokio::select! {
                taken = place.take() => taken,
                () = self.until_stopped() => break,
            };
            match taken {
                Ok(Some(work)) => self.work(work, &mut random, neatly).await,
                Ok(None) => moment(&mut random).await,
                Err(TakeError::SessionEnded { .. }) => {
                    self.follow(&mut client).await;
                    place = self.recipe.at(&client, &self.path);
                }
                Err(error @ TakeError::Disconnected { .. }) => eprintln!("{error}"),
                Err(error) => panic!("{error}: {error:?}"),
            }
        }
        drop(place);
        client.close().await;
    }

    async fn work(&self, work: Work, random: &mut StdRng, neatly: bool) {
        let (item, token) = (work.item(), work.hold().token());
        self.note(Event::Delivered {
            item: item.clone(),
            node: work.hold().node().to_owned(),
            token,
            at_ms: now_ms(),
        });
        let note = |what| self.claims.note(&item, self.who, what);
        note(What::Granted { token, weight: 1 });
        // Some work lasts until its claim is lost, if its session ends.
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
            // A careless one goes on although the claim is lost.
            2..7 if lost => return,
            _ => {}
        }
        self.note(Event::Acking {
            item: item.clone(),
            token,
        });
        match work.succeed().await {
            Ok(()) => self.note(Event::Acked { item, token }),
            Err(SettleError::SessionEnded { .. }) => self.note(Event::AckUnknown { item }),
            Err(SettleError::NotClaimed { .. }) => {}
            Err(error) => panic!("{error}: {error:?}"),
        }
    }

    /// Waits until nothing is left but dead letters, and notes those.
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
                    self.note(Event::Dead { item });
                }
                break;
            }
        }
        drop(place);
        client.close().await;
    }

    fn history(&self) -> History {
        History(self.events.lock().unwrap().clone())
    }
}

/// All kinds of faults, to several producers and consumers.
async fn storm(recipe: Recipe, engine: &mut Engine, seed: u64) {
    let mut before = engine.census().await.unwrap();
    // The dead and the done stay.
    before.nodes = u64::MAX;
    let (round, stop) = Round::new(recipe, seed);
    let (producing, producing_stopped) = watch::channel(false);
    let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
    let mut targets = Vec::new();
    for who in 0..PRODUCERS + CONSUMERS {
        let proxy = FaultProxy::start(engine.connect_string()).await.unwrap();
        let address = proxy.connect_string();
        let client = connect(address).session_timeout(SESSION_TIMEOUT).await;
        let (client, random) = (client.unwrap(), random(seed, who));
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
        targets.push(Arc::new(Target {
            proxy,
            process: None,
        }));
    }
    let recorder = Recorder::new(seed);
    // All consumers are in this process.
    let pulse = Pulse::start({
        let recorder = recorder.clone();
        move |since| {
            for who in PRODUCERS..PRODUCERS + CONSUMERS {
                recorder.record(who, What::Stalled { since });
            }
        }
    });
    let mut weather = Weather {
        targets: &targets,
        engine,
        recorder: &recorder,
    };
    let forecast = Forecast::new(seed, CLIMATE);
    weather.pass(forecast, ROUND).await.unwrap();

    producing.send_replace(true);
    soon(producers.join_all()).await;
    round.until_empty(engine).await;
    stop.send_replace(true);
    soon(consumers.join_all()).await;
    drop(pulse);
    let faults = recorder.history();
    if let Err(violation) = round.claims.check(&faults, seed, SESSION_TIMEOUT, GRACE) {
        panic!("{violation}");
    }
    let history = round.history();
    let count = |kind: fn(&Event) -> bool| history.0.iter().filter(|event| kind(event)).count();
    let acked = count(|event| matches!(event, Event::Acked { .. }));
    let dead = count(|event| matches!(event, Event::Dead { .. }));
    eprintln!("{acked} acknowledged, {dead} dead");
    let due = history.check_due(|item| recipe.due_ms(item));
    for verdict in [history.check_delivery(), due] {
        if let Err(violation) = verdict {
            show(&history, &violation.to_string());
            panic!("{violation} (seed {seed})");
        }
    }
    assert!(acked > 0, "nothing was done (seed {seed})");
    if let Err(left) = engine.back_at(&before, RECOVERY_MAX).await {
        panic!("{left:#} (seed {seed})");
    }
}

/// The history of one producer and one consumer whose sessions last.
struct Shower {
    recipe: Recipe,
    seed: u64,
    history: History,
}

impl Shower {
    fn check(&self) {
        let Self {
            recipe,
            seed,
            history,
        } = self;
        let order = history.check_order(|item| recipe.rank(item));
        let due = history.check_due(|item| recipe.due_ms(item));
        for verdict in [history.check_delivery(), order, due] {
            if let Err(violation) = verdict {
                show(history, &violation.to_string());
                panic!("{violation} (seed {seed})");
            }
        }
    }
}

/// Lost requests and replies and cut connections, to one producer and one consumer: no session ends, so nothing excuses a
/// wrong order.
async fn showers(
    recipe: Recipe,
    engine: &mut Engine,
    seed: u64,
    sabotage: Option<Sabotage>,
) -> Shower {
    const FAULTS: usize = 60;

    let (round, stop) = Round::new(recipe, seed);
    let (producing, producing_stopped) = watch::channel(false);
    let (mut producers, mut consumers) = (JoinSet::new(), JoinSet::new());
    let mut proxies = Vec::new();
    for who in 0..2 {
        let proxy = FaultProxy::start(engine.connect_string()).await.unwrap();
        let mut options = connect(proxy.connect_string()).session_timeout(Duration::from_secs(30));
        if let Some(sabotage) = sabotage {
            options = options.sabotage(sabotage);
        }
        let (client, random) = (options.await.unwrap(), random(seed, who));
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
    let mut random = random(seed, 2);
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
    round.until_empty(engine).await;
    stop.send_replace(true);
    soon(consumers.join_all()).await;
    Shower {
        recipe,
        seed,
        history: round.history(),
    }
}

/// What happened to the item that a violation begins with.
fn show(history: &History, violation: &str) {
    let item = violation.split(" was ").next().unwrap_or_default();
    for event in &history.0 {
        if format!("{event:?}").contains(&format!("\"{item}\"")) {
            eprintln!("{event:?}");
        }
    }
}

fn random(seed: u64, who: usize) -> StdRng {
    StdRng::seed_from_u64(seed.wrapping_add(who as u64))
}

async fn moment(random: &mut StdRng) {
    pause(MOMENT_MAX.mul_f64(random.random())).await;
}

#[expect(clippy::disallowed_methods, reason = "stands for work")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
