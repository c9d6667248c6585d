//! Queues: nothing is lost, doubled, early or delivered after its end, the order is kept, and one consumer at a time holds a claim.

use std::error::Error as _;
use std::fmt;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bellwether::queue::{ItemId, Order, OrderedQueue};
use bellwether::{Claim, Client, Error, ErrorKind};
use bellwether_client::environment;
use bellwether_testkit::History;
use bellwether_testkit::history::What;
use futures_util::FutureExt as _;
use futures_util::future::join;

use rand::Rng as _;
use rand::rngs::StdRng;

use super::delivery_order::{DAY_OFFSET_MAX, Sorted, Taken, View};
use super::ledger::{ATTEMPTS_MAX, ItemEnd, Ledger, check, lock, note_put};
use super::queue_nodes::{left, look, until_no_claim};
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::stage::Stage;
use crate::worker::{Gone, Phase, Worker};
use crate::world::Ms;

/// A kind of queue.
pub(crate) trait QueueKind: Clone + fmt::Debug + Send + Sync + 'static {
    /// The order of the queue.
    type Order: Order;

    const NAME: &'static str;
    const PATH: &'static str;
    const SORTED: Sorted;

    /// How many items are put at once, at most.
    const BATCH_MAX: usize;

    /// Draws the rank of an item.
    fn rank(random: &mut StdRng) -> u64;

    /// Puts items with their ranks.
    fn put(
        queue: &OrderedQueue<Self::Order, String>,
        items: &[(u64, String)],
    ) -> impl Future<Output = Result<Vec<ItemId>, Error>> + Send;
}

/// Producers and consumers of a queue.
#[derive(Debug, Clone)]
pub(crate) struct Items<K> {
    pub(crate) ledger: Arc<Mutex<Ledger>>,
    /// An operator deletes claims now and then.
    pub(crate) is_meddled_with: bool,
    /// Only the first worker takes items: then the order is strict.
    has_one_consumer: bool,
    kind: PhantomData<K>,
}

/// What is known about a handle and its present take.
#[derive(Debug, Clone, Copy)]
struct Taker {
    handle: u64,
    /// What the session saw before the handle was made.
    view: Option<(i64, View)>,
    begun: Ms,
}

/// How long a consumer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// It only looks.
    Not,
    Limited,
    /// A missed wake-up shows as missing progress.
    Endless,
    /// It takes several items, and drops the take after a time.
    Many,
}

/// Most items of one take. The library claims sixteen together.
const TAKEN_MAX: usize = 20;

/// Time limit for an item at the end: by then all claims are over, and all items are due.
const END_LIMIT: Duration = Duration::from_secs(60);

impl<K: QueueKind> Items<K> {
    fn queue(client: &Client) -> OrderedQueue<K::Order, String> {
        OrderedQueue::new(client, K::PATH).attempts_max(ATTEMPTS_MAX)
    }

    pub(crate) fn claims() -> String {
        format!("{}/claims", K::PATH)
    }

    async fn put(&self, worker: &mut Worker, queue: &OrderedQueue<K::Order, String>) -> Round {
        let count = match worker.random.random_ratio(1, 4) {
            true => worker.random.random_range(1..=K::BATCH_MAX),
            false => 1,
        };
        let ranks = (0..count).map(|_| K::rank(&mut worker.random)).collect();
        let items = lock(&self.ledger).begin_put(ranks);
        let put = K::put(queue, &items).await;
        note_put(worker, &self.ledger, &items, put.map(drop))
    }

