//! The local server itself, in the process that [`Folder::find_or_start`] has started.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use bellwether_server::{Config, RecoveryError, Server, StartError, WordList};
use tokio::time::{Instant, MissedTickBehavior};

use crate::exit::Exit;
use crate::local::{Folder, Pauses, try_lock};
use crate::signals::Signals;
use crate::socket_path::SocketPath;

/// How long a server waits for the lock that a command may be looking at just now.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// How often a server looks whether it is used, at most.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a server waits for its first user at least: the command that started it is on the way.
const FIRST_USE_LIMIT: Duration = Duration::from_secs(2);

/// Serves until nobody has used the server for long, or until a signal.
pub(crate) async fn run(folder: PathBuf, idle_limit: Duration) -> anyhow::Result<Exit> {
    // Away from the terminal and the group of the command that happened to be the first. It fails only for the
    // leader of a group, which is what somebody gets who runs this by hand.
    let _ = rustix::process::setsid();
    let folder = Folder::at(folder)?;
    let mut signals = Signals::to_end_daemon()?;
    let lock = folder.open("server.lock")?;
    let mut pauses = Pauses::until(Instant::now() + LOCK_LIMIT);
    while !try_lock(&lock)? {
        if !pauses.next().await {
            bail!("another server lives in {}", folder.path().display());
        }
    }
    // Nobody else lives here, so a socket is what a killed server has left. Its last moments may overlap with this.
    let socket = folder.socket();
    match fs::remove_file(&socket) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove {}", socket.display()));
        }
        _ => {}
    }
    let socket = SocketPath::new(&socket)?;
    let config = Config {
        listen: Vec::new(),
        listen_unix: Some(socket.path().to_owned()),
        words: WordList::all(),
        data_dir: Some(folder.path().join("data")),
        ..Config::default()
    };
    let server = loop {
        match Server::start(config.clone()).await {
            // A server that was killed releases its folder a moment before its data.
            Err(StartError::Data(RecoveryError::InUse { .. })) if pauses.next().await => {}
            started => break started.context("the server cannot start")?,
        }
    };
    let start = tokio::select! {
        error = server.failed() => return Err(error.into()),
        _ = signals.next() => None,
        // Held until the end: no command may start the next server before this one has gone.
        start = idle(&server, &folder, idle_limit) => Some(start?),
    };
    server.shutdown().await;
    drop((socket, lock, start));
    Ok(Exit::Done)
}

/// Waits until nobody has used the server for long, and lets it take nobody in any more; returns with the start lock
/// held.
async fn idle(server: &Server, folder: &Folder, limit: Duration) -> anyhow::Result<File> {
    let mut looks = tokio::time::interval(IDLE_LOOK_EVERY.min(limit.max(Duration::from_millis(1))));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since = Instant::now();
    let mut patience = limit.max(FIRST_USE_LIMIT);
    loop {
        looks.tick().await;
        if server.connections() > 0 || server.sessions() > 0 {
            since = Instant::now();
            patience = limit;
        } else if since.elapsed() >= patience {
            let start = folder.open("start.lock")?;
            // A command that holds it is about to use this server. One that connects from now on is turned away, and starts
            // over.
            if try_lock(&start)? && server.retire() {
                return Ok(start);
            }
        }
    }
}
