//! Semaphores, whose limit changes.

use bellwether::{Client, Error, Hold, Permit, Semaphore};
use rand::Rng as _;
use rand::rngs::StdRng;
use tokio::time::{Instant, interval_at};

use super::tracks::Log;
use super::{Ask, Holdable, How};
use crate::failure::Failure as _;
use crate::worker::Worker;

/// Three permits, asked for one to three at a time. Workers change how many there are.
#[derive(Debug)]
pub(crate) struct Permits;

impl Holdable for Permits {
    const NAME: &'static str = "semaphore";
    const CAPACITY: u32 = 3;
    type Guard = Permit;

    fn some_weight(random: &mut StdRng) -> u32 {
        random.random_range(1..=Self::CAPACITY)
    }

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<Permit>, Error> {
        let permits = semaphore(client);
        let acquired = async {
            match ask.how {
                How::Wait => permits.acquire_many(ask.weight).await.map(Some),
                How::Within(limit) => permits
                    .acquire_many_timeout(ask.weight, limit)
                    .await
                    .map(Some),
                How::AtOnce => permits.try_acquire_many(ask.weight).await,
            }
        };
        // The worker that has lowered the limit may be gone, and its write arrive after that.
        tokio::select! {
            biased;
            acquired = acquired => acquired,
            () = raise(client, ask.log) => unreachable!("it goes on for ever"),
        }
    }

    const CAN_CHANGE: bool = true;

    /// Lowers the limit, or raises it. Holders keep their permits.
    async fn change(
        client: &Client,
        worker: &mut Worker,
        permit: Permit,
        log: &Log,
    ) -> Option<Permit> {
        let limit = match worker.is_calm() {
            true => Self::CAPACITY,
            false => worker.random.random_range(0..=Self::CAPACITY),
        };
        let set = semaphore(client);
        if let Err(error) = log.watching(&permit, set.set_limit(limit)).await {
            worker.failed(&error);
        }
        Some(permit)
    }

    fn holds(permit: &Permit) -> Vec<&Hold> {
        vec![permit]
    }

    async fn release(permit: Permit, log: &Log) -> Result<(), Error> {
        log.release(permit, Permit::release).await
    }

    /// The limit is kept in the data of the directory.
    fn may_stay(path: &str) -> bool {
        ["/sim", "/sim/semaphore"].contains(&path)
    }
}

fn semaphore(client: &Client) -> Semaphore {
    Semaphore::new(client, "/sim/semaphore", Permits::CAPACITY)
}

/// Raises the limit again and again, so that all that workers ask for fits. If the limit is high enough, nothing is written, and a waiter that
/// has missed a change waits on.
async fn raise(client: &Client, log: &Log) {
    let permits = semaphore(client);
    let every = client.session_timeout();
    let mut pauses = interval_at(Instant::now() + every, every);
    loop {
        pauses.tick().await;
        // The next one may succeed.
        if let Err(error) = permits.set_limit(Permits::CAPACITY).await
            && !error.comes_of_faults()
        {
            log.wrong(error.to_string());
        }
    }
}
