//! Reminders that are not taken before their time.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example delay_queue
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether::{DelayQueue, connect};

#[tokio::main]
async fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let client = connect(address.unwrap_or_else(|| "127.0.0.1:2181".to_owned())).await?;
    let reminders = DelayQueue::<String>::new(&client, "/examples/reminders");
    let start = Instant::now();
    for (after_ms, text) in [(900, "third"), (300, "first"), (600, "second")] {
        let delay = Duration::from_millis(after_ms);
        reminders.put_after(delay, &text.to_owned()).await?;
    }
    for _ in 0..3 {
        let reminder = reminders.take().await?;
        println!("{} after {:?}", reminder.payload(), start.elapsed());
        reminder.ack().await?;
    }
    drop(reminders);
    client.close().await;
    Ok(())
}
