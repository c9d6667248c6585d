//! Follows a node: prints its data, and again after each change, until it is deleted.
//!
//! ```sh
//! cargo run -p bellwether-client --example follow -- 127.0.0.1:2181 /settings
//! ```

#![allow(clippy::print_stdout, reason = "what it is for")]

use bellwether_client::{Client, Error, EventKind};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [servers, path] = arguments.as_slice() else {
        return Err("usage: follow SERVERS PATH".into());
    };
    let client = Client::connect(servers).await?;
    loop {
        // Data and watch come with one request: no change between them is missed.
        let (data, stat, watch) = match client.get_watched(path).await {
            Ok(found) => found,
            Err(Error::NO_NODE) => break,
            // Neither says anything about the node. A read can simply be repeated.
            Err(error) if error.is_transient() => continue,
            Err(error) => return Err(error.into()),
        };
        let text = String::from_utf8_lossy(&data);
        println!("version {}: {text}", stat.version);
        // Lost connections do not matter here: the watch is armed again, and a change meanwhile is reported.
        if watch.await?.kind == EventKind::NodeDeleted {
            break;
        }
    }
    println!("deleted");
    client.close().await;
    Ok(())
}
