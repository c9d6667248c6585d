//! Instances of a service that find each other.

use anyhow::Result;
use bellwether::state::{Instance, Seen};
use bellwether::{Client, Membership, Names};
use futures_util::StreamExt;

use super::rest;

const SERVICE: &str = "web";

fn names(client: &Client) -> Names {
    Names::new(client, "/services/names")
}

/// Announces an instance until the result is dropped, across sessions.
pub(crate) async fn announce(client: &Client, address: &str) -> Result<Membership> {
    loop {
        match names(client)
            .announce(SERVICE, &Instance::new(address))
            .await
        {
            Ok(membership) => return Ok(membership),
            Err(error) if error.is_transient() => rest().await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Follows the addresses of all instances.
pub(crate) async fn follow(client: &Client, mut update: impl FnMut(Vec<String>)) -> Result<()> {
    let mut instances = names(client).watch_instances(SERVICE)?;
    while let Some(seen) = instances.next().await {
        if let Seen::Value(instances) = seen? {
            update(instances.into_values().map(|found| found.address).collect());
        }
    }
    Ok(())
}
