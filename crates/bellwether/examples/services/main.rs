//! Eight small services, each a loop that outlives its sessions: `cargo run --example services -- scheduler 127.0.0.1:2181`.

#![allow(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "an example shows what it does"
)]

pub(crate) mod config_reload;
pub(crate) mod discovery;
pub(crate) mod handlers;
pub(crate) mod nightly;
pub(crate) mod rate_limit;
pub(crate) mod scheduler;
pub(crate) mod transfer;
pub(crate) mod workers;

use std::time::Duration;

use anyhow::{Context, Result, bail};
use bellwether::connect;

/// Pause of a service after a transient failure.
pub(crate) const REST: Duration = Duration::from_millis(200);

#[tokio::main]
async fn main() -> Result<()> {
    let mut args = std::env::args().skip(1);
    let service = args.next().context("which service?")?;
    let address = args.next().unwrap_or_else(|| "127.0.0.1:2181".into());
    let client = connect(address).await?;
    match service.as_str() {
        "scheduler" => scheduler::run(&client, |token| println!("tick under {token}")).await,
        "workers" => {
            workers::put(&client, &workers::Job { host: "db7".into() }).await?;
            workers::run(&client, async |job| println!("draining {}", job.host)).await
        }
        "nightly" => {
            let ledger = nightly::Ledger::open("nightly.db".as_ref())?;
            nightly::run(&client, &ledger, 1).await?;
            println!("done: {:?}", ledger.nights()?);
            Ok(())
        }
        "config-reload" => {
            config_reload::run(&client, |settings| println!("now {settings:?}")).await
        }
        "discovery" => {
            let web = discovery::announce(&client, "10.0.0.7:8080").await?;
            discovery::follow(&client, |addresses| println!("{addresses:?}")).await?;
            web.leave().await;
            Ok(())
        }
        "rate-limit" => {
            let limit = rate_limit::Limit::new(&client, 5);
            println!("{}", limit.call(async { "called" }).await?);
            Ok(())
        }
        "transfer" => {
            let (payer, payee) = (transfer::Account::with(100), transfer::Account::default());
            tokio::select! {
                served = transfer::serve(&client, "payer", &payer) => served?,
                served = transfer::serve(&client, "payee", &payee) => served?,
                decision = transfer::send(&client, "rent", 60) => println!("{:?}", decision?),
            }
            println!("{} and {}", payer.balance(), payee.balance());
            Ok(())
        }
        "handlers" => {
            let handlers = handlers::Handlers::new(&client);
            std::thread::spawn({
                let handlers = handlers.clone();
                move || handlers.hit_on_a_thread()
            });
            println!(
                "{} hits, ready: {}",
                handlers.hit().await?,
                handlers.is_ready()
            );
            client.close_gently(Duration::from_secs(5)).await;
            Ok(())
        }
        other => bail!("no service {other:?}"),
    }
}

/// A real pause, between two tries.
#[expect(
    clippy::disallowed_methods,
    reason = "a service rests between two tries"
)]
pub(crate) async fn rest() {
    tokio::time::sleep(REST).await;
}
