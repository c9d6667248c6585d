//! A library under comparison, in a process of its own, in any language: it reads tasks, one per line, and
//! answers each with a line of JSON.

pub mod by_hand;
pub mod contend;

use std::fmt;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// The additional time for a task: sessions are opened before and queues drained after.
const OVERTIME_MAX: Duration = Duration::from_secs(180);

/// A task for a peer: contenders repeat a recipe.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// The recipe, by its name: `lock`, `shared` (reads, and every tenth time a write), `permits` (of five),
    /// `queue`, `election`, `double-barrier`; `cache` (loads `/cached/NODES`) and `cache-changes` (sees a tenth of it
    /// change), once; `watchers` (all receive a change, then the next follows); `exists` (one request after the other, for an
    /// existing node).
    pub recipe: String,
    /// The server.
    pub address: String,
    /// The node of the recipe, which is new.
    pub path: String,
    /// The number of contenders; for a cache, of nodes.
    pub contenders: usize,
    /// The number of sessions, to which contenders are assigned in turn.
    pub sessions: usize,
    /// The warm-up, in which nothing is counted.
    pub warm_up: Duration,
    /// The time in which turns are counted.
    pub duration: Duration,
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            recipe,
            address,
            path,
            contenders,
            sessions,
            warm_up,
            duration,
        } = self;
        let (warm_up, duration) = (warm_up.as_millis(), duration.as_millis());
        write!(
            f,
            "{recipe} {address} {path} {contenders} {sessions} {warm_up} {duration}"
        )
    }
}

impl FromStr for Task {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let words: Vec<_> = line.split_whitespace().collect();
        let [
            recipe,
            address,
            path,
            contenders,
            sessions,
            warm_up,
            duration,
        ] = words[..]
        else {
            bail!(
                "a task is RECIPE ADDRESS PATH CONTENDERS SESSIONS WARM_UP_MS DURATION_MS, not {line:?}"
            );
        };
        Ok(Self {
            recipe: recipe.to_owned(),
            address: address.to_owned(),
            path: path.to_owned(),
            contenders: contenders.parse()?,
            sessions: sessions.parse()?,
            warm_up: Duration::from_millis(warm_up.parse()?),
            duration: Duration::from_millis(duration.parse()?),
        })
    }
}

/// The result of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct PeerOutcome {
    /// Counted turns.
    pub turns: u64,
    /// Turns that came after the turn of another contender.
    pub hand_overs: u64,
    /// All turns, including those before and after the count.
    pub all_turns: u64,
    /// The counted time.
    pub seconds: f64,
    /// The peak memory of the process, if requested.
    #[serde(default)]
    pub resident_kib: u64,
    /// Figures of requests, where a turn is one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<RoundTrips>,
}

/// Figures of requests that were sent one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// The median of their latencies, in microseconds.
    pub p50_us: f64,
    /// The 99th percentile, in microseconds.
    pub p99_us: f64,
    /// Voluntary context switches of the client's process per request, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Answer {
    Done(PeerOutcome),
    Failed { error: String },
}

/// A running peer. Killed on drop.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    tasks: ChildStdin,
    answers: mpsc::Receiver<std::io::Result<String>>,
}

impl Peer {
    /// Starts a program, given as a command line.
    pub fn of_command(line: &str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let program = words.next().context("no program")?;
        Self::start(Command::new(program).args(words))
    }

    /// Starts a program; its stderr is inherited.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {command:?}"))?;
        let tasks = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        // A thread, because reads from a pipe have no time limit. It ends with the child.
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self {
            child,
            tasks,
            answers,
        })
    }

    /// Runs a task.
    pub fn run(&mut self, task: &Task) -> Result<PeerOutcome> {
        let limit = task.warm_up + task.duration + OVERTIME_MAX;
        writeln!(self.tasks, "{task}").context("the peer has ended")?;
        let line = self
            .answers
            .recv_timeout(limit)
            .with_context(|| format!("no answer within {limit:?}"))??;
        match serde_json::from_str(&line).with_context(|| format!("answer {line:?}"))? {
            Answer::Done(outcome) => Ok(outcome),
            Answer::Failed { error } => bail!("{error}"),
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill or wait for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peer's side, for peers in Rust: runs the tasks from stdin until it ends.
pub fn serve(mut run: impl FnMut(&Task) -> Result<PeerOutcome>) -> Result<()> {
    for line in std::io::stdin().lines() {
        let answer = match line?.parse().and_then(|task| run(&task)) {
            Ok(outcome) => Answer::Done(outcome),
            Err(error) => Answer::Failed {
                error: format!("{error:#}"),
            },
        };
        let mut stdout = std::io::stdout().lock();
        serde_json::to_writer(&mut stdout, &answer)?;
        writeln!(stdout)?;
        stdout.flush()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task() -> Task {
        Task {
            recipe: "lock".into(),
            address: "127.0.0.1:1".into(),
            path: "/l".into(),
            contenders: 10,
            sessions: 5,
            warm_up: Duration::from_millis(1),
            duration: Duration::from_millis(20),
        }
    }

    #[test]
    fn task_is_read_as_written() {
        assert_eq!(task().to_string().parse::<Task>().unwrap(), task());
        "lock 127.0.0.1:1 /l 10".parse::<Task>().unwrap_err();
    }

    #[test]
    fn answer_of_a_program_is_taken() {
        let script = |answer: &str| {
            Peer::start(Command::new("sh").args(["-c", "read task; echo \"$1\"", "-", answer]))
        };
        let done = script(r#"{"turns": 4, "hand_overs": 3, "all_turns": 6, "seconds": 0.5}"#)
            .unwrap()
            .run(&task());
        assert_eq!(
            done.unwrap(),
            PeerOutcome {
                turns: 4,
                hand_overs: 3,
                all_turns: 6,
                seconds: 0.5,
                ..PeerOutcome::default()
            }
        );
        let failed = script(r#"{"error": "no such recipe"}"#)
            .unwrap()
            .run(&task());
        assert_eq!(failed.unwrap_err().to_string(), "no such recipe");
    }
}
