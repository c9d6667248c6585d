//! `bellwether lock --hold`: a lock for a script.

use std::time::Duration;

use bellwether::Previous;
use serde_json::{Value, json};

use super::{acquire, check};
use crate::any_lock::{AnyGuard, AnyLock};
use crate::args::{LockArgs, OnCrash};
use crate::aside::Aside;
use crate::asked;
use crate::exit::Exit;
use crate::input;
use crate::output::{self, Output};
use crate::patience::Patience;
use crate::people::who_json;
use crate::previous;
use crate::rendering::data_json;
use crate::session::close;
use crate::signals::Signals;
use crate::terminal;
use crate::workplace::give_back;

/// Holds a lock without a command. There is no keeper then, for there is nothing to keep.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn hold(args: LockArgs, output: Output) -> anyhow::Result<Exit> {
    check(&args)?;
    // Ctrl-Z, or a look at stdin from the background, must not stop the heartbeat.
    terminal::never_stop()?;
    let mut signals = Signals::to_end()?;
    let patience = Patience::new(&args.wait, args.at_once);
    let client = tokio::select! {
        client = patience.connect(&args.job.connect, output, |connect| connect) => match client? {
            Some(client) => client,
            None => return Ok(patience.exit()),
        },
        signal = signals.next() => return Ok(Exit::Signal(signal.as_raw())),
    };
    let lock = AnyLock::of(&client, &args);
    let limit = client.session_timeout();
    let exit = tokio::select! {
        guard = acquire(&lock, &client, patience, output) => match guard {
            Ok(Some(guard)) => keep(guard, &args, limit, &mut signals, output).await,
            Ok(None) => Ok(patience.exit()),
            Err(error) => Err(error),
        },
        signal = signals.next() => Ok(Exit::Signal(signal.as_raw())),
    };
    drop(lock);
    close(client).await;
    exit
}

/// Keeps the lock for as long as it is wanted, and gives it back.
async fn keep(
    guard: AnyGuard,
    args: &LockArgs,
    limit: Duration,
    signals: &mut Signals,
    output: Output,
) -> anyhow::Result<Exit> {
    let path = guard.path().to_owned();
    Ok(
        match until_input_ends(&guard, args, signals, output).await? {
            Exit::Lost => Exit::Lost,
            Exit::Refused => {
                let release = guard.release_unrepaired();
                give_back(&path, release, limit, Exit::Refused, output).await
            }
            exit => give_back(&path, guard.release(), limit, exit, output).await,
        },
    )
}

/// Tells of the hold, and waits until stdin ends or a signal comes.
async fn until_input_ends(
    guard: &AnyGuard,
    args: &LockArgs,
    signals: &mut Signals,
    output: Output,
) -> anyhow::Result<Exit> {
    if let Previous::Crashed(crash) = guard.previous() {
        let told = previous::told(guard.path(), crash);
        if args.on_crash == OnCrash::Fail {
            output.say(told);
            return Ok(Exit::Refused);
        }
        output.notice(told);
    }
    let (path, token) = (guard.path(), guard.token());
    if args.json {
        let previous = previous_json(guard.previous());
        output::answer_line(json!({"path": path, "token": token, "previous": previous}))?;
    } else {
        output::answer_line(token)?;
    }
    let aside = Aside::start();
    tokio::select! {
        () = input::end() => Ok(Exit::Done),
        signal = signals.next() => {
            tracing::debug!(signal = signal.as_raw(), "released by a signal");
            Ok(Exit::Done)
        }
        () = guard.lost() => {
            let error = anyhow::anyhow!("{path} is lost");
            aside.say(move || output.error(&error));
            aside.said().await;
            Ok(Exit::Lost)
        }
        never = asked::pass_on(guard, args.json, &aside, output) => match never {},
    }
}

fn previous_json(previous: &Previous) -> Value {
    match previous {
        Previous::Clean => json!({"state": "clean"}),
        Previous::Crashed(crash) => json!({
            "state": "crashed",
            "who": crash.who.as_ref().map(who_json),
            "token": crash.token,
            "note": data_json(crash.note.as_deref()),
        }),
        _ => json!({"state": "unknown"}),
    }
}
