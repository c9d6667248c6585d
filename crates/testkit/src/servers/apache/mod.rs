//! Debian's ZooKeeper, started for a test.
//!
//! Needs the packages `zookeeper` and a Java runtime. The JVM is the child process itself, without a wrapper
//! script, so that a signal reaches the server.

mod ensemble;
mod secured;

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::raw::request::Request;
use crate::raw::{ConnectOptions, RawClient, four_letter_word};
use crate::servers::port::Port;

pub use self::ensemble::Ensemble;
use self::secured::Security;

/// Debian's jars of ZooKeeper; the manifest names its dependencies. The second jar logs to stderr. The others are parts of Netty
/// that TLS needs and the manifest does not name.
const CLASS_PATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar\
    :/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar\
    :/usr/share/java/netty-transport-native-unix-common.jar";

/// The time limit for a start.
const START_MAX: Duration = Duration::from_secs(60);

/// The time limit of one probe: a request that arrives too early is sometimes never answered.
const PROBE_MAX: Duration = Duration::from_millis(500);

/// A real, single ZooKeeper server. Dropping it kills it and removes its folder.
///
/// ```no_run
/// # async fn example() -> anyhow::Result<()> {
/// use bellwether_testkit::{Apache, RawClient};
///
/// let server = Apache::start().await?;
/// let client = RawClient::connect(server.address()).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Apache {
    process: Process,
    _port: Port,
    tls_port: Option<Port>,
    /// Removed on drop, after the process.
    _folder: TempDir,
}

/// A real ZooKeeper server that other tests may use at the same time: use your own nodes only.
#[derive(Debug)]
pub struct SharedApache {
    address: String,
    /// Killed on drop.
    _own: Option<Apache>,
}

impl SharedApache {
    /// The connect string for clients.
    pub fn connect_string(&self) -> &str {
        &self.address
    }
}

/// Options of an [`Apache`].
#[derive(Debug, Clone)]
pub struct ApacheBuilder {
    tick: Duration,
    session_timeout_max: Duration,
    extended_types: bool,
    enforce_quota: bool,
    super_digest: Option<String>,
    data_dir: Option<PathBuf>,
    properties: Vec<(String, String)>,
    settings: Vec<(String, String)>,
    security: Security,
    observers: usize,
}

impl Apache {
    /// Starts a server with an empty tree on a free port of the loopback.
    pub async fn start() -> Result<Self> {
        Self::builder().start().await
    }

    /// Options for the start.
    pub fn builder() -> ApacheBuilder {
        ApacheBuilder {
            tick: Duration::from_millis(200),
            session_timeout_max: Duration::from_secs(60),
            extended_types: false,
            enforce_quota: false,
            super_digest: None,
            data_dir: None,
            properties: Vec::new(),
            settings: Vec::new(),
            security: Security::default(),
            observers: 0,
        }
    }

    /// The shared server at the address in `BELLWETHER_TEST_APACHE`; if that is not set, a new one for
    /// the caller.
    pub async fn shared() -> Result<SharedApache> {
        Ok(match std::env::var("BELLWETHER_TEST_APACHE") {
            Ok(address) => SharedApache {
                address,
                _own: None,
            },
            Err(_) => {
                let own = Self::builder().extended_types().start().await?;
                SharedApache {
                    address: own.connect_string(),
                    _own: Some(own),
                }
            }
        })
    }

    /// The address of the server.
    pub fn address(&self) -> SocketAddr {
        self.process.address
    }

    /// The address for TLS, if the server was built [with it](ApacheBuilder::tls).
    pub fn tls_address(&self) -> Option<SocketAddr> {
        let port = self.tls_port.as_ref()?.number();
        Some(SocketAddr::new(self.process.address.ip(), port))
    }

    /// The connect string for clients.
    pub fn connect_string(&self) -> String {
        self.process.address.to_string()
    }

    /// The folder with `version-2` in it.
    pub fn data_dir(&self) -> &Path {
        &self.process.data_dir
    }

    /// The process id of the server, while it runs.
    pub fn pid(&self) -> Option<u32> {
        self.process.child.as_ref().map(Child::id)
    }

