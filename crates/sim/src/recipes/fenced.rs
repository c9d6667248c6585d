//! Registers that are written under a hold by fenced writes: a write of a hold that was over takes no effect, and an acknowledged write is
//! there.
//!
//! In half of the runs an operator deletes nodes of holders, whose sessions live on: only the fence keeps these holders from writing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bellwether::{Claim, Client, Error, ErrorKind, Hold, Json, Lock, Queue, zk};
use bellwether_testkit::History;
use bellwether_testkit::history::Moment;
use bellwether_testkit::history::registers::{RegisterStep, check_registers};
use rand::Rng as _;

use super::queues::ledger::ATTEMPTS_MAX;
use crate::plan::Plan;
use crate::recipe::{Recipe, Round};
use crate::stage::Stage;
use crate::worker::{Gone, Worker};

/// Registers that one lock guards.
#[derive(Debug, Clone)]
pub(super) struct UnderLock(Registers);

/// A register for each item of a queue, written by the consumer that has claimed the item.
#[derive(Debug, Clone)]
pub(super) struct UnderClaim(Registers);

/// How many registers the lock guards.
const KEYS: u64 = 3;

/// The number of the process that reads all registers in the end.
const LAST_READER: usize = usize::MAX;

/// All registers, and what workers did to them.
#[derive(Debug, Clone)]
struct Registers {
    notes: Arc<Mutex<StoreNotes>>,
    is_meddled_with: bool,
}

#[derive(Debug, Default)]
struct StoreNotes {
    last_value: u64,
    /// The keys are the numbers from 1 to this.
    last_key: u64,
    /// How many items of the queue were acknowledged, as far as known.
    acked: u64,
    steps: Vec<(Moment, usize, RegisterStep)>,
}

impl Registers {
    fn new(plan: &Plan, last_key: u64) -> Self {
        let notes = StoreNotes {
            last_key,
            ..StoreNotes::default()
        };
        Self {
            notes: Arc::new(Mutex::new(notes)),
            is_meddled_with: plan.seed.is_multiple_of(2),
        }
    }

    fn notes(&self) -> MutexGuard<'_, StoreNotes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether an operator deletes nodes now.
    fn is_meddled_with_now(&self, worker: &mut Worker) -> bool {
        self.is_meddled_with && !worker.is_calm() && worker.random.random_ratio(1, 5)
    }

    /// One of the keys.
    fn some_key(&self, worker: &mut Worker) -> Option<u64> {
        let last = self.notes().last_key;
        (last > 0).then(|| worker.random.random_range(1..=last))
    }

    /// Reads a register and replaces its value, both under a hold. The holder is careless: whether the hold is lost is left to the fence.
    async fn change(
        &self,
        worker: &mut Worker,
        client: &Client,
        hold: &Hold,
        key: u64,
    ) -> Result<bool, Error> {
        // The server has seen the end of the previous hold, and so all its writes.
        let from = match client.raw().get(&path(key)).await {
            Ok((data, _)) => Some(text(&data)),
            Err(zk::Error::NO_NODE) => None,
            Err(error) => {
                worker.failed(&error);
                return Ok(false);
            }
        };
        worker.work().await;
        let to = {
            let mut notes = self.notes();
            notes.last_value += 1;
            notes.last_value.to_string()
        };
        let write = match from {
            Some(_) => hold.write().set(path(key), to.clone(), None),
            None => hold.write().create(path(key), to.clone()),
        };
        let key = key.to_string();
        self.note(
            worker.who,
            RegisterStep::Changing {
                key: key.clone(),
                from,
                to: to.clone(),
            },
        );
        let written = write.commit().await;
        match &written {
            Ok(()) => self.note(worker.who, RegisterStep::Changed { key, to }),
            // It may have been made.
            Err(Error {
                kind: ErrorKind::OutcomeUnknown(_) | ErrorKind::LostWithSession,
                ..
            }) => {}
            Err(_) => self.note(worker.who, RegisterStep::NotChanged { key, to }),
        }
        written.map(|()| true)
    }

