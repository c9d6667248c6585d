//! A server in a process of its own: started, measured, stopped.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::measure::cpu_time;
use crate::wire::Wire;

/// The time limit of a start.
const START_MAX: Duration = Duration::from_secs(120);

/// The time limit of one probe.
const PROBE_MAX: Duration = Duration::from_millis(500);

/// Debian's jars. Those of Netty are for TLS, and the manifest does not name them.
const CLASS_PATH: &str = "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar\
    :/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar\
    :/usr/share/java/netty-transport-native-unix-common.jar";

/// Debian's options for Apache's server: heap size and garbage collector.
const JAVA: [&str; 6] = [
    "-Xmx1000m",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    // Where `audit.enable` is set.
    "-Dorg.slf4j.simpleLogger.log.org.apache.zookeeper.audit=info",
    "-cp",
    CLASS_PATH,
    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
];

/// The kind of server.
#[derive(Debug, Clone)]
pub enum Kind {
    /// Debian's ZooKeeper.
    Apache,
    /// The `bellwether` at this path.
    Ours(PathBuf),
    /// The same under valgrind, which counts its instructions in user space: see [`ServerProcess::instructions`].
    Counted(PathBuf),
}

/// The file in which valgrind counts; each dump is a file of its own, with a number behind this name.
const COUNTS: &str = "callgrind.out";

/// A running server. Killed on drop.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
    folder: PathBuf,
    /// How often valgrind has written its counts.
    dumps: usize,
    /// Its address.
    pub address: String,
    /// The time from its start to its first answer.
    pub started_in: Duration,
}

impl ServerProcess {
    /// Starts a server on the data in `folder`, with default settings except the number of connections and
    /// the lines in `more_config`.
    pub fn start(kind: &Kind, folder: &Path, more_config: &str) -> Result<Self> {
        Self::start_with(kind, folder, more_config, &[])
    }

    /// The same, with more arguments on its command line.
    pub fn start_with(
        kind: &Kind,
        folder: &Path,
        more_config: &str,
        more_args: &[&str],
    ) -> Result<Self> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = folder.join("zoo.cfg");
        let data = folder.join("data");
        fs::write(
            &config,
            format!(
                "tickTime=2000\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
                 maxClientCnxns=0\nadmin.enableServer=false\n{more_config}",
                data.display()
            ),
        )?;
        let mut command = match kind {
            Kind::Apache => {
                let mut java = Command::new("java");
                java.args(JAVA).arg(&config);
                java
            }
            Kind::Ours(binary) => {
                let mut ours = Command::new(binary);
                ours.args(["serve", "--quiet", "--config"]).arg(&config);
                ours
            }
            Kind::Counted(binary) => {
                let mut valgrind = Command::new("valgrind");
                let counts = folder.join(COUNTS).display().to_string();
                valgrind
                    .args(["--quiet", "--tool=callgrind"])
                    .arg(format!("--callgrind-out-file={counts}"))
                    .arg(binary)
                    .args(["serve", "--quiet", "--config"])
                    .arg(&config);
                valgrind
            }
        };
        let log = fs::File::create(folder.join("log"))?;
        let start = Instant::now();
        let child = command
            .args(more_args)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn();
        let child = child.with_context(|| format!("cannot start {kind:?}"))?;
        let address = format!("127.0.0.1:{port}");
        let mut server = Self {
            child,
            folder: folder.to_owned(),
            dumps: 0,
            address,
            started_in: Duration::ZERO,
        };
        while Wire::connect_within(&server.address, PROBE_MAX).is_err() {
            if server.child.try_wait()?.is_some() || start.elapsed() > START_MAX {
                bail!(
                    "{kind:?} does not serve: {}",
                    fs::read_to_string(folder.join("log"))?
                );
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        server.started_in = start.elapsed();
        Ok(server)
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The CPU time that it has used.
    pub fn cpu_time(&self) -> Result<Duration> {
        cpu_time::of_process(self.child.id())
    }

    /// Its memory, in KiB.
    pub fn resident_kib(&self) -> Result<u64> {
        resident_kib(&self.child.id().to_string())
    }

    /// The most memory that it has used, in KiB.
    pub fn peak_kib(&self) -> Result<u64> {
        kib(&format!("/proc/{}/status", self.id()), "VmHWM:")
    }

    /// Its share of the memory, in KiB: pages that other processes use too are divided among them.
    pub fn proportional_kib(&self) -> Result<u64> {
        kib(&format!("/proc/{}/smaps_rollup", self.id()), "Pss:")
    }

    /// Instructions that it has executed in user space since the last call, or since its start. It must be [`Kind::Counted`].
    pub fn instructions(&mut self) -> Result<u64> {
        let dumped = Command::new("vgdb")
            .arg(format!("--pid={}", self.id()))
            .arg("dump")
            .output()
            .context("cannot run vgdb, which comes with valgrind")?;
        ensure!(dumped.status.success(), "vgdb failed: {dumped:?}");
        self.dumps += 1;
        let file = self.folder.join(format!("{COUNTS}.{}", self.dumps));
        let counts = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let total = counts.lines().find_map(|line| line.strip_prefix("totals:"));
        total.context("no total")?.trim().parse().context("total")
    }
}

/// The memory of a process, in KiB; `self` is this one.
pub fn resident_kib(process: &str) -> Result<u64> {
    kib(&format!("/proc/{process}/status"), "VmRSS:")
}

fn kib(file: &str, field: &str) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    let number = line.and_then(|line| line.split_whitespace().next());
    number
        .with_context(|| format!("no {field} in {file}"))?
        .parse()
        .with_context(|| format!("{field} is not a number"))
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill or wait for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
