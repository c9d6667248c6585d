//! `bellwether lock`: a command under a lock.

use std::time::Duration;

use bellwether::{AcquireError, Client, Lock, LockGuard};
use tokio::time::timeout;

use crate::args::LockArgs;
use crate::connect::connect;
use crate::exit::Exit;
use crate::family::Family;
use crate::job::Job;
use crate::keeper::{End, Keeper, Times};
use crate::output::Output;

/// How long a command has to end after SIGTERM when the hold is lost; no more than a third of the session timeout.
const GRACE: Duration = Duration::from_secs(3);

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
    if timeout(CLOSE_LIMIT, client.close()).await.is_err() {
        tracing::warn!("the end of the session was not acknowledged");
    }
    exit
}

async fn under_lock(
    client: &Client,
    args: &LockArgs,
    keeper: &Keeper,
    output: Output,
) -> anyhow::Result<Exit> {
    let path = if args.path.starts_with('/') {
        args.path.clone()
    } else {
        format!("/{}", args.path)
    };
    let program = args.command[0].to_string_lossy();
    let lock = Lock::new(client, path).message(program.clone());
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
    ];
    let times = Times {
        session_timeout: client.session_timeout(),
        grace: GRACE.min(client.session_timeout() / 3),
    };
    let end = match Job::start(&args.command, &variables, Family::adopt()?) {
        Ok(job) => keeper.attend(job, &guard, times, output).await?,
        Err((error, exit)) => {
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
    match timeout(client.session_timeout(), guard.release()).await {
        Ok(Ok(())) => Ok(exit),
        // The command has ended, and part of its time was not covered by the lock.
        Ok(Err(error)) => {
            output.error(&error.into());
            Ok(Exit::Lost)
        }
        Err(_) => {
            output.error(&anyhow::anyhow!(
                "the release of {} was not acknowledged",
                lock.path()
            ));
            Ok(Exit::Lost)
        }
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
