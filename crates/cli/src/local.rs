//! The local default: a server of this user on this host, started by the first command that wants it.
//!
//! The folder, of mode 0700 and one for each host name because homes are shared, holds
//!
//! | file | meaning |
//! |---|---|
//! | `server.lock` | locked by the server for as long as it lives |
//! | `start.lock` | locked by whoever starts a server, and by a server that is about to leave |
//! | `port` | where the server listens; counts only while `server.lock` is held |
//! | `pid` | the server's process |
//! | `secret` | what the server wants to hear before it serves anybody; mode 0600 |
//! | `log` | what the server has to say |
//! | `data/` | the server's data, which outlives it |
//!
//! A `port` of a dead server never counts: it is removed under `start.lock`, while nobody holds `server.lock`,
//! before the next server is started. So a command sends the secret to nobody else who has got the port since.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use bellwether_server::Secret;
use rustix::fs::{FlockOperation, flock};
use rustix::process::Pid;
use tokio::time::Instant;

use crate::front;
use crate::output::Hinted;

/// How long a command waits for a server that it, or another command, is starting.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How long a command waits for the end of a server that answers no more, before it tries again.
const END_LIMIT: Duration = Duration::from_secs(2);

/// The folder of a local server.
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

/// A server that lives.
#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    pub(crate) process: Pid,
    pub(crate) secret: Secret,
}

impl Folder {
    /// This user's folder on this host; made if it is missing.
    pub(crate) fn of_user() -> anyhow::Result<Self> {
        let state = base_folder("XDG_STATE_HOME", ".local/state").ok_or_else(|| {
            Hinted::new(
                "no place for a local server: neither XDG_STATE_HOME nor HOME is an absolute path",
                "set HOME, or name the servers with --connect or BELLWETHER_CONNECT",
            )
        })?;
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

    /// The folder as it is, for the server in it.
    pub(crate) fn at(path: PathBuf) -> anyhow::Result<Self> {
        let folder = Self(path);
        folder.check()?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The server, which is started if there is none.
    pub(crate) async fn find_or_start(&self) -> anyhow::Result<Running> {
        if let Some(server) = self.running()? {
            return Ok(server);
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
        if let Some(server) = self.running()? {
            return Ok(server);
        }
        self.forget_port()?;
        let mut server = self.spawn()?;
        let mut pauses = Pauses::until(deadline);
        loop {
            if let Some(server) = self.running()? {
                return Ok(server);
            }
            let log = self.0.join("log");
            if let Some(status) = server.try_wait()? {
                let message = format!("the local server ended at once with {status}");
                bail!(Hinted::new(message, format!("see {}", log.display())));
            }
            if !pauses.next().await {
                let message = format!("the local server is not ready after {START_LIMIT:?}");
                bail!(Hinted::new(message, format!("see {}", log.display())));
            }
        }
    }

    /// Waits for the end of a server that answers no more, or was told to end: a process that is killed closes its
    /// sockets before its lock, and would be found again. False if it lives on.
    pub(crate) async fn until_gone(&self, server: &Running) -> anyhow::Result<bool> {
        let mut pauses = Pauses::until(Instant::now() + END_LIMIT);
        let is_same = |now: Running| now.process == server.process;
        while self.running()?.is_some_and(is_same) {
            if !pauses.next().await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The server that lives in this folder, if there is one.
    pub(crate) fn running(&self) -> anyhow::Result<Option<Running>> {
        let lock = self.open("server.lock")?;
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            // Nobody holds it. The lock goes with the file when this returns.
            Ok(()) => return Ok(None),
            Err(rustix::io::Errno::WOULDBLOCK) => {}
            Err(error) => return Err(error).context("cannot look at server.lock"),
        }
        // Without a port, it is about to be ready, or about to leave.
        let Some(port) = self.read("port")? else {
            return Ok(None);
        };
        let port: u16 = port.trim().parse().context("the file port has no port")?;
        let process = self.read("pid")?.context("the file pid is missing")?;
        let process = process.trim().parse().ok().and_then(Pid::from_raw);
        let secret = self.read("secret")?.context("the file secret is missing")?;
        Ok(Some(Running {
            address: (Ipv4Addr::LOCALHOST, port).into(),
            process: process.context("the file pid has no number")?,
            secret: Secret::new(secret.trim()),
        }))
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.0.join("log"))?;
        Command::new(front::PROGRAM)
            .arg0("bellwether")
            .args(["serve", "--local"])
            .arg(&self.0)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the server")
    }

    pub(crate) fn open(&self, name: &str) -> anyhow::Result<File> {
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

    /// A file's text; `None` if there is no such file.
    pub(crate) fn read(&self, name: &str) -> anyhow::Result<Option<String>> {
        match fs::read_to_string(self.0.join(name)) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("cannot read the file {name}")),
        }
    }

    /// Writes a file so that it is seen whole or not at all, and by this user alone.
    pub(crate) fn write(&self, name: &str, text: String) -> io::Result<()> {
        let new = self.0.join(format!("{name}.new"));
        let mut options = OpenOptions::new();
        options.create(true).truncate(true).write(true).mode(0o600);
        options.open(&new)?.write_all(text.as_bytes())?;
        fs::rename(new, self.0.join(name))
    }

    pub(crate) fn forget_port(&self) -> io::Result<()> {
        match fs::remove_file(self.0.join("port")) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Refuses a folder that others could write to.
    fn check(&self) -> anyhow::Result<()> {
        let metadata = fs::metadata(&self.0)?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            let folder = self.0.display();
            bail!(Hinted::new(
                format!("{folder} must belong to this user alone (mode 0700)"),
                format!("look at what is in it, then: chmod 700 {folder}"),
            ));
        }
        Ok(())
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

pub(crate) fn try_lock(file: &File) -> anyhow::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(rustix::io::Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error).context("cannot lock"),
    }
}

/// A base folder of the XDG specification, which says that a relative one is to be ignored.
pub(crate) fn base_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    let absolute = |variable| {
        let path = std::env::var_os(variable).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

/// Pauses between looks at a file, longer and longer, up to a deadline.
pub(crate) struct Pauses {
    deadline: Instant,
    pause: Duration,
}

impl Pauses {
    pub(crate) fn until(deadline: Instant) -> Self {
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
    pub(crate) async fn next(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(50));
        true
    }
}
