//! Limits concurrent calls across all processes.

use anyhow::Result;
use bellwether::{Client, Semaphore};

use super::rest;

#[derive(Clone, Debug)]
pub(crate) struct Limit(Semaphore);

impl Limit {
    pub(crate) fn new(client: &Client, calls_max: u32) -> Self {
        Self(Semaphore::new(client, "/services/calls", calls_max))
    }

    /// Makes a call when a permit is free. A call whose permit is lost is aborted.
    pub(crate) async fn call<T>(&self, call: impl Future<Output = T>) -> Result<T> {
        let permit = loop {
            match self.0.acquire().await {
                Ok(permit) => break permit,
                Err(error) if error.is_transient() => rest().await,
                Err(error) => return Err(error.into()),
            }
        };
        let answer = permit.run(call).await?;
        // If this fails, the permit is released with the session.
        let _ = permit.release().await;
        Ok(answer)
    }
}
