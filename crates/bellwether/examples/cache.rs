//! Keeps a copy of a subtree, and shows what changes in it.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example cache -- 127.0.0.1:2181 /examples
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Result;
use bellwether::cache::CacheEvent;
use bellwether::{Cache, connect};
use futures_util::StreamExt;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let address = address.unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let path = arguments.next();
    let path = path.unwrap_or_else(|| "/examples".to_owned());
    let client = connect(address).await?;
    let tree = Cache::new(&client, &path).open().await?;
    let (nodes, mut changes) = tree.snapshot_and_changes();
    println!("{} nodes", nodes.len());
    while let Some(change) = changes.next().await {
        match change {
            CacheEvent::Changed { path, node } => println!("{path}: {} bytes", node.data.len()),
            CacheEvent::Deleted { path } => println!("{path} is gone"),
            CacheEvent::Renewed => println!("(the session was lost; here is another)"),
            CacheEvent::Missed => println!("{} nodes now", tree.snapshot().len()),
            _ => {}
        }
    }
    Ok(())
}
