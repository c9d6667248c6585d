//! The local server: one for each user and host, started by the first command that needs it.
//!
//! Its folder, of mode 0700, holds
//!
//! | file | meaning |
//! |---|---|
//! | `server.lock` | locked by the server while it runs |
//! | `start.lock` | locked by a command that starts a server, and by a server that is about to exit |
//! | `socket` | the socket of the server; it appears when the server is ready |
//! | `log` | the server's log |
//! | `announced` | when the user was last told which server this is |
//! | `data/` | the server's data, which outlives it |
//!
//! The folder depends only on the user id and the machine. It comes from the user's entry in the password database: `HOME` and
//! `XDG_STATE_HOME` may differ between a shell and cron, whose locks would not exclude each other then. There is a folder for each machine
//! because homes may be shared between hosts; its name comes from `/etc/machine-id`, which outlives a change of the host name. Only `--local`, `BELLWETHER_LOCAL` and the key `local` choose another folder.

pub(crate) mod announcement;
pub(crate) mod dial;
mod machine;
pub(crate) mod server;
pub(crate) mod socket_path;
pub(crate) mod users;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::unistd::User;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::Pid;
use tokio::net::UnixStream;
use tokio::time::Instant;

use crate::args::config_file;
use crate::local::socket_path::SocketPath;
use crate::output::refusal::Refusal;

/// The variable that chooses another folder.
pub(crate) const VARIABLE: &str = "BELLWETHER_LOCAL";

/// This program, even if its file was replaced meanwhile.
pub(crate) const PROGRAM: &str = "/proc/self/exe";

/// How long a command waits for a server that it, or another command, is starting.
const START_LIMIT: Duration = Duration::from_secs(20);

/// How often a command starts a server that ends before it is ready.
const STARTS_MAX: usize = 3;

/// How long a command waits for the end of a server.
const END_LIMIT: Duration = Duration::from_secs(10);

/// Whether the environment names the folder of a local server, and so that this server is used.
pub(crate) fn is_named_by_variable() -> bool {
    folder_in_variable().is_some()
}

fn folder_in_variable() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// The folder of a local server.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    path: PathBuf,
    is_chosen: bool,
}

impl Folder {
    /// The folder that the flag, the variable or the configuration file names, in this order, or else the default folder of this user on
    /// this host. It may not exist yet.
    pub(crate) fn choose(flag: Option<&Path>) -> anyhow::Result<Self> {
        let chosen = flag.map(Path::to_owned).or_else(folder_in_variable);
        let Some(chosen) = chosen.or_else(config_file::local) else {
            return Self::of_user();
        };
        if chosen.as_os_str().is_empty() {
            let what = format!("--local or {VARIABLE} is empty");
            bail!(Refusal::usage(what).hint("set it to a folder, or unset it"));
        }
        Ok(Self {
            path: std::path::absolute(chosen)?,
            is_chosen: true,
        })
    }

    fn of_user() -> anyhow::Result<Self> {
        let uid = nix::unistd::geteuid();
        let user = User::from_uid(uid).context("cannot look up this user")?;
        let home = user.map(|user| user.dir).filter(|dir| dir.is_absolute());
        let home = home.ok_or_else(|| {
            Refusal::failed(format!(
                "no folder for a local server: user {uid} has no home in the password database"
            ))
            .hint(format!(
                "choose a folder with --local or {VARIABLE}, or name the servers with --connect"
            ))
        })?;
        let folders = home.join(".local/state/bellwether");
        let folder = Self {
            path: folders.join(machine::folder_name()),
            is_chosen: false,
        };
        folder.adopt(&machine::host_name())?;
        Ok(folder)
    }

    /// Lets this folder be the one that is named after the host, if that one exists and this one does not. A link changes nothing for
    /// servers and commands that use it.
    fn adopt(&self, by_host: &str) -> anyhow::Result<()> {
        let folder = self.path.display();
        if self.path.exists() || !self.path.with_file_name(by_host).exists() {
            return Ok(());
        }
        match std::os::unix::fs::symlink(by_host, &self.path) {
            // Another command was first.
            Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
            linked => linked.with_context(|| format!("cannot link {folder} to {by_host}")),
        }
    }

