//! Workers that wait until a migration is done, without `async`.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example barrier
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether::blocking::Wait;
use bellwether::{Barrier, connect};

const WORKERS: usize = 3;

#[expect(
    clippy::disallowed_methods,
    reason = "stands for the work of a migration"
)]
fn main() -> Result<()> {
    let address = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let client = connect(&address).wait()?;
    let migration = Barrier::new(&client, "/examples/barrier").message("migration of the tables");
    ensure!(migration.set().wait()?, "another migration is running");

    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| {
            let address = address.clone();
            thread::spawn(move || work(worker, &address))
        })
        .collect();
    println!("the migration is under way");
    thread::sleep(Duration::from_millis(500));
    migration.lift().wait()?;
    println!("the migration is done");
    for worker in workers {
        worker.join().expect("a worker does not panic")?;
    }
    Ok(())
}

fn work(worker: usize, address: &str) -> Result<()> {
    let client = connect(address).wait()?;
    let migration = Barrier::new(&client, "/examples/barrier");
    if let Some(who) = migration.set_by().wait()? {
        let reason = who.message.unwrap_or_default();
        println!("worker {worker} waits for the {reason}");
    }
    migration.wait().wait()?;
    println!("worker {worker} begins");
    Ok(())
}
