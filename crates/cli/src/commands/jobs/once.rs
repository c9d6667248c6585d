//! `bellwether once`: runs a command until it succeeds once.
//!
//! It is a job under a lock. Its success is recorded in a node, which is written while the lock is held.

use std::future::pending;

use bellwether::hold::Previous;
use bellwether::{Client, Lock, Who, zk};
use bellwether::{Error, ErrorKind, Hold};
use serde_json::json;

use crate::args::OnceArgs;
use crate::commands::jobs::lock::{acquire, finish};
use crate::connect::patience::Patience;
use crate::exit::Exit;
use crate::hold::any_lock::AnyLock;
use crate::hold::job_runner::with_job_runner;
use crate::hold::keeper::End;
use crate::output::Output;
use crate::output::crash_text;
use crate::output::refusal::Verb;
use crate::output::time_text::time_text;
use crate::value::node_path;

pub(crate) fn run(args: OnceArgs, output: Output) -> anyhow::Result<Exit> {
    let patience = Patience::new(&args.wait);
    with_job_runner(
        &args.job,
        &args.command,
        patience,
        output,
        async |job_runner| {
            let done = Done {
                zk: job_runner.client().raw(),
                path: node_path::child(&args.path, "done"),
            };
            let lock = lock(job_runner.client(), &args);
            let turn = async {
                // Most calls come after the success, and write nothing.
                if let Some(stat) = done.look().await? {
                    return Ok(TaskTurn::Done(stat));
                }
                tokio::select! {
                    guard = acquire(&lock, job_runner.client(), patience, output) => Ok(match guard? {
                        // Another caller may have succeeded meanwhile.
                        Some(guard) => match done.look().await? {
                            None => TaskTurn::Mine(Box::new(guard)),
                            Some(stat) => {
                                guard.release().await?;
                                TaskTurn::Done(stat)
                            }
                        },
                        None => TaskTurn::NotHad,
                    }),
                    stat = done.seen() => Ok(TaskTurn::Done(stat)),
                }
            };
            let turn: anyhow::Result<TaskTurn> = match job_runner.unless_interrupted(turn).await {
                Ok(turn) => turn,
                Err(exit) => return Ok(exit),
            };
            let guard = match turn? {
                TaskTurn::Mine(guard) => guard,
                TaskTurn::Done(stat) => {
                    let since = time_text(stat.ctime);
                    output.notice(format_args!("{} succeeded already, at {since}", args.path));
                    return Ok(Exit::Done);
                }
                TaskTurn::NotHad => return patience.exit(job_runner.client()).await,
            };
            if let Previous::Crashed(crash) = guard.previous() {
                output.say(crash_text::report(&args.path, crash));
            }
            let end = job_runner.run(&args.command, &guard, []).await?;
            if end == End::Job(Exit::Command(0))
                && let Err(error) = done.record(&guard).await
            {
                output.error(
                    &anyhow::Error::new(error)
                        .context("the command succeeded, but that could not be recorded"),
                );
                return Ok(Exit::Lost);
            }
            Ok(finish(end, vec![*guard], job_runner).await)
        },
    )
}

/// How the wait ended.
enum TaskTurn {
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
    async fn record(&self, guard: &Hold) -> Result<(), Error> {
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
                Err(Error {
                    kind: ErrorKind::OutcomeUnknown(_),
                    ..
                }) => {}
                Err(Error {
                    kind:
                        ErrorKind::Refused {
                            source: zk::Error::NODE_EXISTS,
                            ..
                        },
                    ..
                }) => return Ok(()),
                recorded => return recorded,
            }
        }
    }
}
