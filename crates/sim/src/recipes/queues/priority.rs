//! The priority queue.

use bellwether::queue::{ByPriority, ItemId};
use bellwether::{Error, PriorityQueue};
use rand::Rng as _;
use rand::rngs::StdRng;

use super::delivery_order::Sorted;
use super::queue::QueueKind;

/// Items with one of three priorities.
#[derive(Debug, Clone)]
pub(crate) struct Ranked;

impl QueueKind for Ranked {
    type Order = ByPriority;

    const NAME: &'static str = "priority-queue";
    const PATH: &'static str = "/sim/priorities";
    const SORTED: Sorted = Sorted::ByRank;
    const BATCH_MAX: usize = 4;

    fn rank(random: &mut StdRng) -> u64 {
        random.random_range(0..3)
    }

    async fn put(
        queue: &PriorityQueue<String>,
        items: &[(u64, String)],
    ) -> Result<Vec<ItemId>, Error> {
        let priority = |rank: u64| i32::try_from(rank).unwrap_or(i32::MAX);
        match items {
            [(rank, item)] => Ok(vec![queue.put(priority(*rank), item).await?]),
            _ => {
                let items = items.iter();
                let items: Vec<(i32, String)> = items
                    .map(|(rank, item)| (priority(*rank), item.clone()))
                    .collect();
                queue.put_all(&items).await
            }
        }
    }
}