    /// Takes one item or several, and works on them.
    async fn take(
        &self,
        worker: &mut Worker,
        client: &Client,
        queue: &OrderedQueue<K::Order, String>,
        taker: Taker,
        wait: Wait,
    ) -> Result<Round, Gone> {
        let limit = worker.moment();
        let taken = match wait {
            Wait::Not => {
                let taken = worker.unless_stopped(queue.try_take()).await?;
                taken.map(Vec::from_iter)
            }
            Wait::Limited => {
                let taken = worker.unless_stopped(queue.take_timeout(limit)).await?;
                taken.map(|claim| vec![claim])
            }
            Wait::Endless => {
                let taken = self.take_endless(worker, queue).await?;
                taken.map(|claim| vec![claim])
            }
            Wait::Many => {
                let max = worker.random.random_range(2..=TAKEN_MAX);
                let many = within(limit, queue.take_many(max));
                match worker.unless_stopped(many).await? {
                    Some(taken) => taken,
                    None => Ok(Vec::new()),
                }
            }
        };
        match taken {
            Ok(claims) if !claims.is_empty() => {
                let mut held = Vec::new();
                for (place, claim) in claims.into_iter().enumerate() {
                    // A claim may be lost while others of its batch are made.
                    let is_lost = wait == Wait::Many && claim.lost().now_or_never().is_some();
                    if is_lost {
                        lock(&self.ledger).break_claim_of(&claim.id().to_string());
                    }
                    self.delivered(client, taker, &claim, place == 0);
                    if is_lost {
                        continue;
                    }
                    let token = claim.token().number();
                    worker.note(What::Granted { token, weight: 1 });
                    held.push(claim);
                }
                self.consume(worker, client, held).await?;
                return Ok(Round::Done);
            }
            Ok(_)
            | Err(Error {
                kind: ErrorKind::TimedOut { .. },
                ..
            }) => {
                until_no_claim(worker, client, &Self::claims()).await?;
            }
            Err(error) => {
                worker.failed(&error);
                worker.pause().await;
            }
        }
        Ok(Round::Failed)
    }

    /// Waits for an item without a limit. When the faults are over, puts an item too: all workers may be waiting.
    async fn take_endless(
        &self,
        worker: &mut Worker,
        queue: &OrderedQueue<K::Order, String>,
    ) -> Result<Result<Claim<String>, Error>, Gone> {
        let mut phase = worker.phase.clone();
        let mut taking = pin!(queue.take());
        tokio::select! {
            biased;
            taken = &mut taking => return Ok(taken),
            _ = phase.wait_for(|phase| *phase >= Phase::Calm) => {}
        }
        let stopped = worker.stopped();
        let taken = async {
            tokio::select! {
                biased;
                taken = taking => Ok(taken),
                () = stopped => Err(Gone),
            }
        };
        let (taken, _) = join(taken, self.put(worker, queue)).await;
        taken
    }

    fn delivered(&self, client: &Client, taker: Taker, claim: &Claim<String>, is_first: bool) {
        let session = client.raw().session_id();
        let view = taker.view.filter(|(of, _)| *of == session);
        let taken = Taken {
            token: claim.token().number(),
            attempts: claim.attempts(),
            begun: taker.begun,
            got: Stage::now(),
            handle: taker.handle,
            is_first,
            view: view.map(|(_, view)| view),
            is_settled: false,
            returned: None,
        };
        // The clock of the consumer decides, and it is looked at after the claim.
        let clock = (K::SORTED == Sorted::ByDue).then(environment::epoch_ms);
        let id = claim.id().to_string();
        lock(&self.ledger).delivered(claim.payload(), id, taken, clock);
    }
}

impl<K: QueueKind> Recipe for Items<K> {
    const NAME: &'static str = K::NAME;

    fn new(plan: &Plan) -> Self {
        Self {
            ledger: Arc::new(Mutex::new(Ledger::new(K::SORTED))),
            is_meddled_with: plan.seed.is_multiple_of(4),
            has_one_consumer: plan.seed % 5 == 1,
            kind: PhantomData,
        }
    }

