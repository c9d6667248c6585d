//! Shows the holders and waiters at a path, and deadlocks below it.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example contention -- 127.0.0.1:2181 /jobs/nightly
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Result;
use bellwether::connect;
use bellwether::inspect::Contention;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next();
    let address = address.unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let path = arguments.next().unwrap_or_else(|| "/jobs".to_owned());
    let client = connect(address).await?;
    let contention = Contention::new(&client, path);
    for one in contention.line().await? {
        let who = one.who.as_ref();
        println!(
            "{:>4}  {:?}  {:?}  {}  {}",
            one.place,
            one.holds,
            one.wants,
            who.map_or("unknown", |who| &who.host),
            who.and_then(|who| who.message.as_deref())
                .unwrap_or_default(),
        );
    }
    for circle in contention.deadlocks().await? {
        for wait in circle {
            println!(
                "{} waits for {} at {}",
                wait.owner, wait.waits_for, wait.path
            );
        }
    }
    drop(contention);
    client.close().await;
    Ok(())
}