    /// An existing folder, for the server itself.
    pub(crate) fn at(path: PathBuf) -> anyhow::Result<Self> {
        let folder = Self {
            path,
            is_chosen: true,
        };
        folder.check()?;
        Ok(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether it is not the default folder.
    pub(crate) fn is_chosen(&self) -> bool {
        self.is_chosen
    }

    /// The file to which the server writes its log.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("socket")
    }

    /// Connects to the server; `None` if it does not run, or is not ready yet.
    pub(crate) async fn connect(&self) -> anyhow::Result<Option<UnixStream>> {
        let socket = self.socket();
        let mut pauses = Pauses::until(Instant::now() + START_LIMIT);
        loop {
            let connected = match SocketPath::new(&socket) {
                Ok(short) => UnixStream::connect(short.path()).await,
                Err(error) => Err(error),
            };
            match connected {
                Ok(stream) => {
                    // In a folder of another user, the server could be that user's.
                    self.check()?;
                    return Ok(Some(stream));
                }
                // Reset: the server closed its socket before it accepted this connection.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::NotFound
                            | ErrorKind::ConnectionRefused
                            | ErrorKind::ConnectionReset
                    ) =>
                {
                    return Ok(None);
                }
                // The accept queue of the server is full.
                Err(error) if error.kind() == ErrorKind::WouldBlock && pauses.next().await => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("cannot use {}", socket.display()));
                }
            }
        }
    }

    /// Connects to the server, and starts it if it does not run.
    ///
    /// # Cancel safety
    ///
    /// A server that is starting continues to start, and the next call finds it.
    pub(crate) async fn find_or_start(&self) -> anyhow::Result<UnixStream> {
        if let Some(server) = self.connect().await? {
            return Ok(server);
        }
        self.make()?;
        let mut pauses = Pauses::until(Instant::now() + START_LIMIT);
        let start = self.open("start.lock")?;
        while !try_lock(&start)? {
            if !pauses.next().await {
                bail!(
                    self.trouble(
                        "another command is starting the local server, and does not finish"
                    )
                );
            }
            if let Some(server) = self.connect().await? {
                return Ok(server);
            }
        }
        let (mut started, mut starts) = (None, 0);
        loop {
            if let Some(server) = self.connect().await? {
                return Ok(server);
            }
            if let Some(server) = &mut started
                && self.has_ended(server)?
            {
                started = None;
            }
            // While the folder is not free, another server is starting or exiting.
            if started.is_none() && self.is_free()? {
                if starts == STARTS_MAX {
                    bail!(self.trouble("the local server exits before it is ready"));
                }
                starts += 1;
                started = Some(self.spawn()?);
            }
            if !pauses.next().await {
                let what = format!("the local server is not ready after {START_LIMIT:?}");
                bail!(self.trouble(&what));
            }
        }
    }

    /// Whether the started server has ended, so that another one may be started. An error if it failed: the next one would fail too.
    fn has_ended(&self, server: &mut Child) -> anyhow::Result<bool> {
        let is_failure = match server.try_wait() {
            Ok(None) => return Ok(false),
            // Ended by a signal: not a failure of the server.
            Ok(Some(status)) => status.code().is_some_and(|code| code != 0),
            // The keeper of a job reaps all children, and may have been first.
            Err(error) if error.raw_os_error() == Some(Errno::CHILD.raw_os_error()) => false,
            Err(error) => return Err(error.into()),
        };
        // It also fails if another server uses the folder.
        if is_failure && self.is_free()? {
            bail!(self.trouble("the local server cannot start"));
        }
        Ok(true)
    }

    /// Waits until a server has exited. Returns false if it has not within the limit.
    pub(crate) async fn until_gone(&self, server: Option<Pid>) -> anyhow::Result<bool> {
        let mut pauses = Pauses::until(Instant::now() + END_LIMIT);
        while let Some(stream) = self.connect().await?
            && process(&stream) == server
        {
            if !pauses.next().await {
                return Ok(false);
            }
        }
        // The server removes its socket first, and ends a moment later.
        while !self.is_free()? && self.connect().await?.is_none() {
            if !pauses.next().await {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn trouble(&self, what: &str) -> Refusal {
        Refusal::failed(what).hint(format!("see {}", self.log().display()))
    }

    /// Creates the folder if it does not exist.
    fn make(&self) -> anyhow::Result<()> {
        let parent = self.path.parent().unwrap_or(Path::new("/"));
        let made = fs::create_dir_all(parent).and_then(|()| {
            match DirBuilder::new().mode(0o700).create(&self.path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
                made => made,
            }
        });
        made.with_context(|| {
            Refusal::failed(format!("cannot create {}", self.path.display())).hint(format!("choose another folder with --local or {VARIABLE}, or name the servers with --connect"))
        })?;
        self.check()
    }

    /// Whether no server uses this folder.
    fn is_free(&self) -> anyhow::Result<bool> {
        let lock = self.open("server.lock")?;
        // The lock is released with the file when this returns.
        match flock(&lock, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => Err(error).context("cannot look at server.lock"),
        }
    }

    fn spawn(&self) -> anyhow::Result<Child> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.log())?;
        Command::new(PROGRAM)
            .arg0("bellwether")
            .args(["serve", "--local"])
            .arg(&self.path)
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("cannot start the server")
    }

    pub(crate) fn open(&self, name: &str) -> anyhow::Result<File> {
        let path = self.path.join(name);
        let opened = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(0o600)
            .open(&path);
        opened.with_context(|| format!("cannot open {}", path.display()))
    }

    /// Refuses a folder that other users can access.
    fn check(&self) -> anyhow::Result<()> {
        let folder = self.path.display();
        let metadata = fs::metadata(&self.path).with_context(|| format!("cannot use {folder}"))?;
        if metadata.uid() != rustix::process::geteuid().as_raw() || metadata.mode() & 0o077 != 0 {
            bail!(
                Refusal::failed(format!("{folder} must belong to this user, with mode 0700"))
                    .hint(format!("check its contents, then run: chmod 700 {folder}"))
            );
        }
        Ok(())
    }
}

/// The pid of the server at the other end; `None` if it is in another pid namespace.
pub(crate) fn process(server: &UnixStream) -> Option<Pid> {
    server.peer_cred().ok()?.pid().and_then(Pid::from_raw)
}

/// Whether a process is a local server, by its command line. Commands do not kill it with a job: it serves other commands too.
pub(crate) fn is_server(process: Pid) -> bool {
    let command_line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    command_line.starts_with(b"bellwether\0serve\0--local\0")
}

pub(crate) fn try_lock(file: &File) -> anyhow::Result<bool> {
    match flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(error) => Err(error).context("cannot lock"),
    }
}

/// Growing pauses between checks, up to a deadline.
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

    /// Pauses. Returns false after the deadline.
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
