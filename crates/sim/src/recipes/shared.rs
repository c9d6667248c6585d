//! Recipes with several holders: read/write locks and semaphores.

use bellwether::error::{AcquireError, ReleaseError};
use bellwether::{Client, Hold, Permit, ReadGuard, RwLock, Semaphore, WriteGuard};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::holds::{Ask, Holdable, How};
use super::tracks::Log;

/// A reader takes one part, a writer all.
#[derive(Debug)]
pub(super) struct ReadWrite;

/// A hold of either side.
#[derive(Debug)]
pub(super) enum Side {
    Read(ReadGuard),
    Write(WriteGuard),
}

impl Holdable for ReadWrite {
    const NAME: &'static str = "rwlock";
    const CAPACITY: u32 = 1_000;
    type Guard = Side;

    fn some_weight(random: &mut StdRng) -> u32 {
        match random.random_ratio(1, 3) {
            true => Self::CAPACITY,
            false => 1,
        }
    }

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<Side>, AcquireError> {
        let lock = RwLock::new(client, "/sim/rwlock");
        let read = async || match ask.how {
            How::Wait => lock.read().await.map(Some),
            How::Within(limit) => lock.read_timeout(limit).await.map(Some),
            How::AtOnce => lock.try_read().await,
        };
        let write = async || match ask.how {
            How::Wait => lock.write().await.map(Some),
            How::Within(limit) => lock.write_timeout(limit).await.map(Some),
            How::AtOnce => lock.try_write().await,
        };
        match ask.weight {
            1 => Ok(read().await?.map(Side::Read)),
            _ => Ok(write().await?.map(Side::Write)),
        }
    }

    fn holds(side: &Side) -> Vec<&Hold> {
        match side {
            Side::Read(guard) => vec![guard],
            Side::Write(guard) => vec![guard],
        }
    }

    async fn release(side: Side, log: &Log) -> Result<(), ReleaseError> {
        match side {
            Side::Read(guard) => log.release(guard, ReadGuard::release).await,
            Side::Write(guard) => log.release(guard, WriteGuard::release).await,
        }
    }
}

/// Three permits, asked for one to three at a time.
#[derive(Debug)]
pub(super) struct Permits;

impl Holdable for Permits {
    const NAME: &'static str = "semaphore";
    const CAPACITY: u32 = 3;
    type Guard = Permit;

    fn some_weight(random: &mut StdRng) -> u32 {
        random.random_range(1..=Self::CAPACITY)
    }

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<Permit>, AcquireError> {
        let permits = Semaphore::new(client, "/sim/semaphore", Self::CAPACITY);
        match ask.how {
            How::Wait => permits.acquire_many(ask.weight).await.map(Some),
            How::Within(limit) => permits
                .acquire_many_timeout(ask.weight, limit)
                .await
                .map(Some),
            How::AtOnce => permits.try_acquire_many(ask.weight).await,
        }
    }

    fn holds(permit: &Permit) -> Vec<&Hold> {
        vec![permit]
    }

    async fn release(permit: Permit, log: &Log) -> Result<(), ReleaseError> {
        log.release(permit, Permit::release).await
    }

    /// The limit is kept in the data of the directory.
    fn may_stay(path: &str) -> bool {
        ["/sim", "/sim/semaphore"].contains(&path)
    }
}
