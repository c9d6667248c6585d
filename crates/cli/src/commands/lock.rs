//! `bellwether lock`: a command under a lock, or a lock for a script.

use std::time::Duration;

use bellwether::{AcquireError, Client, Lock, LockGuard};
use serde_json::json;
use tokio::time::timeout;

use crate::args::LockArgs;
use crate::connect::connect;
use crate::exit::Exit;
use crate::family::Family;
use crate::input;
use crate::job::Job;
use crate::keeper::{End, Keeper, Times};
use crate::output::{self, Hinted, Output};
use crate::signals::Signals;
use crate::terminal;

/// How long a command has to end after SIGTERM when the hold is lost; no more than a third of the session timeout.
const GRACE: Duration = Duration::from_secs(3);

/// The variable by which a job that takes another lock is known as the same waiter.
const OWNER: &str = "BELLWETHER_OWNER";

/// A wait that is longer is told.
const SILENT_WAIT: Duration = Duration::from_secs(1);

/// How long the end of the session may take. It ends by itself if this is not enough.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(args: LockArgs, output: Output) -> anyhow::Result<Exit> {
    let keeper = Keeper::start()?;
    let client = tokio::select! {
        client = connect(&args.connect, output) => client?,
        exit = keeper.told_to_end() => return Ok(exit),
    };
    let exit = under_lock(&client, &args, &keeper, output).await;
    close(client).await;
    exit
}

/// Holds a lock without a command. There is no keeper then, for there is nothing to keep.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn hold(args: LockArgs, output: Output) -> anyhow::Result<Exit> {
    // Ctrl-Z, or a look at stdin from the background, must not stop the heartbeat.
    terminal::never_stop()?;
    let mut signals = Signals::to_end()?;
    let client = tokio::select! {
        client = connect(&args.connect, output) => client?,
        signal = signals.next() => return Ok(Exit::Signal(signal.as_raw())),
    };
    let lock = lock(&client, &args);
    let exit = tokio::select! {
        guard = acquire(&lock, &args, output) => match guard {
            Ok(Some(guard)) => until_input_ends(guard, &client, &args, &mut signals, output).await,
            Ok(None) => Ok(Exit::NotHad(args.conflict_exit_code)),
            Err(error) => Err(error),
        },
        signal = signals.next() => Ok(Exit::Signal(signal.as_raw())),
    };
    drop(lock);
    close(client).await;
    exit
}

async fn close(client: Client) {
    if timeout(CLOSE_LIMIT, client.close()).await.is_err() {
        tracing::warn!("the end of the session was not acknowledged");
    }
}

/// The lock that the arguments name, with what they say about who waits for it.
fn lock(client: &Client, args: &LockArgs) -> Lock {
    let path = if args.path.starts_with('/') {
        args.path.clone()
    } else {
        format!("/{}", args.path)
    };
    let mut lock = Lock::new(client, path).owner(owner(client));
    // Arguments may be nobody else's business.
    if let Some(program) = args.command.first() {
        lock = lock.command(program.to_string_lossy());
    }
    match &args.message {
        Some(message) => lock.message(message),
        None => lock,
    }
}

/// Who waits, for those who look for circles of waiting: the job around this one, if there is one.
fn owner(client: &Client) -> String {
    std::env::var(OWNER).unwrap_or_else(|_| format!("{:x}", client.session_id()))
}

