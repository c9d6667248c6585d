//! Queues: nothing is lost, doubled, or delivered after its acknowledgement; one consumer at a time holds a claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::queue::{PutError, SettleError, TakeError};
use bellwether::{Claim, Client, DelayQueue, Queue, zk};
use bellwether_testkit::History;
use bellwether_testkit::history::{What, check_holds};
use rand::Rng as _;

use crate::plan::Plan;
use crate::recipe::Recipe;
use crate::stage::{Stage, hold_terms};
use crate::worker::{Gone, Worker};
use crate::world::Ms;

/// First in, first out.
#[derive(Debug, Clone)]
pub(super) struct Items {
    ledger: Arc<Mutex<Ledger>>,
    /// An operator deletes claims now and then.
    is_meddled_with: bool,
}

/// Items that must not be taken before they are due.
#[derive(Debug, Clone)]
pub(super) struct LateItems(Arc<Mutex<Ledger>>);

/// What is known about all items.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    last: u64,
    items: BTreeMap<String, Fate>,
    wrong: Option<String>,
}

#[derive(Debug, Default)]
struct Fate {
    is_put: bool,
    due: Ms,
    tokens: Vec<i64>,
    /// The claim that acknowledged it.
    acked_by: Option<i64>,
    /// Claims were deleted since it was put: two consumers may hold it.
    is_broken: bool,
    /// Claims with an acknowledgement whose result is unknown.
    doubts: BTreeSet<i64>,
}

/// Enough for all faults of a run.
pub(super) const ATTEMPTS_MAX: u32 = 1_000_000;

/// How many items workers let stand before they put no more.
const OPEN_MAX: usize = 300;

/// Maximum error of a worker's wall clock.
const DAY_OFFSET_MAX: Ms = 1_000;

impl Ledger {
    pub(super) fn begin_put(&mut self, due: Ms) -> String {
        self.last += 1;
        let item = format!("item {}", self.last);
        let fate = Fate {
            due,
            ..Fate::default()
        };
        self.items.insert(item.clone(), fate);
        item
    }

    pub(super) fn delivered(&mut self, item: &str, token: i64, now: Ms) {
        let Some(fate) = self.items.get_mut(item) else {
            self.wrong = Some(format!("{item} was delivered, but was never put"));
            return;
        };
        // If an operator has deleted a claim, its consumer may learn of the claim when a later one has acknowledged the item.
        let is_late = |acked: i64| fate.is_broken && token < acked;
        if fate.acked_by.is_some_and(|acked| !is_late(acked)) {
            self.wrong = Some(format!("{item} was delivered after its acknowledgement"));
        } else if now < fate.due {
            self.wrong = Some(format!("{item} was delivered {} ms early", fate.due - now));
        }
        fate.tokens.push(token);
    }

    /// Whether another item may be put. Every snapshot of the embedded server has all items.
    pub(super) fn has_room(&self) -> bool {
        let open = self.items.values().filter(|fate| fate.acked_by.is_none());
        open.count() < OPEN_MAX
    }

    /// An operator deleted claims.
    fn broken(&mut self) {
        for fate in self.items.values_mut() {
            fate.is_broken |= fate.acked_by.is_none();
        }
    }

    /// A claim is about to be settled: until the reply arrives, the result is unknown.
    pub(super) fn doubt(&mut self, item: &str, token: i64) {
        if let Some(fate) = self.items.get_mut(item) {
            fate.doubts.insert(token);
        }
    }

    /// A claim was not settled.
    pub(super) fn refused(&mut self, item: &str, token: i64) {
        if let Some(fate) = self.items.get_mut(item) {
            fate.doubts.remove(&token);
        }
    }

    pub(super) fn acked(&mut self, item: &str, token: i64) {
        let Some(fate) = self.items.get_mut(item) else {
            return;
        };
        if let Some(other) = fate.acked_by.replace(token) {
            let wrong = format!("{item} was acknowledged twice, by the claims {other} and {token}");
            self.wrong = Some(wrong);
        } else if fate.tokens.iter().any(|other| *other > token) {
            self.wrong = Some(format!("{item} was acknowledged by a stale claim"));
        }
    }

    fn is_lost(&self) -> Option<&str> {
        let is_lost =
            |fate: &Fate| fate.is_put && fate.acked_by.is_none() && fate.doubts.is_empty();
        let mut items = self.items.iter();
        items
            .find(|(_, fate)| is_lost(fate))
            .map(|(item, _)| &**item)
    }
}

