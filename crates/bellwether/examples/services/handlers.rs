//! Request handlers, synchronous and asynchronous, that share one client.

use anyhow::Result;
use bellwether::blocking::Wait;
use bellwether::{Client, ClientState, Counter};

use super::rest;

#[derive(Clone, Debug)]
pub(crate) struct Handlers {
    client: Client,
    hits: Counter,
}

impl Handlers {
    pub(crate) fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            hits: Counter::new(client, "/services/hits"),
        }
    }

    /// For a web framework. A hit whose outcome is unknown is an error of the request: it was counted once, or not at all.
    pub(crate) async fn hit(&self) -> Result<i64> {
        loop {
            match self.hits.add(1).await {
                Ok(hits) => return Ok(hits),
                Err(error) if error.is_transient() => rest().await,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The same for a plain thread, blocking.
    pub(crate) fn hit_on_a_thread(&self) -> Result<i64> {
        Ok(self.hits.add(1).wait()?)
    }

    /// For a readiness probe.
    pub(crate) fn is_ready(&self) -> bool {
        self.client.state() == ClientState::Connected
    }
}
