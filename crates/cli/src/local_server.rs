//! The local server itself, in the process that [`Folder::find_or_start`] has started.

use std::fmt::Write;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use bellwether_server::{Config, Secret, Server, WordList};
use rustix::rand::{GetRandomFlags, getrandom};
use tokio::time::{Instant, MissedTickBehavior};

use crate::exit::Exit;
use crate::local::{Folder, Pauses, try_lock};
use crate::signals::Signals;

/// How long a server waits for the lock that a command may be looking at just now.
const LOCK_LIMIT: Duration = Duration::from_secs(5);

/// How often a server looks whether it is used, at most.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(5);

/// How long a server waits for its first user at least: whoever started it is on the way.
const FIRST_USE_LIMIT: Duration = Duration::from_secs(2);

/// The random bytes of a secret.
const SECRET_BYTES: usize = 32;

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
    folder.write("pid", format!("{}\n", std::process::id()))?;
    let config = Config {
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        // All of them come from one address.
        connections_per_address_max: 0,
        secret: Some(secret(&folder)?),
        words: WordList::none(),
        data_dir: Some(folder.path().join("data")),
        ..Config::default()
    };
    let server = Server::start(config)
        .await
        .context("the server cannot start")?;
    let [address] = server.addresses() else {
        bail!("the server listens on other than one address")
    };
    folder.write("port", format!("{}\n", address.port()))?;
    let start = tokio::select! {
        error = server.failed() => {
            folder.forget_port()?;
            return Err(error.into());
        }
        _ = signals.next() => None,
        // Held until the end: no command may start the next server before this one has gone.
        start = idle(&server, &folder, idle_limit) => Some(start?),
    };
    folder.forget_port()?;
    server.shutdown().await;
    drop((lock, start));
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
            // Whoever holds it is about to use this server. One who has read the port and not connected yet is turned
            // away, and starts over.
            if try_lock(&start)? && server.retire() {
                return Ok(start);
            }
        }
    }
}

/// The secret of this folder, made by its first server. Later ones keep it: sessions outlive a server, and their
/// passwords follow from it.
fn secret(folder: &Folder) -> anyhow::Result<Secret> {
    if let Some(secret) = folder.read("secret")? {
        return Ok(Secret::new(secret.trim()));
    }
    let mut bytes = [0; SECRET_BYTES];
    let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
    if count < bytes.len() {
        bail!("the system has no random bytes");
    }
    let mut secret = String::new();
    for byte in bytes {
        write!(secret, "{byte:02x}")?;
    }
    folder.write("secret", format!("{secret}\n"))?;
    Ok(Secret::new(secret))
}
