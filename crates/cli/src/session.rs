//! A session on the tree, for as long as a command wants it.

use std::time::Duration;

use bellwether::zookeeper_client as zk;
use tokio::time::timeout;

use crate::args::TreeArgs;
use crate::connect::connect_raw;
use crate::exit::Exit;
use crate::output::Output;
use crate::refusal::Refusal;
use crate::signals::Signals;

/// How long the end of the session may take. It ends by itself if this is not enough.
const CLOSE_LIMIT: Duration = Duration::from_secs(2);

/// Runs `work` with a session, and ends the session with it, or the one that `work` has put in its place. A signal ends it wherever it is.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn on_tree(
    args: &TreeArgs,
    output: Output,
    work: impl AsyncFnOnce(&mut zk::Client) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    let mut signals = Signals::catch()?;
    let mut session = None;
    let exit = tokio::select! {
        exit = async { work(session.insert(open(args, output).await?)).await } => exit,
        signal = signals.next() => Ok(Exit::Signal(signal.as_raw())),
    };
    if let Some(session) = session {
        close(session).await;
    }
    exit
}

/// Opens a session and proves who it is.
pub(crate) async fn open(args: &TreeArgs, output: Output) -> anyhow::Result<zk::Client> {
    let zk = connect_raw(&args.connect, output).await?;
    for credential in &args.auth {
        let scheme = &credential.scheme;
        let proved = zk.auth(scheme, credential.proof.as_bytes()).await;
        proved.map_err(|error| {
            Refusal::failed(format!(
                "the server does not take the proof of {scheme}: {error}"
            ))
        })?;
    }
    Ok(zk)
}

/// Ends a session and waits for the servers' word, so that nothing of it is left.
pub(crate) async fn close(session: zk::Client) {
    let mut states = session.state_watcher();
    drop(session);
    let ended = async {
        let mut state = states.state();
        while !state.is_terminated() {
            state = states.changed().await;
        }
    };
    if timeout(CLOSE_LIMIT, ended).await.is_err() {
        tracing::warn!("the end of the session was not acknowledged");
    }
}
