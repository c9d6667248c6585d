//! The local server itself, in the process that [`Folder::find_or_start`] starts.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use bellwether_server::{Config, RecoveryError, Server, StartError, WordList};
use tokio::time::{Instant, MissedTickBehavior};

use crate::exit::Exit;
use crate::local::socket_path::SocketPath;
use crate::local::{Folder, Pauses, try_lock};
use crate::signals::Signals;

/// How long a server waits for its lock, which a command may hold for a moment to look at it.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// The longest time between checks whether the server is used.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a server waits for its first connection at least: that of the command that started it.
const FIRST_USE_LIMIT: Duration = Duration::from_secs(2);

/// Serves until the server was idle for `idle_limit`, or until a signal arrives.
pub(crate) async fn run(folder: PathBuf, idle_limit: Duration) -> anyhow::Result<Exit> {
    // Leaves the terminal and the process group of the command that started it. This fails only for a process that is the leader of
    // its group, as when a user runs it by hand.
    let _ = rustix::process::setsid();
    let folder = Folder::at(folder)?;
    let mut signals = Signals::to_end_daemon()?;
    let lock = folder.open("server.lock")?;
    let mut pauses = Pauses::until(Instant::now() + LOCK_LIMIT);
    while !try_lock(&lock)? {
        if !pauses.next().await {
            bail!("another server uses {}", folder.path().display());
        }
    }
    // No other server runs, so an existing socket was left by a killed server.
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
            // The kernel releases the lock of a killed server a moment before that of its data.
            Err(StartError::Data(RecoveryError::InUse { .. })) if pauses.next().await => {}
            started => break started.context("the server cannot start")?,
        }
    };
    let start = tokio::select! {
        error = server.failed() => return Err(error.into()),
        _ = signals.next() => None,
        // Held until the end, so that no command starts the next server before this one has exited.
        start = idle(&server, &folder, idle_limit) => Some(start?),
    };
    server.shutdown().await;
    drop((socket, lock, start));
    Ok(Exit::Done)
}

/// Waits until the server was idle for the limit, and makes it refuse new connections. Returns with the start lock held.
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
            // A command that holds the lock is about to use this server. A command that connects later is refused, and tries again.
            if try_lock(&start)? && server.retire() {
                return Ok(start);
            }
        }
    }
}
