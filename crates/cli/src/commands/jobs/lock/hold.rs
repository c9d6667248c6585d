//! `bellwether lock --hold`: a lock for a script.

use std::time::Duration;

use bellwether::Hold;
use bellwether::hold::Previous;
use serde_json::{Value, json};

use super::{acquire, check};
use crate::args::{LockArgs, OnCrash};
use crate::connect::patience::Patience;
use crate::connect::session::close;
use crate::exit::Exit;
use crate::hold::any_lock::AnyLock;
use crate::hold::job_runner::{presented, settle};
use crate::hold::notice_printer::NoticePrinter;
use crate::hold::release_requests;
use crate::job::terminal;
use crate::output::crash_text;
use crate::output::input;
use crate::output::{self, Output};
use crate::signals::Signals;

/// Holds a lock for a script. Without a job, it needs no keeper.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn hold(args: LockArgs, output: Output) -> anyhow::Result<Exit> {
    check(&args)?;
    // Ctrl-Z, or a read of stdin in the background, must not stop the heartbeat.
    terminal::never_stop()?;
    let mut signals = Signals::to_end()?;
    let patience = Patience::new(&args.wait);
    let client = tokio::select! {
        client = patience.connect(&args.job.connect, output, |connect| presented(connect, &args.job, &[])) => client?,
        signal = signals.next() => return Ok(Exit::Signal(signal.as_raw())),
    };
    let lock = AnyLock::of(&client, &args);
    let limit = client.session_timeout();
    let exit = tokio::select! {
        guard = acquire(&lock, &client, patience, output) => match guard {
            Ok(Some(guard)) => keep(guard, &args, limit, &mut signals, output).await,
            Ok(None) => patience.exit(&client).await,
            Err(error) => Err(error),
        },
        signal = signals.next() => Ok(Exit::Signal(signal.as_raw())),
    };
    drop(lock);
    close(client).await;
    exit
}

/// Keeps the lock until it is no longer wanted, and releases it.
async fn keep(
    guard: Hold,
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
                settle(&path, release, limit, Exit::Refused, output).await
            }
            exit => settle(&path, guard.release(), limit, exit, output).await,
        },
    )
}

/// Prints the token, and waits until stdin ends or a signal arrives.
async fn until_input_ends(
    guard: &Hold,
    args: &LockArgs,
    signals: &mut Signals,
    output: Output,
) -> anyhow::Result<Exit> {
    if let Previous::Crashed(crash) = guard.previous() {
        output.say(crash_text::report(guard.path(), crash));
        if args.on_crash == Some(OnCrash::Fail) {
            return Ok(Exit::Refused);
        }
    }
    let (path, token) = (guard.path(), guard.token());
    if args.json {
        let previous = previous_json(guard.previous());
        output::answer_line(json!({"path": path, "token": token, "previous": previous}))?;
    } else {
        output::answer_line(token)?;
    }
    let notices = NoticePrinter::start();
    tokio::select! {
        () = input::end() => Ok(Exit::Done),
        signal = signals.next() => {
            tracing::debug!(signal = signal.as_raw(), "released by a signal");
            Ok(Exit::Done)
        }
        () = guard.lost() => {
            let error = anyhow::anyhow!("{path} is lost");
            notices.print(move || output.error(&error));
            notices.flush().await;
            Ok(Exit::Lost)
        }
        never = release_requests::pass_on(guard, args.json, &notices, output) => match never {},
    }
}

fn previous_json(previous: &Previous) -> Value {
    match previous {
        Previous::Clean => json!({"state": "clean"}),
        Previous::Crashed(crash) => {
            let mut object = crash_text::object(crash);
            object["state"] = json!("crashed");
            object
        }
        _ => json!({"state": "unknown"}),
    }
}
