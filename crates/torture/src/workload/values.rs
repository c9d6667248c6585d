//! Values that are read and changed: under a lock by fenced writes, and by compare-and-set.

use bellwether::state::Seen;
use bellwether::{Client, Config, Error, ErrorKind, Lock};
use bellwether_testkit::history::registers::RegisterStep;
use bellwether_testkit::history::sights::Sight;
use futures_util::StreamExt as _;
use rand::Rng as _;

use super::{Phase, Worker};
use crate::record::Did;

/// How many values one lock guards.
const KEYS: u32 = 3;

/// Reads and changes values under a lock, and now and then breaks the hold of another worker: its session lives on, and only the fence
/// keeps it from writing.
pub(super) async fn run_fenced(mut worker: Worker, client: &Client) {
    let lock = Lock::new(client, format!("{}/lock", worker.path));
    for number in 0.. {
        if worker.is_stopped() {
            return;
        }
        let key = format!("k{}", worker.random.random_range(0..KEYS));
        match worker.random.random_range(0..10) {
            0..2 if worker.phase() == Phase::Faults => break_hold(client, lock.path()).await,
            2..4 => read(&worker, client, &key).await,
            _ => {
                let change = Change {
                    to: worker.value(number),
                    key,
                };
                let stopped = worker.stopped();
                let changed = tokio::select! {
                    changed = change.under(&lock, &mut worker, client) => changed,
                    () = stopped => return,
                };
                if let Err(error) = changed {
                    worker.failed(&error).await;
                }
            }
        }
        worker.pause().await;
    }
}

struct Change {
    key: String,
    to: String,
}

impl Change {
    /// Reads the value and replaces it, both under the lock.
    async fn under(self, lock: &Lock, worker: &mut Worker, client: &Client) -> Result<(), Error> {
        let guard = lock.acquire().await?;
        let path = format!("{}/{}", worker.path, self.key);
        let from = match client.raw().get(&path).await {
            Ok((data, _)) => Some(text(&data)),
            Err(bellwether::zk::Error::NO_NODE) => None,
            // It may try again under the next hold.
            Err(_) => return Ok(()),
        };
        worker.pause().await;
        worker.note(Did::Register(RegisterStep::Changing {
            key: self.key.clone(),
            from: from.clone(),
            to: self.to.clone(),
        }));
        // A careless holder: whether it is lost is left to the fence.
        let write = match from {
            Some(_) => guard.write().set(path, self.to.clone(), None),
            None => guard.write().create(path, self.to.clone()),
        };
        match write.commit().await {
            Ok(()) => worker.note(Did::Register(self.done())),
            // It may have been made.
            Err(Error {
                kind: ErrorKind::OutcomeUnknown(_) | ErrorKind::LostWithSession,
                ..
            }) => {}
            Err(_) => worker.note(Did::Register(self.not_done())),
        }
        // Otherwise the guard is dropped, and the node is deleted in the background.
        if worker.random.random_ratio(3, 4) {
            // Whether the release fails does not matter to the value.
            let _ = guard.release().await;
        }
        Ok(())
    }

    fn done(self) -> RegisterStep {
        let Self { key, to } = self;
        RegisterStep::Changed { key, to }
    }

    fn not_done(self) -> RegisterStep {
        let Self { key, to } = self;
        RegisterStep::NotChanged { key, to }
    }
}

/// Deletes the node of the holder.
async fn break_hold(client: &Client, lock: &str) {
    let raw = client.raw();
    let sequence = |name: &String| name.rsplit('-').next().map(str::to_owned);
    let names = raw.children(lock).await.unwrap_or_default();
    if let Some(first) = names.into_iter().min_by_key(sequence) {
        // It may be gone already.
        let _ = raw.delete(&format!("{lock}/{first}"), None).await;
    }
}

/// Reads a value as it is at some moment between call and return: the check of its version passes the quorum.
async fn read(worker: &Worker, client: &Client, key: &str) {
    let (raw, path) = (client.raw(), format!("{}/{key}", worker.path));
    let key = key.to_owned();
    worker.note(Did::Register(RegisterStep::Reading { key: key.clone() }));
    let Ok((data, stat)) = raw.get(&path).await else {
        return;
    };
    let mut check = raw.new_multi();
    check.check(&path, Some(stat.version));
    if check.commit().await.is_ok() {
        let value = Some(text(&data));
        worker.note(Did::Register(RegisterStep::Read { key, value }));
    }
}

/// Changes a value by compare-and-set, reads it, and follows it.
pub(super) async fn run_config(mut worker: Worker, client: &Client) {
    let config = Config::new(client, format!("{}/value", worker.path));
    let follower = worker.beside();
    tokio::join!(follow(follower, &config), change(worker, client, &config));
}

async fn follow(worker: Worker, config: &Config<String>) {
    let mut values = config.watch();
    while let Some(Some(seen)) = worker.unless_stopped(values.next()).await {
        if let Ok(Seen::Value(entry)) = seen {
            worker.note(Did::See(Sight::Shown {
                what: format!("the value in process {}", worker.generation),
                version: entry.version.number().into(),
            }));
        }
    }
}

async fn change(mut worker: Worker, client: &Client, config: &Config<String>) {
    for number in 0.. {
        if worker.is_stopped() {
            return;
        }
        let to = worker.value(number);
        if worker.random.random_ratio(1, 3) {
            read(&worker, client, "value").await;
        } else if let Some(Err(error)) = worker.unless_stopped(replace(&worker, config, to)).await {
            worker.failed(&error).await;
        }
        worker.pause().await;
    }
}

async fn replace(worker: &Worker, config: &Config<String>, to: String) -> Result<(), Error> {
    let entry = config.get().await?;
    let change = Change {
        key: "value".into(),
        to: to.clone(),
    };
    worker.note(Did::Register(RegisterStep::Changing {
        key: change.key.clone(),
        from: entry.as_ref().map(|entry| entry.value.clone()),
        to: to.clone(),
    }));
    let replaced = match entry {
        Some(entry) => {
            let set = config.compare_and_set(entry.version, &to).await;
            set.map(|version| version.is_some())
        }
        None => config.create(&to).await,
    };
    match replaced {
        Ok(true) => worker.note(Did::Register(change.done())),
        Ok(false) => worker.note(Did::Register(change.not_done())),
        // It may have been made.
        Err(Error {
            kind: ErrorKind::OutcomeUnknown(_),
            ..
        }) => {}
        Err(error) => {
            worker.note(Did::Register(change.not_done()));
            return Err(error);
        }
    }
    Ok(())
}

fn text(data: &[u8]) -> String {
    String::from_utf8_lossy(data).into_owned()
}