pub(super) fn lock(ledger: &Mutex<Ledger>) -> MutexGuard<'_, Ledger> {
    ledger.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Works on an item, then acknowledges it, gives it back or drops the claim.
async fn consume(
    worker: &mut Worker,
    client: &Client,
    claim: Claim<String>,
    ledger: &Mutex<Ledger>,
) {
    let (item, token) = (claim.payload().clone(), claim.token().number());
    lock(ledger).delivered(&item, token, Stage::now());
    worker.note(What::Granted { token, weight: 1 });
    let is_lost = tokio::select! {
        biased;
        () = claim.lost() => true,
        () = worker.work_with(client) => false,
    };
    if is_lost {
        worker.note(What::Lost { token });
    } else {
        worker.note(What::Releasing { token });
    }
    match worker.random.random_range(0..6) {
        0 if !is_lost => drop(claim),
        1 if !is_lost => drop(claim.give_back("not now").await),
        // A consumer whose claim is lost tries too: the server must refuse it.
        _ => {
            lock(ledger).doubt(&item, token);
            match claim.ack().await {
                Ok(()) => lock(ledger).acked(&item, token),
                Err(SettleError::NotClaimed { .. }) => lock(ledger).refused(&item, token),
                Err(error) => worker.note(What::Failed(error.to_string())),
            }
        }
    }
}

/// Notes the result of a put.
pub(super) fn note_put(
    worker: &Worker,
    ledger: &Mutex<Ledger>,
    item: &str,
    put: Result<(), PutError>,
) -> Result<(), Gone> {
    match put {
        Ok(()) => {
            if let Some(fate) = lock(ledger).items.get_mut(item) {
                fate.is_put = true;
            }
            Ok(())
        }
        Err(PutError::SessionEnded { .. }) => Err(Gone),
        Err(error) => {
            worker.note(What::Failed(error.to_string()));
            Ok(())
        }
    }
}

/// Handles the result of a take. `claims` is the directory of claims.
pub(super) async fn note_take(
    worker: &mut Worker,
    client: &Client,
    ledger: &Mutex<Ledger>,
    claims: &str,
    taken: Result<Claim<String>, TakeError>,
) -> Result<(), Gone> {
    match taken {
        Ok(claim) => consume(worker, client, claim, ledger).await,
        Err(TakeError::SessionEnded { .. }) => return Err(Gone),
        Err(TakeError::TimedOut { .. }) => until_no_claim(worker, client, claims).await?,
        Err(error) => {
            worker.note(What::Failed(error.to_string()));
            worker.pause().await;
        }
    }
    Ok(())
}

/// Waits until this session has no claim. A take that was dropped deletes its claim in the background; if it did not, no other consumer
/// could take the item while the session lives, and this worker would make no progress.
async fn until_no_claim(worker: &mut Worker, client: &Client, claims: &str) -> Result<(), Gone> {
    let zk = client.raw();
    while !zk.state().is_ended() && !worker.is_stopped() {
        if let Ok(false) = has_claim(&zk, claims).await {
            return Ok(());
        }
        worker.pause().await;
    }
    Err(Gone)
}