    /// The log so far: warnings and errors of every start.
    pub fn log(&self) -> Result<String> {
        Ok(fs::read_to_string(self.process.folder.join("log"))?)
    }

    /// Runs a tool of Apache's, the `main` of `class`, and returns its output; it must succeed.
    pub async fn tool(class: &str, arguments: &[&OsStr]) -> Result<String> {
        let mut command = tokio::process::Command::new("java");
        command.args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
        command.args(["-cp", CLASS_PATH, class]).args(arguments);
        let output = command.stdin(Stdio::null()).kill_on_drop(true).output();
        let output = output.await.context("cannot start java")?;
        let printed = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{class}: {printed}{errors}");
        Ok(printed)
    }

    /// Kills the server (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Kills the server if it runs, and starts it with the same address and data.
    pub async fn restart(&mut self) -> Result<()> {
        self.process.kill();
        self.process.spawn()?;
        self.process.ready().await
    }

    /// Stops the server by SIGTERM and waits until it is gone. The data stays for [`Self::restart`].
    pub async fn stop(&mut self) -> Result<()> {
        self.process.terminate().await
    }
}

impl ApacheBuilder {
    /// The tick; sessions have at least two of them. 200 ms by default.
    #[must_use]
    pub fn tick(mut self, tick: Duration) -> Self {
        self.tick = tick;
        self
    }

    /// The longest session timeout that is granted. 60 s by default.
    #[must_use]
    pub fn session_timeout_max(mut self, timeout: Duration) -> Self {
        self.session_timeout_max = timeout;
        self
    }

    /// Allows nodes with a time to live.
    #[must_use]
    pub fn extended_types(mut self) -> Self {
        self.extended_types = true;
        self
    }

    /// Enforces hard quotas.
    #[must_use]
    pub fn enforce_quota(mut self) -> Self {
        self.enforce_quota = true;
        self
    }

    /// The superuser: `super:<base64 of the digest>`.
    #[must_use]
    pub fn super_digest(mut self, digest: impl Into<String>) -> Self {
        self.super_digest = Some(digest.into());
        self
    }

    /// Uses this folder, which has or gets a `version-2`, and does not delete it.
    #[must_use]
    pub fn data_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(folder.into());
        self
    }

    /// Sets another system property of the JVM, such as `zookeeper.snapCount`.
    #[must_use]
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Sets another line of the configuration, such as `ssl.clientAuth`.
    #[must_use]
    pub fn setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }

    /// Adds members that do not vote to an [ensemble](Self::ensemble), behind those that do.
    #[must_use]
    pub fn observers(mut self, count: usize) -> Self {
        self.observers = count;
        self
    }

    /// Starts the server and waits until it serves.
    pub async fn start(self) -> Result<Apache> {
        let folder = tempfile::tempdir()?;
        let data_dir = self
            .data_dir
            .clone()
            .unwrap_or_else(|| folder.path().to_owned());
        let port = Port::reserve()?;
        let tls_port = match self.security.has_tls() {
            true => Some(Port::reserve()?),
            false => None,
        };
        let secured = self
            .security
            .settings(tls_port.as_ref().map(Port::number))?;
        let folder_path = folder.path().to_owned();
        let mut process = self.process(folder_path, data_dir, port.number(), &secured)?;
        process.spawn()?;
        process.ready().await?;
        Ok(Apache {
            process,
            _port: port,
            tls_port,
            _folder: folder,
        })
    }

    /// Writes the configuration, with `more` lines at its end.
    fn process(
        &self,
        folder: PathBuf,
        data_dir: PathBuf,
        port: u16,
        more: &str,
    ) -> Result<Process> {
        let mut config = String::new();
        writeln!(config, "tickTime={}", self.tick.as_millis())?;
        let session_timeout_max = self.session_timeout_max.as_millis();
        writeln!(config, "maxSessionTimeout={session_timeout_max}")?;
        writeln!(config, "dataDir={}", data_dir.display())?;
        writeln!(config, "clientPort={port}")?;
        writeln!(config, "clientPortAddress=127.0.0.1")?;
        writeln!(config, "maxClientCnxns=0")?;
        writeln!(config, "4lw.commands.whitelist=*")?;
        writeln!(config, "admin.enableServer=false")?;
        writeln!(config, "extendedTypesEnabled={}", self.extended_types)?;
        writeln!(config, "enforceQuota={}", self.enforce_quota)?;
        for (name, value) in &self.settings {
            writeln!(config, "{name}={value}")?;
        }
        config.push_str(more);
        fs::write(folder.join("zoo.cfg"), config)?;

        let mut properties = self.properties.clone();
        if let Some(digest) = &self.super_digest {
            let name = "zookeeper.DigestAuthenticationProvider.superDigest";
            properties.push((name.into(), digest.clone()));
        }
        properties.extend(self.security.put_users(&folder)?);
        Ok(Process {
            child: None,
            address: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            folder,
            data_dir,
            properties,
        })
    }
}

