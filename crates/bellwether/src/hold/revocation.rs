//! Requests to a holder to release.

use futures_core::Stream;
use futures_util::StreamExt;
use futures_util::stream::unfold;

use super::{Hold, Revocation};

impl Hold {
    /// Resolves when another client asks this holder to release, also if the request came before the hold began. The holder may release or
    /// continue; the hold is taken away only if the request has a [grace](Revocation::grace).
    ///
    /// ```no_run
    /// # async fn run(guard: bellwether::LockGuard, mut work: impl AsyncFnMut()) -> Result<(), Box<dyn std::error::Error>> {
    /// loop {
    ///     tokio::select! {
    ///         () = work() => {}
    ///         asked = guard.revoked() => {
    ///             println!("releasing, as asked by {:?}", asked.by);
    ///             return Ok(guard.release().await?);
    ///         }
    ///     }
    /// }
    /// # }
    /// ```
    ///
    /// # Cancel safety
    ///
    /// Nothing is lost; a later call resolves at once if a request has come meanwhile.
    pub async fn revoked(&self) -> Revocation {
        match self.revocations().next().await {
            Some(asked) => asked,
            // Cannot happen: this hold owns the sender of the channel.
            None => std::future::pending().await,
        }
    }

    /// The requests to release, as a stream: the latest request so far, then each newer one that is seen in time. A request without a grace
    /// may be followed by one with a grace. The stream ends with the hold.
    pub fn revocations(&self) -> impl Stream<Item = Revocation> + Send + Unpin + use<> {
        let mut asked = self.asked.subscribe();
        asked.mark_changed();
        Box::pin(unfold(asked, |mut asked| async {
            loop {
                asked.changed().await.ok()?;
                let request = asked.borrow_and_update().clone();
                if let Some(request) = request {
                    return Some((request, asked));
                }
            }
        }))
    }

    /// The latest request to release, if there is one.
    #[must_use]
    pub fn revocation(&self) -> Option<Revocation> {
        self.asked.borrow().clone()
    }
}