    /// Changes a register several times.
    async fn change_some(
        &self,
        worker: &mut Worker,
        client: &Client,
        hold: &Hold,
        key: u64,
    ) -> Round {
        for _ in 0..worker.random.random_range(1..=3) {
            match self.change(worker, client, hold, key).await {
                Ok(true) => {}
                Ok(false) => return Round::Failed,
                Err(error) => {
                    // The operator may have deleted the node of the hold.
                    if !(self.is_meddled_with && matches!(error.kind, ErrorKind::NotHeld)) {
                        worker.failed(&error);
                    }
                    return Round::Failed;
                }
            }
        }
        Round::Done
    }

    /// Reads a register as it is at some moment between call and return: the check of its version passes the quorum.
    async fn read(&self, who: usize, client: &Client, key: u64) -> Result<(), zk::Error> {
        let zk = client.raw();
        let name = key.to_string();
        self.note(who, RegisterStep::Reading { key: name.clone() });
        let (data, stat) = zk.get(&path(key)).await?;
        let mut check = zk.new_multi();
        check.check(&path(key), Some(stat.version));
        if check.commit().await.is_ok() {
            let value = Some(text(&data));
            self.note(who, RegisterStep::Read { key: name, value });
        }
        Ok(())
    }

    /// Reads all registers, when nobody writes.
    async fn read_all(&self, client: &Client) -> Result<(), String> {
        client
            .raw()
            .sync("/")
            .await
            .map_err(|error| error.to_string())?;
        let last = self.notes().last_key;
        for key in 1..=last {
            match self.read(LAST_READER, client, key).await {
                Ok(()) => {}
                Err(zk::Error::NO_NODE) => {
                    let (key, value) = (key.to_string(), None);
                    self.note(LAST_READER, RegisterStep::Read { key, value });
                }
                Err(error) => return Err(format!("cannot read register {key}: {error}")),
            }
        }
        Ok(())
    }

    fn note(&self, who: usize, step: RegisterStep) {
        let mut notes = self.notes();
        // Nanoseconds keep the order of steps within one millisecond.
        let nanos = u64::try_from(notes.steps.len()).unwrap_or(0) % 1_000_000;
        let at = Stage::moment().plus(Duration::from_nanos(nanos));
        let at = notes.steps.last().map_or(at, |(last, ..)| at.max(*last));
        notes.steps.push((at, who, step));
    }

    fn check(&self) -> Result<(), String> {
        check_registers(self.notes().steps.iter().cloned())
            .map_err(|wrong| format!("register {wrong}"))
    }
}

/// The node of a register. Its directory exists while anything is held.
fn path(key: u64) -> String {
    format!("/sim/register-{key}")
}

fn is_register(path: &str) -> bool {
    path == "/sim" || path.starts_with("/sim/register-")
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}

/// Deletes nodes of others, as an operator could. They may be deleted already, or the connection may fail first.
async fn delete_all(client: &Client, dir: &str, names: impl IntoIterator<Item = String>) {
    for name in names {
        let _ = client.raw().delete(&format!("{dir}/{name}"), None).await;
    }
}

impl Recipe for UnderLock {
    const NAME: &'static str = "lock-with-fenced-write";

    fn new(plan: &Plan) -> Self {
        Self(Registers::new(plan, KEYS))
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let lock = Lock::new(client, "/sim/lock");
        let Some(key) = self.0.some_key(worker) else {
            return Ok(Round::Failed);
        };
        if self.0.is_meddled_with_now(worker) {
            let mut names = client.raw().children(lock.path()).await.unwrap_or_default();
            names.retain(|name| name.starts_with("lock-"));
            let sequence = |name: &String| name.rsplit('-').next().map(str::to_owned);
            delete_all(client, lock.path(), names.into_iter().min_by_key(sequence)).await;
        }
        if worker.random.random_ratio(1, 4) {
            // A read that failed tells nothing.
            let _ = self.0.read(worker.who, client, key).await;
        }
        let guard = match worker.unless_stopped(lock.acquire()).await? {
            Ok(guard) => guard,
            // By the operator.
            Err(Error {
                kind: ErrorKind::Removed,
                ..
            }) if self.0.is_meddled_with => {
                return Ok(Round::Failed);
            }
            Err(error) => {
                worker.failed(&error);
                worker.pause().await;
                return Ok(Round::Failed);
            }
        };
        let ended = self.0.change_some(worker, client, &guard, key).await;
        match worker.random.random_ratio(1, 4) {
            true => drop(guard),
            false => {
                if let Err(error) = guard.release().await
                    && !(self.0.is_meddled_with && matches!(error.kind, ErrorKind::NotHeld))
                {
                    worker.failed(&error);
                }
            }
        }
        Ok(ended)
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.0.check()
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        self.0.read_all(client).await
    }