async fn under_lock(
    client: &Client,
    args: &LockArgs,
    keeper: &Keeper,
    output: Output,
) -> anyhow::Result<Exit> {
    let session_timeout = client.session_timeout();
    let grace = match grace(args, session_timeout) {
        Ok(grace) => grace,
        Err(wrong) => {
            output.error(&wrong.into());
            return Ok(Exit::Usage);
        }
    };
    let times = Times {
        session_timeout,
        grace,
    };
    let lock = lock(client, args);
    let guard = tokio::select! {
        guard = acquire(&lock, args, output) => guard?,
        exit = keeper.told_to_end() => return Ok(exit),
    };
    let Some(guard) = guard else {
        return Ok(Exit::NotHad(args.conflict_exit_code));
    };
    let variables = [
        ("BELLWETHER_TOKEN", guard.token().to_string()),
        ("BELLWETHER_PATH", guard.path().to_owned()),
        (OWNER, owner(client)),
    ];
    let end = match Job::start(&args.command, &variables, Family::adopt()?) {
        Ok(job) => keeper.attend(job, &guard, times, output).await?,
        Err((error, exit)) => {
            let program = args.command[0].display();
            output.error(&anyhow::Error::new(error).context(format!("cannot run {program}")));
            End::Job(exit)
        }
    };
    let exit = match end {
        End::Job(exit) => exit,
        // Nothing to give back.
        End::Lost => return Ok(Exit::Lost),
        End::FrontGone => return Ok(Exit::Failed),
    };
    release(guard, client, exit, output).await
}

/// Holds until stdin ends or a signal comes.
async fn until_input_ends(
    guard: LockGuard,
    client: &Client,
    args: &LockArgs,
    signals: &mut Signals,
    output: Output,
) -> anyhow::Result<Exit> {
    output::answer(|out| {
        let (path, token) = (guard.path(), guard.token());
        if args.json {
            writeln!(out, "{}", json!({ "path": path, "token": token }))?;
        } else {
            writeln!(out, "{token}")?;
        }
        Ok(Exit::Done)
    })?;
    tokio::select! {
        () = input::end() => {}
        signal = signals.next() => tracing::debug!(signal = signal.as_raw(), "released by a signal"),
        () = guard.lost() => {
            output.error(&anyhow::anyhow!("{} is lost", guard.path()));
            return Ok(Exit::Lost);
        }
    }
    release(guard, client, Exit::Done, output).await
}

/// Gives the lock back; `exit` if that was acknowledged in time.
async fn release(
    guard: LockGuard,
    client: &Client,
    exit: Exit,
    output: Output,
) -> anyhow::Result<Exit> {
    let path = guard.path().to_owned();
    match timeout(client.session_timeout(), guard.release()).await {
        Ok(Ok(())) => Ok(exit),
        // Part of the time was not covered by the lock.
        Ok(Err(error)) => {
            output.error(&error.into());
            Ok(Exit::Lost)
        }
        Err(_) => {
            output.error(&anyhow::anyhow!(
                "the release of {path} was not acknowledged"
            ));
            Ok(Exit::Lost)
        }
    }
}

/// How long the command has to end. More than a third of the session timeout would have it stopped for outages that
/// nobody else would notice.
fn grace(args: &LockArgs, session_timeout: Duration) -> Result<Duration, Hinted> {
    let longest = session_timeout / 3;
    match args.grace {
        None => Ok(GRACE.min(longest)),
        Some(grace) if grace <= longest => Ok(grace),
        Some(grace) => Err(Hinted::new(
            format!(
                "a grace of {grace:?} is more than a third of the session timeout, {session_timeout:?}"
            ),
            format!(
                "use --session-timeout {}s, or a shorter grace",
                (grace * 3).as_secs_f64().ceil()
            ),
        )),
    }
}

/// Waits for the lock as the arguments say; `None` if it was not had.
async fn acquire(
    lock: &Lock,
    args: &LockArgs,
    output: Output,
) -> anyhow::Result<Option<LockGuard>> {
    let path = lock.path();
    if args.at_once || args.wait == Some(Duration::ZERO) {
        let guard = lock.try_acquire().await?;
        if guard.is_none() {
            output.notice(format_args!("{path} is held"));
        }
        return Ok(guard);
    }
    let acquired = async {
        match args.wait {
            Some(limit) => lock.acquire_timeout(limit).await,
            None => lock.acquire().await,
        }
    };
    let mut acquired = std::pin::pin!(acquired);
    let acquired = match timeout(SILENT_WAIT, &mut acquired).await {
        Ok(acquired) => acquired,
        Err(_) => {
            output.notice(format_args!("waiting for {path}"));
            acquired.await
        }
    };
    match acquired {
        Ok(guard) => Ok(Some(guard)),
        Err(error @ AcquireError::TimedOut { .. }) => {
            output.notice(error);
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
