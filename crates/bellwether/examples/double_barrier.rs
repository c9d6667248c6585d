//! Workers that compute step by step; all start and end each step together.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example double_barrier
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::Duration;

use anyhow::Result;
use bellwether::{DoubleBarrier, Error, ErrorKind, connect};
use tokio::task::JoinSet;

const WORKERS: usize = 3;
const STEPS: usize = 3;

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let address = address.clone();
        workers.spawn(async move { work(worker, &address).await });
    }
    while let Some(worked) = workers.join_next().await {
        worked??;
    }
    Ok(())
}

async fn work(worker: usize, address: &str) -> Result<()> {
    let client = connect(address).await?;
    let path = "/examples/double_barrier";
    let step = DoubleBarrier::new(&client, path, WORKERS).message(format!("worker {worker}"));
    for _ in 0..STEPS {
        let inside = loop {
            match step.enter_timeout(Duration::from_secs(1)).await {
                Err(Error {
                    kind: ErrorKind::TimedOut { .. },
                    ..
                }) => {
                    let missing = step.members().await?.missing();
                    println!("worker {worker} waits for {missing} more");
                }
                entered => break entered?,
            }
        };
        println!("worker {worker} computes step {}", inside.round());
        inside.leave().await?;
    }
    Ok(())
}
