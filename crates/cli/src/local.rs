//! The local default: a server of this user on this host, started by the first command that wants it.
//!
//! The folder, of mode 0700 and one for each host name because homes are shared, holds
//!
//! | file | meaning |
//! |---|---|
//! | `server.lock` | locked by the server for as long as it lives |
//! | `start.lock` | locked by whoever starts a server, and by a server that is about to leave |
//! | `port` | where the server listens; counts only while `server.lock` is held |
//! | `pid` | the server's process, for people |
//! | `log` | what the server has to say |
//! | `data/` | the server's data, which outlives it |
//!
//! A `port` of a dead server never counts: it is removed under `start.lock`, while nobody holds `server.lock`,
//! before the next server is started.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use bellwether_server::{Config, Server};
use rustix::fs::{FlockOperation, flock};
use rustix::process::Pid;
use tokio::time::{Instant, MissedTickBehavior};

use crate::exit::Exit;
use crate::signals::Signals;

/// How long a command waits for a server that it, or another command, is starting.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How long a command waits for the end of a server that answers no more, before it tries again.
const END_LIMIT: Duration = Duration::from_secs(2);

/// How long a server waits for the lock that a command may be looking at just now.
const SERVER_LOCK_LIMIT: Duration = Duration::from_secs(5);

/// How often a server looks whether it is used, at most.
const IDLE_LOOK_EVERY: Duration = Duration::from_secs(5);

/// The folder of a local server.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// This user's folder on this host; made if it is missing.
    pub(crate) fn of_user() -> anyhow::Result<Self> {
        let state = match absolute("XDG_STATE_HOME") {
            Some(state) => state,
            None => absolute("HOME")
                .context("neither XDG_STATE_HOME nor HOME is set")?
                .join(".local/state"),
        };
        let parent = state.join("bellwether");
        let folder = parent.join(host());
        let made = fs::create_dir_all(&parent).and_then(|()| {
            match DirBuilder::new().mode(0o700).create(&folder) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
        });
        made.with_context(|| format!("cannot make {}", folder.display()))?;
        let folder = Self(folder);
        folder.check()?;
        Ok(folder)
    }

    /// The address of the server, which is started if there is none.
    pub(crate) async fn find_or_start(&self) -> anyhow::Result<SocketAddr> {
        if let Some(address) = self.running()? {
            return Ok(address);
        }
        let deadline = Instant::now() + START_LIMIT;
        let start = self.open("start.lock")?;
        let mut pauses = Pauses::until(deadline);
        while !try_lock(&start)? {
            if !pauses.next().await {
                bail!(
                    "another command has been starting a server in {} for too long",
                    self.0.display()
                );
            }
        }
        if let Some(address) = self.running()? {
            return Ok(address);
        }
        self.forget_port()?;
        let mut server = self.spawn()?;
        let mut pauses = Pauses::until(deadline);
        loop {
            if let Some(address) = self.running()? {
                return Ok(address);
            }
            let log = self.0.join("log");
            if let Some(status) = server.try_wait()? {
                bail!(
                    "the server ended at once with {status}; see {}",
                    log.display()
                );
            }
            if !pauses.next().await {
                bail!(
                    "the server is not ready after {START_LIMIT:?}; see {}",
                    log.display()
                );
            }
        }
    }

    /// Waits for the end of a server that answers no more: a process that is killed closes its sockets before
    /// its lock, and would be found again.
    pub(crate) async fn until_gone(&self, address: SocketAddr) -> anyhow::Result<()> {
        let mut pauses = Pauses::until(Instant::now() + END_LIMIT);
        while self.running()? == Some(address) && pauses.next().await {}
        Ok(())
    }

    /// Where a living server listens.
    fn running(&self) -> anyhow::Result<Option<SocketAddr>> {
        let lock = self.open("server.lock")?;
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            // Nobody holds it. The lock goes with the file when this returns.
            Ok(()) => return Ok(None),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error).context("cannot look at server.lock"),
        }
        match fs::read_to_string(self.0.join("port")) {
            Ok(port) => {
                let port = port
                    .trim()
                    .parse::<u16>()
                    .context("the file port holds no port")?;
                Ok(Some((Ipv4Addr::LOCALHOST, port).into()))
            }
            // It is about to be ready, or about to leave.
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context("cannot read the file port"),
        }
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.0.join("log"))?;
        let program = std::env::current_exe().context("cannot find this program")?;
        Command::new(program)
            .args(["serve", "--local"])
            .arg(&self.0)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the server")
    }

    fn open(&self, name: &str) -> anyhow::Result<File> {
        let path = self.0.join(name);
        let opened = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path);
        opened.with_context(|| format!("cannot open {}", path.display()))
    }

    /// Writes a file so that it is seen whole or not at all.
    fn write(&self, name: &str, text: String) -> io::Result<()> {
        let new = self.0.join(format!("{name}.new"));
        fs::write(&new, text)?;
        fs::rename(new, self.0.join(name))
    }

    fn forget_port(&self) -> io::Result<()> {
        match fs::remove_file(self.0.join("port")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Refuses a folder that others could write to.
    fn check(&self) -> anyhow::Result<()> {
        let metadata = fs::metadata(&self.0)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            bail!(
                "{} must belong to this user alone (mode 0700)",
                self.0.display()
            );
        }
        Ok(())
    }
}

