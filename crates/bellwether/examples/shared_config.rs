//! Readers of a shared configuration, and a writer that changes it meanwhile.
//!
//! The writer downgrades to a reader after the write, so that no other writer can change the data before it has read it.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example shared_config
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Result;
use bellwether::{ReentrantRwLock, RwLock, connect};
use tokio::task::JoinSet;

const PATH: &str = "/examples/shared-config";

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let mut readers = JoinSet::new();
    for number in 0..3 {
        let client = connect(address.clone()).await?;
        readers.spawn(async move {
            let lock = ReentrantRwLock::new(RwLock::new(&client, PATH));
            let guard = lock.read().await?;
            // Granted even while a writer waits: a function called here may lock again.
            let again = lock.read().await?;
            println!("reader {number} holds {} guards", again.count());
            again.release().await?;
            guard.release().await?;
            anyhow::Ok(())
        });
    }
    let client = connect(address).await?;
    let writing = RwLock::new(&client, PATH).crash_mark().write().await?;
    println!("writing with token {}", writing.token());
    let reading = writing.downgrade().await?;
    println!(
        "reading what was written, still with token {}",
        reading.token()
    );
    match reading.try_upgrade().await {
        Ok(writing) => writing.release().await?,
        Err(refused) => {
            println!("{refused}");
            refused.into_guard().release().await?;
        }
    }
    while let Some(reader) = readers.join_next().await {
        reader??;
    }
    client.close().await;
    Ok(())
}
