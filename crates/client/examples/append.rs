//! Appends lines from standard input as numbered nodes, many at a time, and prints the outcome of each.
//!
//! ```sh
//! seq 5 | cargo run -p bellwether-client --example append -- 127.0.0.1:2181 /lines
//! ```

#![allow(clippy::print_stdout, reason = "what it is for")]

use bellwether_client::{Client, CreateMode, Error};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [servers, folder] = arguments.as_slice() else {
        return Err("usage: append SERVERS PATH".into());
    };
    let client = Client::connect(servers).await?;
    match client.create(folder, b"", CreateMode::Persistent).await {
        Ok(_) | Err(Error::NODE_EXISTS) => {}
        Err(error) => return Err(error.into()),
    }
    let lines = std::io::read_to_string(std::io::stdin())?;
    let prefix = format!("{folder}/line-");
    // One write to the socket, and the answers in order.
    let replies = client.batch(|client| {
        let create =
            |line: &str| client.create(&prefix, line.as_bytes(), CreateMode::PersistentSequential);
        lines.lines().map(create).collect::<Vec<_>>()
    });
    for (line, reply) in lines.lines().zip(replies) {
        match reply.await {
            Ok(created) => println!("{line}: {}", created.path),
            Err(Error::NotSent) => println!("{line}: not sent, safe to send again"),
            Err(Error::Unknown) => println!("{line}: may be there, look before sending it again"),
            Err(error) => return Err(error.into()),
        }
    }
    client.close().await;
    Ok(())
}
