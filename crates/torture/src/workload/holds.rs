//! Acquires and releases a hold repeatedly, in all possible ways.

use bellwether::hold::Previous;
use bellwether::{Client, Error, FencingToken};
use bellwether_testkit::FencedStore;
use bellwether_testkit::history::What;
use rand::Rng as _;
use tokio::time::timeout;

use super::Worker;
use super::held::{Ask, Guard, Held};
use crate::record::Did;

/// Acquires holds until the run ends, even if sessions expire.
pub(super) async fn run(mut worker: Worker, held: Held, client: &Client) {
    let store = FencedStore::open(&worker.store);
    let mut store = store.expect("the folder of the run is there");
    while !worker.is_stopped() {
        if let Err(error) = hold_once(&mut worker, held, client, &mut store).await {
            worker.failed(&error).await;
        }
    }
}

/// One hold from start to end, or an attempt to acquire one.
///
/// # Errors
///
/// If the hold was not granted. [`ErrorKind::SessionEnded`](bellwether::ErrorKind::SessionEnded) means that the session of the client has ended.
pub async fn hold_once(
    worker: &mut Worker,
    held: Held,
    client: &Client,
    store: &mut FencedStore,
) -> Result<(), Error> {
    worker.note_hold(What::Asked);
    let stopped = worker.stopped();
    let acquired = tokio::select! {
        acquired = acquire(worker, held, client) => acquired?,
        () = stopped => None,
    };
    if let Some(guard) = acquired {
        Holder {
            worker,
            held,
            client,
            store,
        }
        .hold(guard)
        .await;
    }
    Ok(())
}

/// Acquires in one of the possible ways.
async fn acquire(worker: &mut Worker, held: Held, client: &Client) -> Result<Option<Guard>, Error> {
    let weight = held.some_weight(&mut worker.random);
    let (way, limit) = (worker.random.random_range(0..10), worker.moment());
    let ask = async |ask| held.acquire(client, &worker.path, ask, weight).await;
    match way {
        0 => ask(Ask::AtOnce).await,
        1 => ask(Ask::Within(limit)).await,
        // Drops the future at an arbitrary point.
        2 => match timeout(limit, ask(Ask::Wait)).await {
            Ok(acquired) => acquired,
            Err(_) => Ok(None),
        },
        _ => ask(Ask::Wait).await,
    }
}

/// A worker that has a hold.
struct Holder<'a> {
    worker: &'a mut Worker,
    held: Held,
    client: &'a Client,
    store: &'a mut FencedStore,
}

impl Holder<'_> {
    /// Works under the hold until the work is done or the hold is lost.
    async fn hold(mut self, guard: Guard) {
        let token = guard.token();
        let weight = guard.weight();
        self.note(What::Granted { token, weight });
        let crashed = match guard.previous() {
            Previous::Crashed(crash) => crash.token.map(FencingToken::number),
            _ => None,
        };
        if self.held == Held::MarkedLock {
            self.note(What::Found { token, crashed });
        }
        let is_alone = weight == self.held.capacity();
        self.write_if(is_alone, token);
        let lost = tokio::select! {
            () = self.work() => false,
            () = guard.lost() => true,
        };
        if lost {
            self.note(What::Lost { token });
            // A careless holder: if another holder has written since, this is refused.
            return self.write_if(is_alone, token);
        }
        self.write_if(is_alone, token);
        if self.worker.random.random_ratio(1, 4) {
            self.note(What::Dropping { token });
            return drop(guard);
        }
        self.note(What::Releasing { token });
        if let Guard::Write(guard) = guard {
            if self.worker.random.random_ratio(1, 2) {
                return self.release(token, Guard::Write(guard)).await;
            }
            // It continues as a reader, in its place.
            return match guard.downgrade().await {
                Ok(guard) => {
                    self.note(What::Granted { token, weight: 1 });
                    tokio::select! {
                        () = self.work() => {}
                        () = guard.lost() => return self.note(What::Lost { token }),
                    }
                    self.note(What::Releasing { token });
                    self.release(token, Guard::Read(guard)).await;
                }
                Err(error) => self.note(What::Failed(error.to_string())),
            };
        }
        self.release(token, guard).await;
    }

    async fn release(&self, token: i64, guard: Guard) {
        match guard.release().await {
            Ok(()) => self.note(What::Released { token }),
            Err(error) => self.note(What::Failed(error.to_string())),
        }
    }

    /// Takes some time, and sometimes waits for a reply of the server: without one, the worker keeps its hold.
    async fn work(&mut self) {
        self.worker.pause().await;
        if self.worker.random.random_ratio(1, 2) {
            while self.client.raw().exists("/").await.is_err() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Writes to the guarded store. Only an exclusive holder can be identified by its token.
    fn write_if(&mut self, is_alone: bool, token: i64) {
        if !is_alone {
            return;
        }
        match self.store.write(self.worker.who, token) {
            Ok(event) => (self.worker.sink)(event.at, Did::Hold(event.what)),
            Err(error) => self.note(What::Failed(format!("{error:#}"))),
        }
    }

    fn note(&self, what: What) {
        self.worker.note_hold(what);
    }
}
