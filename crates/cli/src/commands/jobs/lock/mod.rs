//! `bellwether lock`: runs a command under a lock, or holds a lock for a script.

mod explain;
mod forecast;
mod hold;
mod lately;

use std::future::pending;

use bellwether::Hold;
use bellwether::hold::{Crash, Previous};
use bellwether::{Client, Error, ErrorKind};
use serde_json::json;
use tokio::time::timeout;

use crate::args::{LockArgs, OnCrash};
use crate::connect::patience::Patience;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::hold::any_lock::{self, AnyLock};
use crate::hold::holds::Holds;
use crate::hold::job_runner::{JobRunner, with_job_runner};
use crate::hold::keeper::End;
use crate::hold::nested;
use crate::hold::previous;
use crate::hold::waiting::{self, Having};
use crate::output::crash_text;
use crate::output::refusal::Refusal;
use crate::output::{self, Output};

pub(crate) use self::explain::explain;
pub(crate) use self::hold::hold;

pub(crate) fn run(args: LockArgs, output: Output) -> anyhow::Result<Exit> {
    check(&args)?;
    let patience = Patience::new(&args.wait);
    with_job_runner(
        &args.job,
        &args.command,
        patience,
        output,
        async |job_runner| {
            let guards = match acquire_all(&args, patience, job_runner).await? {
                Ok(guards) => guards,
                Err(exit) => return Ok(exit),
            };
            let mut repaired = false;
            for guard in &guards {
                if let Previous::Crashed(crash) = guard.previous().clone() {
                    match after_crash(&crash, guard, &args, job_runner).await? {
                        AfterCrash::Ready { repaired: now } => repaired |= now,
                        AfterCrash::Refused => return Ok(refuse(guards, job_runner).await),
                        AfterCrash::Ended(exit) => return Ok(exit),
                    }
                }
            }
            let repaired = repaired.then(|| (previous::VARIABLE, Some(previous::REPAIRED.into())));
            let holds: Vec<&Hold> = guards.iter().collect();
            let end = job_runner.run_under(&args.command, Holds::new(&holds), repaired);
            let end = end.await?;
            Ok(finish(end, guards, job_runner).await)
        },
    )
}

/// Acquires all locks that the arguments name, one after the other. `Err` with the exit code if one was not acquired.
async fn acquire_all(
    args: &LockArgs,
    patience: Patience,
    job_runner: &JobRunner<'_>,
) -> anyhow::Result<Result<Vec<Hold>, Exit>> {
    let (client, output) = (job_runner.client(), job_runner.output);
    let mut guards: Vec<Hold> = Vec::new();
    for lock in AnyLock::all(client, args) {
        let acquired = job_runner.unless_interrupted(acquire(&lock, client, patience, output));
        let acquired = tokio::select! {
            acquired = acquired => acquired,
            path = lost(&guards) => {
                output.error(&anyhow::anyhow!("{path} is lost"));
                guards.retain(Hold::is_held);
                return Ok(Err(release(guards, Exit::Lost, job_runner).await));
            }
        };
        let end = match acquired {
            Ok(Ok(Some(guard))) => {
                guards.push(guard);
                continue;
            }
            Ok(Ok(None)) => patience.exit(client).await,
            Ok(Err(error)) => Err(error),
            Err(exit) => Ok(exit),
        };
        if end.is_err() {
            guards.retain(Hold::is_held);
        }
        // Without a release, the next holder of the others would see a crash, although nothing was run.
        let exit = release(guards, *end.as_ref().unwrap_or(&Exit::Failed), job_runner).await;
        return end.map(|_| Err(exit));
    }
    Ok(Ok(guards))
}

/// Resolves with the path of the first lock that is lost; never without locks.
async fn lost(guards: &[Hold]) -> &str {
    let holds: Vec<&Hold> = guards.iter().collect();
    match holds.is_empty() {
        true => pending().await,
        false => {
            let token = Holds::new(&holds).lost().await.token();
            let lost = guards.iter().find(|guard| guard.token() == token);
            lost.map_or("", |guard| guard.path())
        }
    }
}

/// Releases locks under which nothing was run.
async fn release(guards: Vec<Hold>, mut exit: Exit, job_runner: &JobRunner<'_>) -> Exit {
    for guard in guards {
        let path = guard.path().to_owned();
        exit = job_runner
            .settle(&path, guard.release_unrepaired(), exit)
            .await;
    }
    exit
}

/// What to do after a crash of the previous holder.
enum AfterCrash {
    /// Run the command.
    Ready { repaired: bool },
    /// Do not run the command.
    Refused,
    /// Exit at once.
    Ended(Exit),
}