/// One JVM, running or not.
#[derive(Debug)]
struct Process {
    child: Option<Child>,
    address: SocketAddr,
    /// Holds `zoo.cfg` and the log.
    folder: PathBuf,
    data_dir: PathBuf,
    properties: Vec<(String, String)>,
}

impl Process {
    fn spawn(&mut self) -> Result<()> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))?;
        let mut command = Command::new("java");
        command.args(["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]);
        command.args(["-Xshare:auto", "-Djava.net.preferIPv4Stack=true"]);
        command.arg("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn");
        // A killed process loses no write, with or without fsync; only a machine failure does.
        command.arg("-Dzookeeper.forceSync=no");
        command.arg("-Dzookeeper.preAllocSize=1024");
        for (name, value) in &self.properties {
            command.arg(format!("-D{name}={value}"));
        }
        command.args(["-cp", CLASS_PATH]);
        command.arg("org.apache.zookeeper.server.quorum.QuorumPeerMain");
        command.arg(self.folder.join("zoo.cfg"));
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().context("cannot start java")?);
        Ok(())
    }

    /// Waits until the server serves sessions.
    async fn ready(&mut self) -> Result<()> {
        let serving = async {
            let mut turn = polling();
            loop {
                turn.tick().await;
                let child = self.child.as_mut().context("not started")?;
                if let Some(status) = child.try_wait()? {
                    bail!("java ended with {status}");
                }
                if self.mode().await.is_some() && self.takes_sessions().await {
                    return Ok(());
                }
            }
        };
        let result = match timeout(START_MAX, serving).await {
            Ok(result) => result,
            Err(_) => Err(anyhow::anyhow!("does not serve within {START_MAX:?}")),
        };
        result.with_context(|| {
            let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            format!("ZooKeeper at {}; its log: {log}", self.address)
        })
    }

    async fn takes_sessions(&self) -> bool {
        // A session that is abandoned here must expire soon.
        let options = ConnectOptions {
            timeout: Duration::ZERO,
            ..ConnectOptions::default()
        };
        let session = async {
            let mut client = RawClient::connect_with(self.address, &options).await?;
            client.call(Request::CloseSession).await?.ok()
        };
        matches!(timeout(PROBE_MAX, session).await, Ok(Ok(_)))
    }

    /// `standalone`, `leader` or `follower`, if the server serves.
    async fn mode(&self) -> Option<String> {
        let answer = timeout(PROBE_MAX, four_letter_word(self.address, "srvr"));
        let answer = answer.await.ok()?.ok()?;
        let mode = answer
            .lines()
            .find_map(|line| line.strip_prefix("Mode: "))?;
        Some(mode.to_owned())
    }

    fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            // An error means that it has ended already, which the wait notices.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Sends a signal to the process, if it runs.
    fn signal(&self, signal: Signal) -> Result<()> {
        if let Some(child) = &self.child {
            kill_process(Pid::from_child(child), signal)?;
        }
        Ok(())
    }

    async fn terminate(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let Some(mut child) = self.child.take() else {
            return Ok(());
        };
        tokio::task::spawn_blocking(move || child.wait()).await??;
        Ok(())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn copy_folder(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        fs::copy(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}

/// Paces a loop that probes a server until it answers.
fn polling() -> tokio::time::Interval {
    let mut turns = interval(Duration::from_millis(20));
    turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    turns
}
