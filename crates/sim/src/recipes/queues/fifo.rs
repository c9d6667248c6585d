//! The queue, first in, first out.

use bellwether::queue::{Fifo, ItemId};
use bellwether::{Error, Queue};
use rand::rngs::StdRng;

use super::delivery_order::Sorted;
use super::queue::QueueKind;

/// First in, first out.
#[derive(Debug, Clone)]
pub(crate) struct AsPut;

impl QueueKind for AsPut {
    type Order = Fifo;

    const NAME: &'static str = "queue";
    const PATH: &'static str = "/sim/queue";
    const SORTED: Sorted = Sorted::AsPut;
    const BATCH_MAX: usize = 4;

    fn rank(_: &mut StdRng) -> u64 {
        0
    }

    async fn put(queue: &Queue<String>, items: &[(u64, String)]) -> Result<Vec<ItemId>, Error> {
        match items {
            [(_, item)] => Ok(vec![queue.put(item).await?]),
            _ => {
                let items: Vec<String> = items.iter().map(|(_, item)| item.clone()).collect();
                queue.put_all(&items).await
            }
        }
    }
}
