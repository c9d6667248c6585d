//! The guard of a taken item.

use std::ops::Deref;
use std::time::Duration;

use bellwether_client::environment;

use crate::hold::Hold;
use crate::queue::error::SettleError;
use crate::queue::order::{ItemId, to_ms};
use crate::queue::take::claimed_item::{ClaimedItem, End};
use crate::session::telemetry::call;

/// A hold on an item of a queue; see [`Hold`] for what it promises. The item stays on the servers until it is [acknowledged](Self::ack).
///
/// When the claim is dropped or its session ends, the item is delivered again. Either counts as an attempt;
/// [`give_back_uncounted`](Self::give_back_uncounted) does not.
#[derive(Debug)]
#[must_use = "the item is delivered again when the claim is dropped"]
pub struct Claim<T> {
    held: ClaimedItem,
    payload: T,
}

impl<T> Claim<T> {
    pub(crate) fn new(held: ClaimedItem, payload: T) -> Self {
        Self { held, payload }
    }

    /// The payload.
    #[must_use]
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// Which item it is: what its put returned.
    #[must_use]
    pub fn id(&self) -> ItemId {
        self.held.item().id()
    }

    /// How often the item has been delivered, including this delivery, but not those that were
    /// [given back uncounted](Self::give_back_uncounted).
    #[must_use]
    pub fn attempts(&self) -> u32 {
        self.held.attempts()
    }

    /// How long ago the item was put, by the clocks of the servers then and of this machine now.
    #[must_use]
    pub fn age(&self) -> Duration {
        age(self.held.put_ms())
    }

    /// Acknowledges the item: removes it for good and waits for the server's answer, over any number of reconnects. It succeeds only while
    /// this claim is valid.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item is removed or will be delivered again.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn ack(self) -> Result<(), SettleError> {
        call!("queue.ack", self.path())
            .of(&self)
            .run(self.held.settle(&End::Delete))
            .await
    }

    /// Gives the item back at its old place, for another attempt, after the [backoff](crate::Queue::backoff) if one is set. The reason, or
    /// its first 4 KiB, is kept for the dead letter, unless a later reason replaces it.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item has been or will be given back, perhaps without the reason.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn give_back(self, reason: &str) -> Result<(), SettleError> {
        call!("queue.give_back", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.failed(self.held.backoff(), reason);
                self.held.settle(&end).await
            })
            .await
    }

    /// As [`give_back`](Self::give_back), but the item is not delivered again before `delay` has passed, by the clocks of the
    /// consumers. Other items are delivered meanwhile.
    ///
    /// # Cancel safety
    ///
    /// As [`give_back`](Self::give_back), perhaps without the delay.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn give_back_after(self, delay: Duration, reason: &str) -> Result<(), SettleError> {
        call!("queue.give_back", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.failed(delay, reason);
                self.held.settle(&end).await
            })
            .await
    }

    /// As [`give_back`](Self::give_back), but this delivery does not count as an attempt, and there is no backoff: for a consumer that
    /// ends, or cannot do its work, for a reason that has nothing to do with the item.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item has been or will be given back; the attempt may count.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn give_back_uncounted(self, reason: &str) -> Result<(), SettleError> {
        call!("queue.give_back", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.uncounted(reason);
                self.held.settle(&end).await
            })
            .await
    }

    /// Makes the item a dead letter at once: it will never succeed.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it returns, the item is a dead letter or will be delivered again.
    ///
    /// # Errors
    ///
    /// See [`SettleError`].
    pub async fn reject(self, reason: &str) -> Result<(), SettleError> {
        call!("queue.reject", self.path())
            .of(&self)
            .run(async move {
                let end = self.held.given_up(reason);
                self.held.settle(&end).await
            })
            .await
    }
}

impl<T> Deref for Claim<T> {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        self.held.hold()
    }
}

/// How long ago that was.
pub(crate) fn age(put_ms: i64) -> Duration {
    let now = to_ms(environment::system_time());
    Duration::from_millis(now.saturating_sub(u64::try_from(put_ms).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use bellwether_testkit::{Direction, FaultProxy, Op, TestServer};

    use crate::queue::PriorityQueue;
    use crate::session::client::Client;
    use crate::session::client::connect;
    use crate::session::liveness::pretended_ensemble::{session, until_unproven};

    #[tokio::test(flavor = "multi_thread")]
    async fn claim_is_not_returned_when_it_is_lost_already() {
        let server = TestServer::start().await.unwrap();
        let proxy = FaultProxy::start(server.address()).await.unwrap();
        let session = session(proxy.connect_string()).await;
        let client = Client::start(session.clone(), connect(proxy.connect_string()));
        let queue = PriorityQueue::<Vec<u8>>::new(&client, "/queue");
        // Put by another client, because the receipt of a put keeps the heartbeat running.
        let other = connect(server.connect_string()).await.unwrap();
        let others = PriorityQueue::<Vec<u8>>::new(&other, "/queue");
        others.put(1, &Vec::new()).await.unwrap();
        // Once taken and given back, so that all directories are there.
        let claim = others.try_take().await.unwrap().expect("there is one");
        claim.give_back("").await.unwrap();
        // The claim is answered; the reply to the read-ahead behind it is lost, and comes when the claim is no longer proof of life.
        let is_claimed = AtomicBool::new(false);
        let lost = proxy.swallow_reply_where(move |request| {
            is_claimed.fetch_or(request.op == Op::Multi, Ordering::Relaxed)
                && request.op == Op::MultiRead
        });
        proxy.refuse(true);
        let taken = tokio::spawn(async move { queue.try_take().await });
        lost.happened().await.unwrap();
        // The next connection is there when it is needed: the session ends soon after its proof of life.
        proxy.hold(Direction::ToServer);
        proxy.refuse(false);
        until_unproven(&session).await;
        proxy.resume(Direction::ToServer);
        let claim = taken.await.unwrap().unwrap().expect("there is one");
        assert!(claim.is_held());
        claim.ack().await.unwrap();
    }
}
