//! Read/write locks: many readers or one writer, with downgrade and upgrade.

use bellwether::{Client, Error, Hold, ReadGuard, RwLock, UpgradeError, WriteGuard};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::tracks::Log;
use super::{Ask, Holdable, How};
use crate::worker::Worker;

/// A reader takes one part, a writer all.
#[derive(Debug)]
pub(crate) struct ReadWrite;

/// A hold of either side.
#[derive(Debug)]
pub(crate) enum Side {
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

    async fn acquire(client: &Client, ask: Ask<'_>) -> Result<Option<Side>, Error> {
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

    const CAN_CHANGE: bool = true;

    /// A writer becomes a reader; a reader tries to become the writer.
    async fn change(_: &Client, worker: &mut Worker, side: Side, log: &Log) -> Option<Side> {
        match side {
            Side::Write(guard) => {
                // Other readers may be let in before the answer arrives.
                log.releasing(&guard);
                match guard.downgrade().await {
                    Ok(guard) => {
                        log.goes_on(&guard, 1);
                        Some(Side::Read(guard))
                    }
                    Err(error) => {
                        worker.failed(&error);
                        None
                    }
                }
            }
            Side::Read(guard) => {
                // Whether the read side is lost before the answer arrives cannot be known.
                log.releasing(&guard);
                let error = match guard.try_upgrade().await {
                    Ok(guard) => {
                        log.goes_on(&guard, Self::CAPACITY);
                        log.write(&guard);
                        return Some(Side::Write(guard));
                    }
                    Err(error) => error,
                };
                if let UpgradeError::Failed { source, .. } = &error {
                    worker.failed(source);
                }
                let guard = error.into_guard();
                log.goes_on(&guard, 1);
                Some(Side::Read(guard))
            }
        }
    }

    fn holds(side: &Side) -> Vec<&Hold> {
        match side {
            Side::Read(guard) => vec![guard],
            Side::Write(guard) => vec![guard],
        }
    }

    async fn release(side: Side, log: &Log) -> Result<(), Error> {
        match side {
            Side::Read(guard) => log.release(guard, ReadGuard::release).await,
            Side::Write(guard) => log.release(guard, WriteGuard::release).await,
        }
    }
}
