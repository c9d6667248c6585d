//! A hundred writers append to one file, each with its own session.
//!
//! Each record is written in several pieces, as careless programs do. With the lock the records are complete and in order; without it they
//! are not.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example hundred_writers                             # with the lock
//! cargo run -p bellwether --example hundred_writers -- 127.0.0.1:2181 --without # without it
//! ```

#![allow(clippy::print_stdout, reason = "an example shows what it does")]

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use bellwether::{Lock, connect};
use tokio::task::JoinSet;

pub(crate) const WRITERS: usize = 100;
const LINES_OF_A_RECORD: usize = 5;

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments
        .next()
        .unwrap_or_else(|| "127.0.0.1:2181".to_owned());
    let locked = arguments.next().as_deref() != Some("--without");
    let path = std::env::temp_dir().join(format!("hundred-writers-{}", std::process::id()));
    File::create(&path)?;
    let result = write_all(&address, &path, locked).await;
    let whole = std::fs::read_to_string(&path).map(|text| whole_records(&text));
    std::fs::remove_file(&path)?;
    result?;
    let whole = whole?;
    println!("{whole} of {WRITERS} records stand whole");
    ensure!(!locked || whole == WRITERS, "the lock did not hold");
    Ok(())
}

pub(crate) async fn write_all(address: &str, path: &Path, locked: bool) -> Result<()> {
    let mut writers = JoinSet::new();
    for writer in 0..WRITERS {
        let (address, path) = (address.to_owned(), path.to_owned());
        writers.spawn(async move { write_record(&address, path, writer, locked).await });
    }
    while let Some(written) = writers.join_next().await {
        written??;
    }
    Ok(())
}

async fn write_record(address: &str, path: PathBuf, writer: usize, locked: bool) -> Result<()> {
    let client = connect(address)
        .await
        .with_context(|| format!("writer {writer}"))?;
    let guard = match locked {
        true => Some(Lock::new(&client, "/examples/file").acquire().await?),
        false => None,
    };
    let mut file = OpenOptions::new().append(true).open(path)?;
    for line in 0..LINES_OF_A_RECORD {
        writeln!(file, "{writer} {line}")?;
        // Lets other tasks run, as on a busy machine.
        tokio::task::yield_now().await;
    }
    if let Some(guard) = guard {
        guard.release().await?;
    }
    client.close().await;
    Ok(())
}

/// Number of records whose lines are together and in order.
pub(crate) fn whole_records(text: &str) -> usize {
    let lines: Vec<_> = text.lines().collect();
    let is_whole = |record: &[&str]| {
        let writer = record[0].split(' ').next().unwrap_or_default();
        (0..LINES_OF_A_RECORD).all(|line| record[line] == format!("{writer} {line}"))
    };
    lines
        .windows(LINES_OF_A_RECORD)
        .filter(|record| is_whole(record))
        .count()
}
