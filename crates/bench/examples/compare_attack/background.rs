//! Processes beside the measured clients: the idle sessions and attackers, or a burner of CPU time without any connection.
//!
//! On other machines they would take no CPU time of the server and of the measured clients. So they run with the lowest priority, as idle tasks,
//! which any other thread preempts, and their CPU time is measured.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bellwether_bench::load::attack::{Attack, Harm};
use bellwether_bench::load::idle::IdleSessions;
use bellwether_bench::measure::cpu_time;
use serde::{Deserialize, Serialize};

/// What the process does.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Role {
    /// Opens idle sessions and attacks.
    #[command(hide = true)]
    Attack {
        #[arg(long)]
        address: String,
        #[arg(long)]
        tls_address: String,
        #[arg(long)]
        idle: usize,
        #[arg(long)]
        bad: usize,
        #[arg(long, value_enum, value_delimiter = ',')]
        kinds: Vec<Harm>,
    },
    /// Uses CPU time.
    #[command(hide = true)]
    Burn {
        /// How many cores, such as 0.5.
        #[arg(long)]
        cores: f64,
    },
}

/// The result of a process.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Idle sessions that the server has not closed.
    pub(crate) idle_left: usize,
    /// Connections on which attackers did harm.
    pub(crate) connections: usize,
}

impl Role {
    /// Plays this role: says when it has begun, and prints the outcome when its input ends.
    pub(crate) fn play(self) -> Result<()> {
        let outcome = match self {
            Self::Burn { cores } => {
                burn(cores)?;
                ready()?;
                Outcome::default()
            }
            Self::Attack {
                address,
                tls_address,
                idle,
                bad,
                kinds,
            } => tokio::runtime::Runtime::new()?.block_on(async {
                let idle = IdleSessions::open(&address, idle).await?;
                let bad = Attack::start(&address, &tls_address, bad, &kinds)?;
                tokio::task::spawn_blocking(ready).await??;
                let (idle_left, connections) = (idle.alive(), bad.connections()?);
                anyhow::Ok(Outcome {
                    idle_left,
                    connections,
                })
            })?,
        };
        println!("{}", serde_json::to_string(&outcome)?);
        Ok(())
    }
}

/// Tells the parent that the phase can begin, and waits for its end.
fn ready() -> Result<()> {
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Starts threads that use `cores` cores in all, in turns of some milliseconds.
fn burn(cores: f64) -> Result<()> {
    const TURN: Duration = Duration::from_millis(10);
    let threads = thread::available_parallelism()?;
    #[expect(clippy::cast_precision_loss, reason = "a small count")]
    let share = (cores / threads.get() as f64).clamp(0.0, 1.0);
    for _ in 0..threads.get() {
        thread::spawn(move || {
            loop {
                let begin = Instant::now();
                while begin.elapsed() < TURN.mul_f64(share) {
                    std::hint::spin_loop();
                }
                thread::park_timeout(TURN.mul_f64(1.0 - share));
            }
        });
    }
    Ok(())
}

/// A process that plays a role.
pub(crate) struct Background {
    child: Child,
    answers: BufReader<ChildStdout>,
    begun: Instant,
    cpu_before: Duration,
}

impl Background {
    /// Starts the process, and returns when it has begun its work.
    pub(crate) fn start(arguments: &[&str]) -> Result<Self> {
        let mut child = Command::new("chrt")
            .args(["--idle", "0", "nice", "-n", "19"])
            .arg(std::env::current_exe()?)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start a process with low priority: chrt and nice")?;
        let answers = BufReader::new(child.stdout.take().context("no output")?);
        let cpu_before = cpu_time::of_process(child.id())?;
        let mut background = Self {
            child,
            answers,
            begun: Instant::now(),
            cpu_before,
        };
        let begun = background.line()?;
        ensure!(begun.trim() == "ready", "did not begin: {begun}");
        background.begun = Instant::now();
        background.cpu_before = cpu_time::of_process(background.child.id())?;
        Ok(background)
    }

    /// The cores that it has used since it began.
    pub(crate) fn cores(&self) -> Result<f64> {
        let used = cpu_time::of_process(self.child.id())? - self.cpu_before;
        Ok(used.as_secs_f64() / self.begun.elapsed().as_secs_f64())
    }

    /// Ends it.
    pub(crate) fn stop(mut self) -> Result<Outcome> {
        drop(self.child.stdin.take());
        let outcome = self.line()?;
        self.child.wait()?;
        Ok(serde_json::from_str(&outcome)?)
    }

    fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.answers.read_line(&mut line)?;
        Ok(line)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill or wait for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