    fn may_stay(&self, path: &str) -> bool {
        is_register(path)
    }
}

/// An item: the key of its register.
type Number = Json<u64>;

fn queue(client: &Client) -> Queue<Number> {
    Queue::new(client, "/sim/queue").attempts_max(ATTEMPTS_MAX)
}

/// How many items there are, if none was lost sight of.
const OPEN_MIN: u64 = 4;

impl UnderClaim {
    /// Gives most items back, so that each has many consumers.
    async fn settle(&self, worker: &mut Worker, claim: Claim<Number>) {
        let way = worker.random.random_range(0..8);
        let settled = match way {
            0 => claim.ack().await,
            1..3 => return drop(claim),
            _ => claim.give_back("again").await,
        };
        match settled {
            Ok(()) => self.0.notes().acked += u64::from(way == 0),
            Err(error) => worker.failed(&error),
        }
    }
}

impl Recipe for UnderClaim {
    const NAME: &'static str = "queue-with-fenced-write";

    fn new(plan: &Plan) -> Self {
        Self(Registers::new(plan, 0))
    }

    async fn round(&self, worker: &mut Worker, client: &Client) -> Result<Round, Gone> {
        let queue = queue(client);
        if self.0.is_meddled_with_now(worker) {
            let claims = "/sim/queue/claims";
            let names = client.raw().children(claims).await.unwrap_or_default();
            delete_all(client, claims, names).await;
        }
        let key = self.0.some_key(worker);
        if let Some(key) = key.filter(|_| worker.random.random_ratio(1, 4)) {
            // A read that failed tells nothing.
            let _ = self.0.read(worker.who, client, key).await;
        }
        // When the faults are over, each worker puts an item before it takes one: nobody waits in vain.
        let is_calm = worker.is_calm();
        let open = {
            let notes = self.0.notes();
            notes.last_key - notes.acked
        };
        if is_calm || open < OPEN_MIN {
            let item = {
                let mut notes = self.0.notes();
                notes.last_key += 1;
                notes.last_key
            };
            if let Err(error) = queue.put(&Json(item)).await {
                worker.failed(&error);
                return Ok(Round::Failed);
            }
        }
        let limit = worker.moment();
        let taken = match is_calm {
            true => worker.unless_stopped(queue.take()).await?,
            false => worker.unless_stopped(queue.take_timeout(limit)).await?,
        };
        let claim = match taken {
            Ok(claim) => claim,
            Err(Error {
                kind: ErrorKind::TimedOut { .. },
                ..
            }) => return Ok(Round::Failed),
            Err(error) => {
                worker.failed(&error);
                worker.pause().await;
                return Ok(Round::Failed);
            }
        };
        let key = claim.payload().0;
        let ended = self.0.change_some(worker, client, &claim, key).await;
        self.settle(worker, claim).await;
        Ok(ended)
    }

    fn check(&self, _: &Plan, _: &History) -> Result<(), String> {
        self.0.check()
    }

    async fn finish(&self, client: &Client) -> Result<(), String> {
        let queue = queue(client);
        // By then claims of expired sessions are gone.
        let limit = Duration::from_secs(60);
        loop {
            match queue.take_timeout(limit).await {
                Ok(claim) => claim.ack().await.map_err(|error| error.to_string())?,
                Err(Error {
                    kind: ErrorKind::TimedOut { .. },
                    ..
                }) => break,
                Err(error) => return Err(format!("no item at the end: {error}")),
            }
        }
        self.0.read_all(client).await
    }

    fn may_stay(&self, path: &str) -> bool {
        // The directories of a queue.
        is_register(path) || path.matches('/').count() <= 3 && !path.contains("item-")
    }
}