async fn has_claim(zk: &zk::Client, claims: &str) -> Result<bool, zk::Error> {
    zk.sync(claims).await?;
    let names = match zk.children(claims).await {
        Err(zk::Error::NO_NODE) => Vec::new(),
        names => names?,
    };
    for name in names {
        let stat = zk.exists(&format!("{claims}/{name}")).await?;
        if stat.is_some_and(|stat| stat.ephemeral_owner == zk.session_id()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Checks the ledger, and that no item was held by two consumers at once.
pub(super) fn check(plan: &Plan, history: &History, ledger: &Mutex<Ledger>) -> Result<(), String> {
    let ledger = lock(ledger);
    if let Some(wrong) = &ledger.wrong {
        return Err(wrong.clone());
    }
    for (item, fate) in ledger
        .items
        .iter()
        .filter(|(_, fate)| fate.tokens.len() > 1 && !fate.is_broken)
    {
        let events = history.events().iter();
        let own = events.filter(|event| match event.what {
            What::Granted { token, .. }
            | What::Lost { token }
            | What::Releasing { token }
            | What::Dropping { token } => fate.tokens.contains(&token),
            _ => true,
        });
        let own = History::new(plan.seed, own.cloned().collect());
        check_holds(&own, &hold_terms(plan, 1)).map_err(|wrong| format!("{item}: {wrong}"))?;
    }
    Ok(())
}

/// Acknowledges a remaining item.
pub(super) async fn settle(claim: Claim<String>, ledger: &Mutex<Ledger>) {
    let (item, token) = (claim.payload().clone(), claim.token().number());
    lock(ledger).delivered(&item, token, Stage::now());
    if claim.ack().await.is_ok() {
        lock(ledger).acked(&item, token);
    }
}

/// Checks, when the queue is empty, that nothing was lost.
pub(super) fn check_all(ledger: &Mutex<Ledger>) -> Result<(), String> {
    match lock(ledger).is_lost() {
        Some(item) => Err(format!("{item} was lost")),
        None => Ok(()),
    }
}

impl Items {
    /// Deletes the claims of other consumers, as an operator could. These consumers must not settle their items.
    async fn take_claims_away(&self, client: &Client) {
        lock(&self.ledger).broken();
        let claims = client.raw().children("/sim/queue/claims").await;
        for name in claims.unwrap_or_default() {
            let claim = format!("/sim/queue/claims/{name}");
            // It may be deleted already, or the connection may fail first.
            let _ = client.raw().delete(&claim, None).await;
        }
        lock(&self.ledger).broken();
    }
}

impl Recipe for Items {
    const NAME: &'static str = "queue";

    fn new(plan: &Plan) -> Self {
        Self {
            ledger: Arc::default(),
            is_meddled_with: plan.seed.is_multiple_of(4),
        }
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let queue = Queue::<String>::new(client, "/sim/queue").attempts_max(ATTEMPTS_MAX);
        if self.is_meddled_with && worker.random.random_ratio(1, 10) {
            self.take_claims_away(client).await;
        }
        if worker.random.random_bool(0.5) && lock(&self.ledger).has_room() {
            // The second put uses the receipt of the first.
            for _ in 0..worker.random.random_range(1..=2) {
                let item = lock(&self.ledger).begin_put(0);
                let put = queue.put(&item).await.map(drop);
                note_put(worker, &self.ledger, &item, put)?;
            }
            return Ok(());
        }
        let limit = worker.moment();
        let taken = worker.unless_stopped(queue.take_timeout(limit)).await?;
        note_take(worker, client, &self.ledger, "/sim/queue/claims", taken).await
    }

    fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        check(plan, history, &self.ledger)
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let queue = Queue::<String>::new(client, "/sim/queue").attempts_max(ATTEMPTS_MAX);
        // By then claims of expired sessions are gone, and members have caught up.
        let limit = Duration::from_secs(60);
        while let Ok(claim) = queue.take_timeout(limit).await {
            settle(claim, &self.ledger).await;
        }
        check_all(&self.ledger)
    }

    fn may_stay(&self, path: &str) -> bool {
        // The directories of a queue.
        path.matches('/').count() <= 3 && !path.contains("item-")
    }
}

impl Recipe for LateItems {
    const NAME: &'static str = "delay-queue";

    fn new(_: &Plan) -> Self {
        Self(Arc::default())
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<(), Gone> {
        let queue = DelayQueue::<String>::new(client, "/sim/delay").attempts_max(ATTEMPTS_MAX);
        if worker.random.random_bool(0.5) {
            let delay = worker.random.random_range(0..10_000);
            // Clocks of workers differ by less than this.
            let due = (Stage::now() + delay).saturating_sub(2 * DAY_OFFSET_MAX);
            let item = lock(&self.0).begin_put(due);
            let delay = Duration::from_millis(delay);
            let put = queue.put_after(delay, &item).await.map(drop);
            return note_put(worker, &self.0, &item, put);
        }
        let limit = worker.moment();
        let taken = worker.unless_stopped(queue.take_timeout(limit)).await?;
        note_take(worker, client, &self.0, "/sim/delay/claims", taken).await
    }

    fn check(&self, plan: &Plan, history: &History) -> Result<(), String> {
        check(plan, history, &self.0)
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let queue = DelayQueue::<String>::new(client, "/sim/delay").attempts_max(ATTEMPTS_MAX);
        // By then the last item is due.
        let limit = Duration::from_secs(20);
        while let Ok(claim) = queue.take_timeout(limit).await {
            settle(claim, &self.0).await;
        }
        check_all(&self.0)
    }

    fn may_stay(&self, path: &str) -> bool {
        path.matches('/').count() <= 3 && !path.contains("item-")
    }
}