    fn directories(&self) -> Vec<String> {
        vec![format!("{}/line", K::PATH)]
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let queue = Self::queue(client);
        if self.is_meddled_with && worker.random.random_ratio(1, 10) {
            self.take_claims_away(client).await;
        }
        let is_calm = worker.is_calm();
        let is_consumer = !self.has_one_consumer || worker.who == 0;
        let has_room = lock(&self.ledger).has_room();
        if !is_consumer {
            if !has_room {
                worker.pause().await;
            }
            return match has_room || is_calm {
                true => Ok(self.put(worker, &queue).await),
                false => Ok(Round::Failed),
            };
        }
        // When the faults are over, each worker puts an item and takes one: nobody waits in vain.
        if is_calm || (worker.random.random_bool(0.5) && has_room) {
            // The second put uses the receipt of the first.
            for _ in 0..worker.random.random_range(1..=2) {
                if self.put(worker, &queue).await == Round::Failed {
                    return Ok(Round::Failed);
                }
            }
            if !is_calm && !self.has_one_consumer {
                return Ok(Round::Done);
            }
        }
        let mut taker = Taker {
            handle: worker.random.random(),
            view: match worker.random.random_bool(0.5) {
                true => look(client, &Self::claims()).await,
                false => None,
            },
            begun: Stage::now(),
        };
        // Later takes use what the handle has read ahead.
        let count = match is_calm {
            true => 1,
            false => worker.random.random_range(1..=4),
        };
        let mut ended = Round::Failed;
        for _ in 0..count {
            let wait = match worker.random.random_range(0..12) {
                _ if worker.is_calm() => Wait::Endless,
                0 => Wait::Endless,
                1 => Wait::Not,
                2..4 => Wait::Many,
                _ => Wait::Limited,
            };
            taker.begun = Stage::now();
            let taken = self.take(worker, client, &queue, taker, wait).await?;
            if taken == Round::Failed {
                return Ok(ended);
            }
            ended = Round::Done;
        }
        Ok(ended)
    }

    fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        check(plan, history, &self.ledger)
    }

    /// One consumer takes the rest: every item, in order, once.
    async fn finish(&self, client: &Client) -> Result<(), String> {
        // Items that were given back are due then.
        pass(Duration::from_millis(DAY_OFFSET_MAX)).await;
        let left = left(&client.raw(), K::PATH).await;
        let left = left.map_err(|error| format!("no last list: {error}"))?;
        let view = look(client, &Self::claims()).await;
        let queue = Self::queue(client);
        let mut left = left.into_iter();
        loop {
            let taker = Taker {
                handle: u64::MAX,
                view,
                begun: Stage::now(),
            };
            let next = left.next();
            let claim = match (queue.take_timeout(END_LIMIT).await, &next) {
                (
                    Err(Error {
                        kind: ErrorKind::TimedOut { .. },
                        ..
                    }),
                    None,
                ) => break,
                (Ok(claim), Some(next)) if claim.id().to_string() == *next => claim,
                (Ok(claim), _) => {
                    let item = claim.payload();
                    return Err(format!(
                        "{item} was delivered at the end instead of {next:?}"
                    ));
                }
                (Err(error), _) => {
                    let reason = error.source().map(ToString::to_string);
                    return Err(format!("no item at the end: {error}: {reason:?}"));
                }
            };
            self.delivered(client, taker, &claim, true);
            let (item, token) = (claim.payload().clone(), claim.token().number());
            let acked = claim.ack().await;
            acked.map_err(|error| format!("{item} was not acknowledged at the end: {error}"))?;
            lock(&self.ledger).ended(&item, token, ItemEnd::Acked);
        }
        let letters = queue.dead_letters().await;
        let letters = letters.map_err(|error| format!("no dead letters: {error}"))?;
        for letter in &letters {
            match queue.forget(letter).await {
                Ok(true) => {}
                forgotten => return Err(format!("a dead letter stays: {forgotten:?}")),
            }
        }
        let letters = letters.into_iter().map(|letter| letter.payload);
        let letters: Vec<String> = letters
            .map(|payload| String::from_utf8_lossy(&payload).into_owned())
            .collect();
        let mut ledger = lock(&self.ledger);
        ledger.check_dead(&letters)?;
        ledger.check_end()
    }

    fn may_stay(&self, path: &str) -> bool {
        // The directories of a queue.
        path.matches('/').count() <= 3
    }
}

/// Drops a future after a time.
async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(limit, future).await.ok()
}

#[expect(clippy::disallowed_methods, reason = "clocks differ, in virtual time")]
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}
