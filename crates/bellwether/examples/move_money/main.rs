//! Moves money between two SQLite databases in two processes, and kills one of them at each step.
//!
//! Each bank is a process with its own database and takes part in every transfer that names it; a third process begins a transfer and
//! decides. The process that is killed, at any step, is started again. In the end both banks have applied the decision, and the sum is
//! unchanged.
//!
//! ```sh
//! bellwether serve &
//! cargo run -p bellwether --example move_money
//! ```

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "an example shows what it does"
)]

mod bank;
mod show;
mod step;

use anyhow::Result;
use tokio::process::Command;

pub(crate) use show::{scenes, show};

#[tokio::main]
async fn main() -> Result<()> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.len() > 1 {
        return play(&arguments).await;
    }
    let address = arguments.pop().unwrap_or_else(|| "127.0.0.1:2181".into());
    for scene in scenes() {
        let shown = show(&address, scene, |role| {
            let mut command = Command::new(std::env::current_exe()?);
            command.args(role);
            Ok(command)
        });
        println!("{}", shown.await?);
    }
    Ok(())
}

/// Runs one of the processes until it is done or killed: address, role, and the arguments of the role.
pub(crate) async fn play(role: &[String]) -> Result<()> {
    let role: Vec<&str> = role.iter().map(String::as_str).collect();
    match role[..] {
        [address, "bank", transfers, name, database, stop_at] => {
            bank::run(address, transfers, name, database, stop_at).await
        }
        [address, "transfer", transfers, id, amount, stop_at] => {
            bank::transfer(address, transfers, id, amount, stop_at).await
        }
        _ => anyhow::bail!("no such role: {role:?}"),
    }
}
