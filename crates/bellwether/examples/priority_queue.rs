//! Alerts by urgency, on a plain thread: the most urgent one first, even if it came last.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example priority_queue
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Result;
use bellwether::blocking::Wait;
use bellwether::{PriorityQueue, connect};

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let client = connect(address.unwrap_or_else(|| "127.0.0.1:2181".to_owned())).wait()?;
    let alerts = PriorityQueue::<String>::new(&client, "/examples/alerts");
    for (urgency, text) in [
        (5, "disk at 80 %"),
        (5, "certificate expires in June"),
        (0, "no quorum"),
    ] {
        alerts.put(urgency, &text.to_owned()).wait()?;
    }
    while let Some(alert) = alerts.try_take().wait()? {
        println!("{}", alert.payload());
        alert.ack().wait()?;
    }
    drop(alerts);
    client.close().wait();
    Ok(())
}