/// The server itself, in the process that [`Folder::find_or_start`] has started.
pub(crate) async fn serve(folder: PathBuf, idle_limit: Duration) -> anyhow::Result<Exit> {
    // Away from the terminal and the group of the command that happened to be the first. It fails only for the
    // leader of a group, which is what somebody gets who runs this by hand.
    let _ = rustix::process::setsid();
    let folder = Folder(folder);
    folder.check()?;
    let mut signals = Signals::to_end()?;
    let lock = folder.open("server.lock")?;
    let mut pauses = Pauses::until(Instant::now() + SERVER_LOCK_LIMIT);
    while !try_lock(&lock)? {
        if !pauses.next().await {
            bail!("another server lives in {}", folder.0.display());
        }
    }
    folder.write("pid", format!("{}\n", std::process::id()))?;
    let config = Config {
        listen: vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))],
        // All of them come from one address.
        connections_per_address_max: 0,
        data_dir: Some(folder.0.join("data")),
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

/// Waits until nobody has used the server for long; returns with the start lock held.
async fn idle(server: &Server, folder: &Folder, limit: Duration) -> anyhow::Result<File> {
    let unused = || server.connections() == 0 && server.sessions() == 0;
    let mut looks = tokio::time::interval(IDLE_LOOK_EVERY.min(limit.max(Duration::from_millis(1))));
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut since = Instant::now();
    loop {
        looks.tick().await;
        if !unused() {
            since = Instant::now();
        } else if since.elapsed() >= limit {
            let start = folder.open("start.lock")?;
            // Whoever holds it is about to use this server. So is one who came while it was being taken; and one
            // who has read the port but not connected yet is refused and starts over.
            if try_lock(&start)? && unused() {
                return Ok(start);
            }
        }
    }
}

/// Whether a process is a local server, by its command line. Commands leave it alone when they clean up behind a job:
/// it serves others too, whoever happened to start it.
pub(crate) fn is_server(process: Pid) -> bool {
    let command_line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let mut words = command_line.split(|byte| *byte == 0).skip(1);
    words.next() == Some(b"serve") && words.next() == Some(b"--local")
}

/// The host's name, as a name for a folder.
pub(crate) fn host() -> String {
    let host = rustix::system::uname()
        .nodename()
        .to_string_lossy()
        .replace('/', "_");
    if host.is_empty() || host.starts_with('.') {
        "localhost".to_owned()
    } else {
        host
    }
}

/// The user's name, for people.
pub(crate) fn user() -> String {
    std::env::var("USER")
        .or_else(|_| std::env::var("LOGNAME"))
        .unwrap_or_else(|_| format!("uid {}", rustix::process::geteuid().as_raw()))
}

fn try_lock(file: &File) -> anyhow::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error).context("cannot lock"),
    }
}

/// A folder from the environment; the XDG specification says that a relative one is to be ignored.
fn absolute(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

/// Pauses between looks at a file, longer and longer, up to a deadline.
struct Pauses {
    deadline: Instant,
    pause: Duration,
}

impl Pauses {
    fn until(deadline: Instant) -> Self {
        Self {
            deadline,
            pause: Duration::from_millis(1),
        }
    }

    /// Pauses; `false` if the time is up.
    #[expect(
        clippy::disallowed_methods,
        reason = "file locks of other processes cannot be awaited"
    )]
    async fn next(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(50));
        true
    }
}