/// Reports a crash, and does what `--on-crash` says.
async fn after_crash(
    crash: &Crash,
    guard: &Hold,
    args: &LockArgs,
    job_runner: &JobRunner<'_>,
) -> anyhow::Result<AfterCrash> {
    let told = crash_text::report(guard.path(), crash);
    let repair = match args.on_crash.as_ref().unwrap_or(&OnCrash::Run) {
        OnCrash::Run => {
            job_runner.output.say(told);
            return Ok(AfterCrash::Ready { repaired: false });
        }
        OnCrash::Fail => {
            job_runner.output.say(told);
            return Ok(AfterCrash::Refused);
        }
        OnCrash::Repair(repair) => repair,
    };
    job_runner.output.say(format_args!("{told}; repairing"));
    if let Some(note) = &crash.note {
        // If the repair crashes too, the next holder needs the note.
        guard.note(note).await?;
    }
    let command = ["sh", "-c", repair].map(Into::into);
    let end = job_runner.run(&command, guard, []).await?;
    if let Some(exit) = job_runner.interrupted_in_job() {
        return Ok(AfterCrash::Ended(exit));
    }
    Ok(match end {
        End::Job(Exit::Command(0)) => AfterCrash::Ready { repaired: true },
        End::Job(Exit::Command(code)) => {
            let told = format!(
                "the repair of {} exited with {code}; the command is not run",
                guard.path()
            );
            job_runner.output.say(told);
            AfterCrash::Refused
        }
        End::NotStarted(_) => AfterCrash::Refused,
        // Ended by a signal, or with the hold: half a repair is a crash too.
        end => AfterCrash::Ended(end.exit()),
    })
}

/// Releases the locks, and keeps the records of crashes.
async fn refuse(guards: Vec<Hold>, job_runner: &JobRunner<'_>) -> Exit {
    for guard in &guards {
        if let Previous::Crashed(_) = guard.previous() {
            job_runner.output.hint(format_args!(
                "repair what the crash left behind, then run: bellwether lock --clear {}",
                guard.path()
            ));
        }
    }
    release(guards, Exit::Refused, job_runner).await
}

/// Releases the locks after the command. If a signal ended the command, it may have left work half done, so the next holder sees a
/// crash.
pub(crate) async fn finish(end: End, guards: Vec<Hold>, job_runner: &JobRunner<'_>) -> Exit {
    match end {
        End::Job(mut exit @ Exit::Command(_)) => {
            for guard in guards {
                let path = guard.path().to_owned();
                exit = job_runner.settle(&path, guard.release(), exit).await;
            }
            exit
        }
        End::NotStarted(exit) => release(guards, exit, job_runner).await,
        // The locks end with the session.
        end => end.exit(),
    }
}

/// `lock --clear`: deletes the record of a crash.
pub(crate) fn clear(args: LockArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.job.connect, output, async |client| {
        let path = &args.path;
        let cleared = match any_lock::clear(client, path).await {
            Err(Error {
                kind: ErrorKind::Held { .. },
                ..
            }) => {
                let refusal = Refusal::no(format!("{path} is held: there is no crash to clear"));
                return Err(refusal
                    .hint("the record that is there belongs to the present holder")
                    .into());
            }
            cleared => cleared?,
        };
        if args.json {
            let line = json!({"path": path, "cleared": cleared});
            return Ok(output::answer_line(line)?);
        }
        output.notice(match cleared {
            true => format!("the record of the crash at {path} was deleted"),
            false => format!("no crash is recorded at {path}"),
        });
        Ok(Exit::Done)
    })
}

/// Refuses combinations of options that make no sense.
fn check(args: &LockArgs) -> Result<(), Refusal> {
    if let Some(limit) = args.of
        && args.permits > limit
    {
        let what = format!(
            "--permits {} is more than the limit of {limit}",
            args.permits
        );
        return Err(Refusal::usage(what));
    }
    if args.json && !args.hold && !args.clear && !args.explain {
        return Err(Refusal::usage("--json needs --hold, --clear or --explain"));
    }
    if let Some(OnCrash::Repair(_)) = args.on_crash
        && (args.read || args.hold)
    {
        let what = match args.read {
            true => "a repair needs the lock alone, so --read cannot run one",
            false => "--hold runs no command, so it cannot run a repair",
        };
        return Err(Refusal::usage(what));
    }
    Ok(())
}

/// Acquires the lock within the wait limit; `None` if the limit passed.
pub(crate) async fn acquire(
    lock: &AnyLock,
    client: &Client,
    patience: Patience,
    output: Output,
) -> anyhow::Result<Option<Hold>> {
    let path = lock.path();
    nested::check(client, path, |held| lock.shares_with(held)).await?;
    if let Some(limit) = lock.other_limit().await {
        output.notice(format_args!(
            "the limit of {path} is {limit} on the servers, and that counts; `bellwether set {path} N` changes it"
        ));
    }
    if patience.is_at_once() {
        let guard = lock.try_acquire().await?;
        if guard.is_none() && !output.is_quiet() {
            let by = waiting::holders(client, path).await;
            let by = by.map_or_else(String::new, |who| format!(" by {who}"));
            output.notice(format_args!("{path} is held{by}"));
        }
        return Ok(guard);
    }
    let acquired = async {
        let (progress, turn) = lock.join().await?;
        waiting::for_turn(path, Having::Held, progress, turn, output).await
    };
    let (Some(left), Some(limit)) = (patience.left(), patience.limit()) else {
        return Ok(Some(acquired.await?));
    };
    match timeout(left, acquired).await {
        Ok(guard) => Ok(Some(guard?)),
        Err(_) => {
            if !output.is_quiet() {
                let by = waiting::holders(client, path).await;
                let by = by.map_or_else(String::new, |who| format!(", held by {who}"));
                output.notice(format_args!(
                    "timed out after {limit:?} waiting for {path}{by}"
                ));
            }
            Ok(None)
        }
    }
}
