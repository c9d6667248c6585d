//! `bellwether lock`: a command under a lock, or a lock for a script.

mod hold;

use bellwether::{ClearError, Client, Contention, Crash, Previous};
use serde_json::json;
use tokio::time::timeout;

use crate::any_lock::{self, AnyGuard, AnyLock};
use crate::args::{LockArgs, OnCrash};
use crate::exit::Exit;
use crate::keeper::End;
use crate::output::{self, Output};
use crate::patience::Patience;
use crate::people::holders_text;
use crate::previous;
use crate::refusal::{self, Refusal};
use crate::session::with_session;
use crate::waiting::{self, Having};
use crate::workplace::{Workplace, at_workplace};

pub(crate) use self::hold::hold;

pub(crate) fn run(args: LockArgs, output: Output) -> anyhow::Result<Exit> {
    check(&args)?;
    let patience = Patience::new(&args.wait, args.at_once);
    at_workplace(&args.job, patience, output, async |workplace| {
        let lock = AnyLock::of(workplace.client(), &args);
        let acquired = acquire(&lock, workplace.client(), patience, output);
        let guard = match workplace.unless_told(acquired).await {
            Ok(guard) => guard?,
            Err(exit) => return Ok(exit),
        };
        let Some(guard) = guard else {
            return Ok(patience.exit());
        };
        let repaired = match guard.previous().clone() {
            Previous::Crashed(crash) => match face(&crash, &guard, &args, workplace).await? {
                Faced::Ready { repaired } => repaired,
                Faced::Refused => return Ok(refuse(guard, workplace).await),
                Faced::Ended(exit) => return Ok(exit),
            },
            _ => false,
        };
        let repaired = repaired.then(|| (previous::VARIABLE, Some(previous::REPAIRED.into())));
        let end = workplace.run(&args.command, &guard, repaired).await?;
        Ok(finish(end, guard, workplace).await)
    })
}

/// What came of the crash of a holder before.
enum Faced {
    /// The command can be run.
    Ready { repaired: bool },
    /// It shall not be run.
    Refused,
    /// There is nothing more to be done here.
    Ended(Exit),
}

/// Tells of a crash, and does what the arguments say about it.
async fn face(
    crash: &Crash,
    guard: &AnyGuard,
    args: &LockArgs,
    workplace: &Workplace<'_>,
) -> anyhow::Result<Faced> {
    let told = previous::told(guard.path(), crash);
    let repair = match &args.on_crash {
        OnCrash::Run => {
            workplace.output.notice(told);
            return Ok(Faced::Ready { repaired: false });
        }
        OnCrash::Fail => {
            workplace.output.say(told);
            return Ok(Faced::Refused);
        }
        OnCrash::Repair(repair) => repair,
    };
    workplace.output.notice(format_args!("{told}; repairing"));
    if let Some(note) = &crash.note {
        // If the repair dies too, whoever comes next needs it just as much.
        guard.note(note).await?;
    }
    let command = ["sh", "-c", repair].map(Into::into);
    let end = workplace.run(&command, guard, []).await?;
    if let Some(exit) = workplace.was_told_to_end() {
        return Ok(Faced::Ended(exit));
    }
    Ok(match end {
        End::Job(Exit::Command(0)) => Faced::Ready { repaired: true },
        End::Job(Exit::Command(code)) => {
            let told = format!("the repair of {} ended with {code}", guard.path());
            workplace.output.say(told);
            Faced::Refused
        }
        End::NotStarted(_) => Faced::Refused,
        // By a signal, or with the hold: half a repair is a crash too.
        end => Faced::Ended(end.exit()),
    })
}

/// Leaves the lock as it was found.
async fn refuse(guard: AnyGuard, workplace: &Workplace<'_>) -> Exit {
    let path = guard.path().to_owned();
    workplace.output.hint(format_args!(
        "`bellwether lock --clear {path}` forgets it, once all is repaired"
    ));
    let release = guard.release_unrepaired();
    workplace.give_back(&path, release, Exit::Refused).await
}

