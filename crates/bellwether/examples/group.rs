//! Joins a group as an instance of a service, and shows the members. Start it several times, and end some of them.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example group -- 127.0.0.1:2181 10.0.0.7:80
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use anyhow::Result;
use bellwether::state::{Instance, Seen};
use bellwether::{Names, connect};
use futures_util::StreamExt;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let server = arguments.next();
    let server = server.unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let address = arguments.next();
    let address = address.unwrap_or_else(|| format!("process {}", std::process::id()));
    let client = connect(server).await?;
    let names = Names::new(&client, "/examples/services");
    let announced = names.announce("web", &Instance::new(address)).await?;
    println!("joined as {}", announced.name());
    let mut instances = names.watch_instances("web")?;
    loop {
        tokio::select! {
            seen = instances.next() => match seen {
                Some(Ok(Seen::Value(instances))) => {
                    let addresses: Vec<_> = instances.values().map(|it| it.address.as_str()).collect();
                    println!("there are {addresses:?}");
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            },
            _ = tokio::signal::ctrl_c() => {
                announced.leave().await;
                return Ok(());
            }
        }
    }
}
