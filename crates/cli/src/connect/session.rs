//! Runs the work of a command in a session: connect, work until done or until a signal comes, close.

use std::time::Duration;

use bellwether::{Client, Connect, zk};
use tokio::time::timeout;

use crate::args::{ConnectArgs, TreeArgs};
use crate::connect::patience::Patience;
use crate::connect::shortage;
use crate::exit::Exit;
use crate::output::refusal::Refusal;
use crate::output::{Output, refusal};
use crate::signals::Signals;

/// How long to wait for the acknowledgement of a close. The servers expire the session if it never reaches them.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Runs `work` with the plain client of a session. See [`in_session`].
pub(crate) fn on_tree(
    args: &TreeArgs,
    output: Output,
    work: impl AsyncFnOnce(&zk::Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    in_session(&args.connect, output, async |client| {
        let zk = client.raw();
        let done = work(&zk).await;
        if let Err(error) = &done
            && refusal::meaning(error).0 == Exit::No
            && let Some(chroot) = chroot_that_is_missing(&zk).await
        {
            return Err(Refusal::no_chroot(&chroot).into());
        }
        done
    })
}

/// Opens a session, runs `work` in it, and closes it. A signal ends the command at any point. Where its session has ended, `work`
/// may put another one in its place.
pub(crate) fn in_session(
    args: &ConnectArgs,
    output: Output,
    work: impl AsyncFnOnce(&mut Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    in_session_within(Patience::endless(), args, output, work)
}

/// As [`in_session`], for commands with a wait limit, which includes the time to connect.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn in_session_within(
    patience: Patience,
    args: &ConnectArgs,
    output: Output,
    work: impl AsyncFnOnce(&mut Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let mut signals = Signals::to_end()?;
    let mut session = None;
    let done = async {
        let client = patience.connect(args, output, Connect::fail_fast).await?;
        work(session.insert(client)).await
    };
    let exit = tokio::select! {
        exit = done => exit,
        signal = signals.next() => Ok(Exit::Signal(signal.as_raw())),
    };
    if let Some(client) = session {
        close(client).await;
    }
    match exit {
        Err(error) => Err(shortage::explained(error, args).await),
        exit => exit,
    }
}

/// The chroot, if it does not exist: then there is no other node either.
async fn chroot_that_is_missing(zk: &zk::Client) -> Option<String> {
    let is_missing = async || matches!(timeout(CLOSE_LIMIT, zk.exists("/")).await, Ok(Ok(None)));
    let chroot = zk.root().trim_end_matches('/');
    (!chroot.is_empty() && is_missing().await).then(|| chroot.to_owned())
}

/// Closes a session, and waits for the acknowledgement.
pub(crate) async fn close(client: Client) {
    if timeout(CLOSE_LIMIT, client.close()).await.is_err() {
        tracing::warn!("the end of the session was not acknowledged");
    }
}
