//! Hosts to drain: producers put them, consumers take them, and one host is poison.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example queue
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Result;
use bellwether::{Claim, Json, Queue, connect};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

#[derive(Debug, Serialize, Deserialize)]
struct Drain {
    host: String,
}

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let client = connect(address.unwrap_or_else(|| "127.0.0.1:2181".to_owned())).await?;
    let queue = Queue::<Json<Drain>>::new(&client, "/examples/to-drain").attempts_max(2);

    // One transaction: all or none.
    let hosts = ["db1", "db2", "on-fire", "db3"];
    let items = hosts.map(|host| Json(Drain { host: host.into() }));
    queue.put_all(&items).await?;

    // It continues across sessions, and reports it.
    let mut consumer = queue.consumer();
    let mut drained = 0;
    while drained < hosts.len() - 1 {
        match consumer.next().await.transpose()? {
            Some(claim) => drained += usize::from(drain(claim).await?),
            None => break,
        }
    }
    for letter in queue.dead_letters().await? {
        let text = String::from_utf8_lossy(&letter.payload);
        println!(
            "given up after {} attempts: {text}, {}",
            letter.attempts, letter.reason
        );
        queue.forget(&letter).await?;
    }
    drop((consumer, queue));
    client.close().await;
    Ok(())
}

/// Whether it succeeded.
async fn drain(claim: Claim<Json<Drain>>) -> Result<bool> {
    let host = claim.payload().0.host.clone();
    // Send the token to the system that drains the host, so that it can refuse a consumer that has lost its claim.
    println!("draining {host} with token {}", claim.token());
    let Ok(worked) = claim.run(reach(&host)).await else {
        return Ok(false);
    };
    match worked {
        Ok(()) => claim.ack().await?,
        Err(reason) => {
            claim.give_back(reason).await?;
            return Ok(false);
        }
    }
    Ok(true)
}

async fn reach(host: &str) -> Result<(), &'static str> {
    match host {
        "on-fire" => Err("no route to host"),
        _ => Ok(()),
    }
}
