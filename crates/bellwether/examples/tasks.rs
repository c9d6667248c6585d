//! Migrations that run once each, by three workers; started a second time, there is nothing left to do.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example tasks
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Result;
use bellwether::{Tasks, connect};
use futures_util::StreamExt;
use tokio::task::JoinSet;

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let client = connect(address.unwrap_or_else(|| "127.0.0.1:2181".to_owned())).await?;
    let tasks = Tasks::<String>::new(&client, "/examples/migrations");
    for table in ["accounts", "invoices", "orders", "users"] {
        let added = tasks.add(table, &format!("{table}.sql")).await?;
        println!("{table}: {}", if added { "to do" } else { "known" });
    }
    let mut workers = JoinSet::new();
    for worker in 1..=3 {
        let tasks = tasks.clone();
        workers.spawn(async move {
            while let Some(task) = tasks.take().await? {
                println!("worker {worker} runs {}", task.payload());
                task.done_with(format!("by worker {worker}")).await?;
            }
            anyhow::Ok(())
        });
    }
    let mut progress = tasks.progress();
    while let Some(counts) = progress.next().await {
        println!(
            "{} done, {} to go",
            counts.done,
            counts.open + counts.running
        );
    }
    while let Some(worker) = workers.join_next().await {
        worker??;
    }
    drop((progress, tasks));
    client.close().await;
    Ok(())
}
