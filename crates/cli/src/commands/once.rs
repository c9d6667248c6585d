//! `bellwether once`: a command that is run to success once.
//!
//! It is a job under a lock, and its success is a node beside the line, written while the lock is held.

use std::future::pending;

use bellwether::{Client, Lock, Previous, Who, WriteError, zk};
use serde_json::json;

use crate::any_lock::{AnyGuard, AnyLock};
use crate::args::OnceArgs;
use crate::commands::lock::{acquire, finish};
use crate::exit::Exit;
use crate::keeper::End;
use crate::output::Output;
use crate::patience::Patience;
use crate::presented::presented;
use crate::refusal::Verb;
use crate::rendering::time_text;
use crate::workplace::at_workplace;
use crate::{local, node_path, previous};

pub(crate) fn run(args: OnceArgs, output: Output) -> anyhow::Result<Exit> {
    let patience = Patience::new(&args.wait, false);
    at_workplace(&args.job, patience, output, async |workplace| {
        let done = Done {
            zk: workplace.client().raw(),
            path: node_path::child(&args.path, "done"),
        };
        let lock = lock(workplace.client(), &args);
        let turn = async {
            // Most calls come when all is done, and leave no trace then.
            if let Some(stat) = done.look().await? {
                return Ok(Turn::Done(stat));
            }
            tokio::select! {
                guard = acquire(&lock, workplace.client(), patience, output) => Ok(match guard? {
                    // Somebody may have done it since.
                    Some(guard) => match done.look().await? {
                        None => Turn::Mine(Box::new(guard)),
                        Some(stat) => {
                            guard.release().await?;
                            Turn::Done(stat)
                        }
                    },
                    None => Turn::NotHad,
                }),
                stat = done.seen() => Ok(Turn::Done(stat)),
            }
        };
        let turn: anyhow::Result<Turn> = match workplace.unless_told(turn).await {
            Ok(turn) => turn,
            Err(exit) => return Ok(exit),
        };
        let guard = match turn? {
            Turn::Mine(guard) => guard,
            Turn::Done(stat) => {
                let since = time_text(stat.ctime);
                output.notice(format_args!("{} was done at {since}", args.path));
                return Ok(Exit::Done);
            }
            Turn::NotHad => return Ok(patience.exit()),
        };
        if let Previous::Crashed(crash) = guard.previous() {
            output.notice(previous::told(&args.path, crash));
        }
        let end = workplace.run(&args.command, &guard, []).await?;
        if end == End::Job(Exit::Command(0))
            && let Err(error) = done.record(&guard).await
        {
            output.error(&anyhow::Error::new(error).context("it ran, but that is not recorded"));
            return Ok(Exit::Lost);
        }
        Ok(finish(end, *guard, workplace).await)
    })
}

/// What became of the wait.
enum Turn {
    Mine(Box<AnyGuard>),
    Done(zk::Stat),
    NotHad,
}

fn lock(client: &Client, args: &OnceArgs) -> AnyLock {
    let lock = Lock::new(client, &args.path).crash_mark();
    AnyLock::Lock(presented!(lock, client, args))
}

/// The node that tells that it is done.
struct Done {
    zk: zk::Client,
    path: String,
}

impl Done {
    async fn look(&self) -> anyhow::Result<Option<zk::Stat>> {
        loop {
            match self.zk.check_stat(&self.path).await {
                // The next request waits until there is a connection again.
                Err(zk::Error::ConnectionLoss) => {}
                stat => return Ok(stat.map_err(Verb::Read.on(&self.path))?),
            }
        }
    }

    /// Resolves when it is done.
    async fn seen(&self) -> zk::Stat {
        loop {
            match self.zk.check_and_watch_stat(&self.path).await {
                Ok((Some(stat), _)) => return stat,
                Ok((None, watch)) => drop(watch.changed().await),
                // As above.
                Err(zk::Error::ConnectionLoss) => {}
                // Whoever waits in line hears of it too.
                Err(_) => pending().await,
            }
        }
    }

    /// Records that it is done, under the lock.
    async fn record(&self, guard: &AnyGuard) -> Result<(), WriteError> {
        let record = json!({
            "version": 1,
            "token": guard.token(),
            "host": local::host(),
            "user": Who::user_of_process(),
        });
        loop {
            let mut write = guard.write();
            write.create(&self.path, record.to_string());
            match write.commit().await {
                // Harmless twice: the second one finds the first.
                Err(WriteError::OutcomeUnknown { .. }) => {}
                Err(WriteError::Refused {
                    source: zk::Error::NodeExists,
                    ..
                }) => return Ok(()),
                recorded => return recorded,
            }
        }
    }
}