/// Gives the lock back as the end of the command has it. One that was killed may have left something half done, and so the
/// next holder is told of a crash.
pub(crate) async fn finish(end: End, guard: AnyGuard, workplace: &Workplace<'_>) -> Exit {
    let path = guard.path().to_owned();
    match end {
        End::Job(exit @ Exit::Command(_)) => {
            workplace.give_back(&path, guard.release(), exit).await
        }
        End::NotStarted(exit) => {
            let release = guard.release_unrepaired();
            workplace.give_back(&path, release, exit).await
        }
        // It goes with the session.
        end => end.exit(),
    }
}

/// Forgets the crash of a holder.
pub(crate) fn clear(args: LockArgs, output: Output) -> anyhow::Result<Exit> {
    with_session(&args.job.connect, output, async |client| {
        let path = &args.path;
        let cleared = match any_lock::clear(client, path).await {
            Err(ClearError::Held { .. }) => {
                let refusal = Refusal::no(format!("{path} is held by the one who left its mark"));
                return Err(refusal.hint("it is no crash until that one is gone").into());
            }
            cleared => cleared?,
        };
        if args.json {
            let line = json!({"path": path, "cleared": cleared});
            return Ok(output::answer_line(line)?);
        }
        output.notice(match cleared {
            true => format!("the crash at {path} is forgotten"),
            false => format!("there was no crash at {path}"),
        });
        Ok(Exit::Done)
    })
}

/// Refuses what cannot go together.
fn check(args: &LockArgs) -> Result<(), Refusal> {
    if let Some(limit) = args.of
        && args.permits > limit
    {
        let what = format!("{} of {limit} permits can never be had", args.permits);
        return Err(Refusal::usage(what));
    }
    if args.json && !args.hold && !args.clear {
        return Err(Refusal::usage("--json goes with --hold or --clear"));
    }
    if let OnCrash::Repair(_) = args.on_crash
        && (args.read || args.hold)
    {
        let what = match args.read {
            true => "a repair wants to be alone, and --read is not",
            false => "--hold runs nothing, so it cannot run a repair",
        };
        return Err(Refusal::usage(what));
    }
    Ok(())
}

/// Waits for the lock as the arguments say; `None` if it was not had.
pub(crate) async fn acquire(
    lock: &AnyLock,
    client: &Client,
    patience: Patience,
    output: Output,
) -> anyhow::Result<Option<AnyGuard>> {
    let path = lock.path();
    if let Some(limit) = lock.other_limit().await {
        output.notice(format_args!(
            "the limit of {path} is {limit}; `bellwether set {path} N` changes it"
        ));
    }
    if patience.is_at_once() {
        let guard = lock.try_acquire().await.map_err(refusal::of_acquire)?;
        if guard.is_none() && !output.is_quiet() {
            // For people only: a look that fails, or comes too late, tells nothing.
            let line = Contention::new(client, path).line().await;
            let line = line.unwrap_or_default();
            let holders = holders_text(line.iter().filter(|one| one.holds));
            let by = holders.map_or_else(String::new, |who| format!(" by {who}"));
            output.notice(format_args!("{path} is held{by}"));
        }
        return Ok(guard);
    }
    let acquired = async {
        let (progress, turn) = lock.join().await?;
        waiting::for_turn(path, Having::Held, progress, turn, output).await
    };
    let acquired = async { acquired.await.map_err(refusal::of_acquire) };
    let (Some(left), Some(limit)) = (patience.left(), patience.limit()) else {
        return acquired.await.map(Some);
    };
    match timeout(left, acquired).await {
        Ok(guard) => guard.map(Some),
        Err(_) => {
            output.notice(format_args!("no turn at {path} within {limit:?}"));
            Ok(None)
        }
    }
}
