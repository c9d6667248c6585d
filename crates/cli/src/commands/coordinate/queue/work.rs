//! `bellwether queue work`: runs a command for each item.

use bellwether::queue::{Order, OrderedQueue};
use bellwether::{DelayQueue, Error, ErrorKind, PriorityQueue, Queue};
use tracing::{Instrument, info_span};

use super::take::{attempt, next};
use super::{followed, following, with_queue};
use crate::args::{QueueOrder, QueueWorkArgs};
use crate::connect::patience::Patience;
use crate::exit::Exit;
use crate::hold::backoff::Backoff;
use crate::hold::job_runner::{JobRunner, with_job_runner};
use crate::output::Output;

pub(super) fn run(args: QueueWorkArgs, output: Output) -> anyhow::Result<Exit> {
    let attempts = args.attempts.get();
    with_job_runner(
        &args.job,
        &args.command,
        Patience::endless(),
        output,
        async |job_runner| {
            job_runner.let_jobs_finish();
            let mut backoff = Backoff::new(args.workers.pause);
            loop {
                if let Err(exit) = job_runner.renew().await {
                    return Ok(exit);
                }
                let client = job_runner.client().clone();
                let worked = following!(args.order, &client, &args.path, |queue| {
                    let queue = queue.attempts_max(attempts);
                    work(&queue, &args, job_runner).await
                })?;
                let exit = match worked {
                    Worked::Attempt(exit) => exit,
                    Worked::Nothing => return Ok(Exit::Done),
                    Worked::Ended(exit) => return Ok(exit),
                };
                if let Some(exit) = job_runner.interrupted_in_job() {
                    return Ok(exit);
                }
                match exit {
                    Exit::Command(0) => backoff.succeeded(),
                    // The next item would fail in the same way.
                    Exit::Failed | Exit::NotRunnable | Exit::NotFound => return Ok(exit),
                    exit if exit.is_by_keyboard() => return Ok(exit),
                    exit => {
                        let (path, pause) = (&args.path, backoff.failed());
                        let what = match exit {
                            Exit::Lost => format!("the session, or a claim in {path}, was lost"),
                            Exit::TooLong => {
                                format!("a command for {path} ran longer than --max-time")
                            }
                            exit => format!("a command for {path} failed: {}", exit.reason()),
                        };
                        output.notice(format_args!("{what}; next attempt in {pause:?}"));
                        if let Err(exit) = job_runner.pause(pause).await {
                            return Ok(exit);
                        }
                    }
                }
            }
        },
    )
}

/// How a turn of the worker ended.
enum Worked {
    /// The command was run, or the claim or the session was lost.
    Attempt(Exit),
    /// There was no item for the idle time.
    Nothing,
    /// The worker ends.
    Ended(Exit),
}

async fn work<O: Order>(
    queue: &OrderedQueue<O>,
    args: &QueueWorkArgs,
    job_runner: &JobRunner<'_>,
) -> anyhow::Result<Worked> {
    let patience = Patience::within(args.idle);
    let taken = next(queue, &args.path, patience, job_runner.output);
    match job_runner.unless_stopped(taken).await {
        Err(exit) => Ok(Worked::Ended(exit)),
        Ok(Ok(None)) => Ok(Worked::Nothing),
        Ok(Ok(Some(claim))) => {
            let token = claim.token().number();
            let span = info_span!("attempt", path = args.path, token);
            let exit = attempt(claim, &args.path, &args.command, job_runner);
            let exit = exit.instrument(span).await?;
            Ok(Worked::Attempt(exit))
        }
        // The next turn opens another session.
        Ok(Err(Error {
            kind: ErrorKind::SessionEnded | ErrorKind::NoSession(_),
            ..
        })) => Ok(Worked::Attempt(Exit::Lost)),
        Ok(Err(error)) => Err(error.into()),
    }
}
