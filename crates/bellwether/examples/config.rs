//! Shows a value each time that it changes, as text. Change it from another terminal:
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example config &
//! bellwether set --connect 127.0.0.1:2181 /examples/greeting hello
//! ```
//!
//! With a second argument it sets the value itself, and ends.

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Result;
use bellwether::state::Seen;
use bellwether::{Config, connect};
use futures_util::StreamExt;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let address = address.unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let client = connect(address).await?;
    let greeting = Config::<String>::new(&client, "/examples/greeting");
    if let Some(words) = arguments.next() {
        return Ok(greeting.set(&words).await?);
    }
    let mut changes = greeting.watch();
    while let Some(change) = changes.next().await {
        match change? {
            Seen::Value(entry) => println!("{}", entry.value),
            Seen::Absent => println!("(nothing)"),
            Seen::Renewed => println!("(the session was lost; here is another)"),
            _ => {}
        }
    }
    Ok(())
}
