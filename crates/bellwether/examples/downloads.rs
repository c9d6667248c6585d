//! A semaphore limits concurrent downloads; the limit is raised while some wait. Without `async`.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example downloads
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::thread;

use anyhow::Result;
use bellwether::blocking::Wait;
use bellwether::inspect::Contention;
use bellwether::{Semaphore, connect};

const PATH: &str = "/examples/downloads";

fn main() -> Result<()> {
    let address = std::env::args().nth(1);
    let address = address.unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let client = connect(address).wait()?;
    let semaphore = Semaphore::new(&client, PATH, 2);
    semaphore.set_limit(2).wait()?;
    let first = semaphore.acquire_many(2).wait()?;
    thread::scope(|threads| {
        let mut downloads = Vec::new();
        for number in 0..4 {
            let semaphore = semaphore.clone().message(format!("download {number}"));
            downloads.push(threads.spawn(move || {
                let permit = semaphore.acquire().wait()?;
                println!("download {number} runs");
                permit.release().wait()?;
                anyhow::Ok(())
            }));
        }
        let line = Contention::new(&client, PATH).line().wait()?;
        let waiting = line.iter().filter(|one| !one.holds);
        println!("{} wait", waiting.count());
        semaphore.set_limit(4).wait()?;
        for download in downloads {
            download.join().expect("it does not panic")?;
        }
        anyhow::Ok(())
    })?;
    first.release().wait()?;
    drop(semaphore);
    client.close().wait();
    Ok(())
}
