//! `bellwether once`: runs a command until it succeeds once.
//!
//! It is a job under a lock. Its success is recorded in a node, which is written while the lock is held.

use std::future::pending;

use bellwether::Hold;
use bellwether::error::WriteError;
use bellwether::hold::Previous;
use bellwether::{Client, Lock, Who, zk};
use serde_json::json;

use crate::args::OnceArgs;
use crate::commands::jobs::lock::{acquire, finish};
use crate::connect::patience::Patience;
use crate::exit::Exit;
use crate::hold::any_lock::AnyLock;
use crate::hold::keeper::End;
use crate::hold::workplace::at_workplace;
use crate::output::Output;
use crate::output::crash_text;
use crate::output::refusal::Verb;
use crate::output::time_text::time_text;
use crate::value::node_path;

pub(crate) fn run(args: OnceArgs, output: Output) -> anyhow::Result<Exit> {
    let patience = Patience::new(&args.wait, false);
    at_workplace(
        &args.job,
        &args.command,
        patience,
        output,
        async |workplace| {
            let done = Done {
                zk: workplace.client().raw(),
                path: node_path::child(&args.path, "done"),
            };
            let lock = lock(workplace.client(), &args);
            let turn = async {
                // Most calls come after the success, and write nothing.
                if let Some(stat) = done.look().await? {
                    return Ok(Turn::Done(stat));
                }
                tokio::select! {
                    guard = acquire(&lock, workplace.client(), patience, output) => Ok(match guard? {
                        // Another caller may have succeeded meanwhile.
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
            let turn: anyhow::Result<Turn> = match workplace.unless_interrupted(turn).await {
                Ok(turn) => turn,
                Err(exit) => return Ok(exit),
            };
            let guard = match turn? {
                Turn::Mine(guard) => guard,
                Turn::Done(stat) => {
                    let since = time_text(stat.ctime);
                    output.notice(format_args!("{} succeeded already, at {since}", args.path));
                    return Ok(Exit::Done);
                }
                Turn::NotHad => return patience.exit(workplace.client()).await,
            };
            if let Previous::Crashed(crash) = guard.previous() {
                output.say(crash_text::report(&args.path, crash));
            }
            let end = workplace.run(&args.command, &guard, []).await?;
            if end == End::Job(Exit::Command(0))
                && let Err(error) = done.record(&guard).await
            {
                output.error(
                    &anyhow::Error::new(error)
                        .context("the command succeeded, but that could not be recorded"),
                );
                return Ok(Exit::Lost);
            }
            Ok(finish(end, vec![*guard], workplace).await)
        },
    )
}

/// How the wait ended.
enum Turn {
    Mine(Box<Hold>),
    Done(zk::Stat),
    NotHad,
}

fn lock(client: &Client, args: &OnceArgs) -> AnyLock {
    AnyLock::Lock(Lock::new(client, &args.path).crash_mark())
}

/// The node that records the success.
struct Done {
    zk: zk::Client,
    path: String,
}

impl Done {
    async fn look(&self) -> anyhow::Result<Option<zk::Stat>> {
        loop {
            match self.zk.exists(&self.path).await {
                // The next request waits for a new connection.
                Err(error) if error.is_transient() => {}
                stat => return Ok(stat.map_err(Verb::Read.on(&self.path))?),
            }
        }
    }

    /// Resolves when the success is recorded.
    async fn seen(&self) -> zk::Stat {
        loop {
            match self.zk.exists_watched(&self.path).await {
                Ok((Some(stat), _)) => return stat,
                Ok((None, watch)) => drop(watch.await),
                // As above.
                Err(error) if error.is_transient() => {}
                // The wait in the line fails with the reason.
                Err(_) => pending().await,
            }
        }
    }

    /// Records the success, under the lock.
    async fn record(&self, guard: &Hold) -> Result<(), WriteError> {
        let record = json!({
            "version": 1,
            "token": guard.token(),
            "host": Who::host_of_process(),
            "user": Who::user_of_process(),
        });
        loop {
            let write = guard.write().create(&self.path, record.to_string());
            match write.commit().await {
                // Idempotent: a second attempt finds the node of the first.
                Err(WriteError::OutcomeUnknown { .. }) => {}
                Err(WriteError::Refused {
                    source: zk::Error::NODE_EXISTS,
                    ..
                }) => return Ok(()),
                recorded => return recorded,
            }
        }
    }
}
