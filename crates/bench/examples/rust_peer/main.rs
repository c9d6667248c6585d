//! The libraries in Rust as peers; see `bellwether_bench::peer` for the protocol.

mod plain;
mod request;
mod state;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, bail};
use bellwether_bench::peer::by_hand::Contender;
use bellwether_bench::peer::contend;
use bellwether_bench::peer::{self, PeerOutcome, Task};
use clap::{Parser, ValueEnum};
use tokio::runtime::Builder;
use zookeeper_client as zk;

const SESSION_TIMEOUT: Duration = Duration::from_secs(30);

/// Items in the queue for each consumer at the start, and the data of an item.
const BACKLOG: usize = 50;
const PAYLOAD: [u8; 100] = [b'x'; 100];

/// Runs tasks from stdin with a library.
#[derive(Debug, Parser)]
struct Args {
    library: Library,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Library {
    Bellwether,
    /// On a runtime of several threads that the contenders share.
    BellwetherOnRuntime,
    /// On a runtime of one thread that the contenders share.
    BellwetherCurrentThread,
    ZookeeperClient,
    /// No library, but the same protocol on blocking sockets.
    ByHand,
    /// The plain form of a recipe, with the thundering herd that the fair one avoids.
    Plain,
}

/// One for each contender by hand.
const THREADS_MAX: usize = 2000;

/// A contender of a shared lock writes once in this number of turns.
const WRITES_ONE_IN: usize = 10;

/// Permits of the semaphore.
const PERMITS: u32 = 5;

fn main() -> Result<()> {
    let Args { library } = Args::parse();
    let mut builder = match library {
        Library::BellwetherCurrentThread => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    builder.max_blocking_threads(THREADS_MAX).enable_all();
    let runtime = builder.build()?;
    peer::serve(|task| {
        runtime.block_on(async {
            match task.recipe.as_str() {
                "exists" => request::exists(task, library).await,
                _ => recipe(task, library).await,
            }
        })
    })
}

async fn recipe(task: &Task, library: Library) -> Result<PeerOutcome> {
    let connect = bellwether::connect(&task.address).session_timeout(SESSION_TIMEOUT);
    match (library, task.recipe.as_str()) {
        (Library::Bellwether, _) => bellwether(task, connect).await,
        (Library::BellwetherOnRuntime | Library::BellwetherCurrentThread, _) => {
            bellwether(task, connect.on_current_runtime()).await
        }
        (Library::ZookeeperClient, "lock") => zookeeper_client_lock(task).await,
        (Library::ByHand, "lock") => lock_by_hand(task).await,
        (Library::Plain, "shared") => plain_shared(task).await,
        (_, other) => bail!("no recipe {other}"),
    }
}

async fn bellwether(task: &Task, connect: bellwether::Connect) -> Result<PeerOutcome> {
    match task.recipe.as_str() {
        "lock" => bellwether_lock(task, connect).await,
        "shared" => bellwether_shared(task, connect).await,
        "permits" => bellwether_permits(task, connect).await,
        "queue" => bellwether_queue(task, connect).await,
        "election" => bellwether_election(task, connect).await,
        "double-barrier" => bellwether_double_barrier(task, connect).await,
        "cache" => state::cache(task, connect).await,
        "cache-changes" => state::cache_changes(task, connect).await,
        "watchers" => state::watchers(task, connect).await,
        other => bail!("no recipe {other}"),
    }
}

async fn bellwether_queue(task: &Task, connect: bellwether::Connect) -> Result<PeerOutcome> {
    let connect = || async { Ok(connect.clone().await?) };
    contend::run(task, connect, |client, place| {
        let queue = bellwether::Queue::<Vec<u8>>::new(&client, &task.path);
        async move {
            queue.put_all(&vec![PAYLOAD.to_vec(); BACKLOG]).await?;
            while !place.is_over() {
                let payload = PAYLOAD.to_vec();
                let taken = async {
                    let claim = queue.take().await?;
                    place.turn();
                    anyhow::Ok(claim.ack().await?)
                };
                // Concurrently, as with Curator's consumer, which puts in the background.
                let put = async { anyhow::Ok(queue.put(&payload).await?) };
                tokio::try_join!(put, taken)?;
            }
            Ok(())
        }
    })
    .await
}

async fn bellwether_election(task: &Task, connect: bellwether::Connect) -> Result<PeerOutcome> {
    let connect = || async { Ok(connect.clone().await?) };
    contend::run(task, connect, |client, place| {
        let election = bellwether::Election::new(&client, &task.path);
        async move {
            while !place.is_over() {
                let leadership = election.campaign().await?;
                place.turn();
                leadership.resign().await?;
            }
            Ok(())
        }
    })
    .await
}

/// A turn is a round; the first member counts them.
async fn bellwether_double_barrier(
    task: &Task,
    connect: bellwether::Connect,
) -> Result<PeerOutcome> {
    let connect = || async { Ok(connect.clone().await?) };
    let ended = Arc::new(AtomicBool::new(false));
    contend::run(task, connect, |client, place| {
        let barrier = bellwether::DoubleBarrier::new(&client, &task.path, task.contenders);
        let ended = Arc::clone(&ended);
        async move {
            while !ended.load(Ordering::SeqCst) {
                let inside = barrier.enter().await?;
                if place.is_first() {
                    place.turn();
                    // All members are inside, and check only when all have left.
                    ended.store(place.is_over(), Ordering::SeqCst);
                }
                inside.leave().await?;
            }
            Ok(())
        }
    })
    .await
}

async fn bellwether_lock(task: &Task, connect: bellwether::Connect) -> Result<PeerOutcome> {
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

async fn bellwether_shared(task: &Task, connect: bellwether::Connect) -> Result<PeerOutcome> {
    let connect = || async { Ok(connect.clone().await?) };
    contend::run(task, connect, |client, place| {
        let lock = bellwether::RwLock::new(&client, &task.path);
        async move {
            for turn in place.number().. {
                if place.is_over() {
                    break;
                }
                if turn % WRITES_ONE_IN == 0 {
                    let guard = lock.write().await?;
                    place.turn();
                    guard.release().await?;
                } else {
                    let guard = lock.read().await?;
                    place.turn();
                    guard.release().await?;
                }
            }
            Ok(())
        }
    })
    .await
}

async fn bellwether_permits(task: &Task, connect: bellwether::Connect) -> Result<PeerOutcome> {
    let connect = || async { Ok(connect.clone().await?) };
    contend::run(task, connect, |client, place| {
        let semaphore = bellwether::Semaphore::new(&client, &task.path, PERMITS);
        async move {
            while !place.is_over() {
                let permit = semaphore.acquire().await?;
                place.turn();
                permit.release().await?;
            }
            Ok(())
        }
    })
    .await
}

async fn plain_shared(task: &Task) -> Result<PeerOutcome> {
    let connect = || connect_plainly(task);
    contend::run(task, connect, |client: zk::Client, place| {
        let path = task.path.clone();
        async move {
            for turn in place.number().. {
                if place.is_over() {
                    break;
                }
                let reads = turn % WRITES_ONE_IN != 0;
                let hold = plain::acquire(&client, &path, reads).await?;
                place.turn();
                hold.release().await?;
            }
            Ok(())
        }
    })
    .await
}

async fn connect_plainly(task: &Task) -> Result<zk::Client> {
    let connector = zk::Client::connector().with_session_timeout(SESSION_TIMEOUT);
    Ok(connector.connect(&task.address).await?)
}

/// A thread for each contender.
async fn lock_by_hand(task: &Task) -> Result<PeerOutcome> {
    let connect = || async {
        let contender = Contender::connect(&task.address, &task.path)?;
        Ok(Arc::new(Mutex::new(contender)))
    };
    contend::run(task, connect, |contender, place| async move {
        let turns = move || {
            // This thread alone uses the session, so it locks it once.
            let mut contender = contender.lock().unwrap_or_else(PoisonError::into_inner);
            while !place.is_over() {
                let node = contender.acquire()?;
                place.turn();
                contender.release(&node)?;
            }
            Ok(())
        };
        tokio::task::spawn_blocking(turns).await?
    })
    .await
}

async fn zookeeper_client_lock(task: &Task) -> Result<PeerOutcome> {
    let connect = || connect_plainly(task);
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
                // Dropping the guard deletes in the background, without an acknowledgement. The release of the others
                // is acknowledged, so this one waits for it too.
                client.delete(guard.lock_path(), None).await?;
                std::mem::forget(guard);
            }
            Ok(())
        }
    })
    .await
}
