//! A session on the tree, for as long as a command wants it.

use std::time::Duration;

use bellwether::{Client, Connect, zk};
use tokio::time::timeout;

use crate::args::{ConnectArgs, TreeArgs};
use crate::connect::connect_with;
use crate::exit::Exit;
use crate::output::Output;
use crate::patience::Patience;
use crate::signals::Signals;

/// How long the end of the session may take. It ends by itself if this is not enough.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Runs `work` on the tree, and ends the session with it. A signal ends it wherever it is.
pub(crate) fn on_tree(
    args: &TreeArgs,
    output: Output,
    work: impl AsyncFnOnce(&zk::Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    in_session(args, output, async |client| work(&client.raw()).await)
}

/// As [`on_tree`]; `work` may put another session in the place of one that has ended.
pub(crate) fn in_session(
    args: &TreeArgs,
    output: Output,
    work: impl AsyncFnOnce(&mut Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    with_session(&args.connect, output, work)
}

/// As [`in_session`], for commands that do not show the tree.
pub(crate) fn with_session(
    args: &ConnectArgs,
    output: Output,
    work: impl AsyncFnOnce(&mut Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    with_patience(args, Patience::endless(), output, work)
}

/// As [`with_session`], for commands that wait.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn with_patience(
    args: &ConnectArgs,
    patience: Patience,
    output: Output,
    work: impl AsyncFnOnce(&mut Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let mut signals = Signals::to_end()?;
    let mut session = None;
    let done = async {
        match patience.connect(args, output, Connect::fail_fast).await? {
            Some(client) => work(session.insert(client)).await,
            None => Ok(patience.exit()),
        }
    };
    let exit = tokio::select! {
        exit = done => exit,
        signal = signals.next() => Ok(Exit::Signal(signal.as_raw())),
    };
    if let Some(client) = session {
        close(client).await;
    }
    exit
}

/// Ends a session, and waits until that is acknowledged.
pub(crate) async fn close(client: Client) {
    if timeout(CLOSE_LIMIT, client.close()).await.is_err() {
        tracing::warn!("the end of the session was not acknowledged");
    }
}

/// Opens a session for a command on the tree. A user waits for the answer, so each server is tried once.
pub(crate) async fn open(args: &TreeArgs, output: Output) -> anyhow::Result<Client> {
    connect_with(&args.connect, output, Connect::fail_fast).await
}
