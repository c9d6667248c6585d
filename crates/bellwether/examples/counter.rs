//! Ten tasks count together, each with its own session, and nothing is counted twice or lost.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example counter
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Result;
use bellwether::{Counter, connect};
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let client = connect(&address).await?;
    let before = Counter::new(&client, "/examples/visitors").get().await?;
    let mut tasks = JoinSet::new();
    for _ in 0..10 {
        let client = connect(&address).await?;
        tasks.spawn(async move {
            let visitors = Counter::new(&client, "/examples/visitors");
            for _ in 0..10 {
                visitors.add(1).await?;
            }
            client.close().await;
            anyhow::Ok(())
        });
    }
    while let Some(counted) = tasks.join_next().await {
        counted??;
    }
    let after = Counter::new(&client, "/examples/visitors").get().await?;
    println!("{before} visitors before, {after} now");
    Ok(())
}
