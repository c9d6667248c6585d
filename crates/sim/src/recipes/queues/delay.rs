//! The delay queue.

use std::time::{Duration, UNIX_EPOCH};

use bellwether::queue::{ByDueTime, ItemId};
use bellwether::{DelayQueue, Error};
use bellwether_client::environment;
use rand::Rng as _;
use rand::rngs::StdRng;

use super::delivery_order::Sorted;
use super::queue::QueueKind;
use crate::world::Ms;

/// The longest delay.
const DELAY_MAX: Ms = 10_000;

/// Items that must not be taken before they are due.
#[derive(Debug, Clone)]
pub(crate) struct Late;

impl QueueKind for Late {
    type Order = ByDueTime;

    const NAME: &'static str = "delay-queue";
    const PATH: &'static str = "/sim/delay";
    const SORTED: Sorted = Sorted::ByDue;
    const BATCH_MAX: usize = 1;

    /// The time at which it is due, by the clock of the producer.
    fn rank(random: &mut StdRng) -> u64 {
        environment::epoch_ms() + random.random_range(0..DELAY_MAX)
    }

    /// No time has passed since the rank was drawn, so both calls mean the same time.
    async fn put(
        queue: &DelayQueue<String>,
        items: &[(u64, String)],
    ) -> Result<Vec<ItemId>, Error> {
        let mut ids = Vec::new();
        for (due, item) in items {
            let delay = due
                .checked_sub(environment::epoch_ms())
                .filter(|delay| delay % 2 == 0);
            ids.push(match delay {
                Some(delay) => queue.put_after(Duration::from_millis(delay), item).await?,
                None => {
                    queue
                        .put_at(UNIX_EPOCH + Duration::from_millis(*due), item)
                        .await?
                }
            });
        }
        Ok(ids)
    }
}
