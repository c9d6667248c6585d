//! The libraries in Rust as peers; see `bellwether_bench::peer` for what they read and answer.

use std::time::Duration;

use anyhow::{Result, bail};
use bellwether_bench::contend;
use bellwether_bench::peer::{self, Outcome, Task};
use clap::{Parser, ValueEnum};
use zookeeper_client as zk;

const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Does tasks from stdin with a library.
#[derive(Debug, Parser)]
struct Args {
    library: Library,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Library {
    Bellwether,
    BellwetherOnRuntime,
    ZookeeperClient,
}

fn main() -> Result<()> {
    let Args { library } = Args::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    peer::serve(|task| {
        runtime.block_on(async {
            match (library, task.recipe.as_str()) {
                (Library::Bellwether, "lock") => {
                    let connect = bellwether::connect(&task.address);
                    bellwether_lock(task, connect).await
                }
                (Library::BellwetherOnRuntime, "lock") => {
                    let connect = bellwether::connect(&task.address);
                    bellwether_lock(task, connect.on_current_runtime()).await
                }
                (Library::ZookeeperClient, "lock") => zookeeper_client_lock(task).await,
                (_, other) => bail!("no recipe {other}"),
            }
        })
    })
}

async fn bellwether_lock(task: &Task, connect: bellwether::Connect) -> Result<Outcome> {
    let connect = connect.session_timeout(SESSION_TIMEOUT);
    let connect = || async { Ok(connect.clone().await?) };
    contend::run(task, connect, |client, place| {
        let lock = bellwether::Lock::new(&client, &task.path);
        async move {
            while !place.is_over() {
                let guard = lock.acquire().await?;
                place.turn();
                guard.release().await?;
            }
            Ok(())
        }
    })
    .await
}

async fn zookeeper_client_lock(task: &Task) -> Result<Outcome> {
    let connect = || async {
        let connector = zk::Client::connector().with_session_timeout(SESSION_TIMEOUT);
        Ok(connector.connect(&task.address).await?)
    };
    contend::run(task, connect, |client: zk::Client, place| {
        let path = task.path.clone();
        async move {
            let acls = zk::Acls::anyone_all();
            let options = zk::LockOptions::new(acls)
                .with_ancestor_options(zk::CreateMode::Container.with_acls(acls))?;
            while !place.is_over() {
                let prefix = zk::LockPrefix::new_curator(&path, "lock-")?;
                let guard = client.lock(prefix, b"", options.clone()).await?;
                place.turn();
                // Dropping the guard deletes in the background, and nobody learns when. The release of the others
                // is acknowledged, so this one is made to be.
                client.delete(guard.lock_path(), None).await?;
                std::mem::forget(guard);
            }
            Ok(())
        }
    })
    .await
}
