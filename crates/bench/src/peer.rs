//! A library under comparison, in a process of its own whatever its language: it reads tasks, a line each, and
//! answers each with a line of JSON.

use std::fmt;
use std::io::{BufRead, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::str::FromStr;
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

/// How much longer than asked for a task may take: sessions are opened before and queues emptied after.
const OVERTIME_MAX: Duration = Duration::from_secs(180);

/// What a peer is asked to do: contenders go through a recipe over and over.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// What they do, as the peers know it: `lock`, `shared` (reads, and every tenth time a write), `permits` (of five),
    /// `queue`, `election`, `double-barrier`; `cache` (loads `/cached/NODES`) and `cache-changes` (sees a tenth of it
    /// change), once; `watchers` (all are told of a change, then comes the next); `exists` (one request after the other, for a
    /// node that is there).
    pub recipe: String,
    /// The server.
    pub address: String,
    /// The node of the recipe; nobody used it before.
    pub path: String,
    /// How many there are; of a cache, nodes.
    pub contenders: usize,
    /// On how many sessions, one contender after the other.
    pub sessions: usize,
    /// How long nothing is counted.
    pub warm_up: Duration,
    /// How long turns are counted then.
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

/// What came of a task.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Turns that contenders had.
    pub turns: u64,
    /// Turns that came after the turn of another contender.
    pub hand_overs: u64,
    /// All turns that contenders ever had, before and after the count too.
    pub all_turns: u64,
    /// How long it was counted.
    pub seconds: f64,
    /// What the process took at its fullest, where that was asked for.
    #[serde(default)]
    pub resident_kib: u64,
    /// The requests of a turn, where a turn is one request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub round_trips: Option<RoundTrips>,
}

/// How requests went, one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RoundTrips {
    /// The median of their latencies, in microseconds.
    pub p50_us: f64,
    /// The latency that one in a hundred exceeded.
    pub p99_us: f64,
    /// Voluntary context switches of the client's process for each of them, where it can tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub switches: Option<f64>,
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Answer {
    Done(Outcome),
    Failed { error: String },
}

/// A peer that runs. Killed when dropped.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    tasks: ChildStdin,
    answers: mpsc::Receiver<std::io::Result<String>>,
}

impl Peer {
    /// Starts a program, given as a line of words.
    pub fn of_command(line: &str) -> Result<Self> {
        let mut words = line.split_whitespace();
        let program = words.next().context("no program")?;
        Self::start(Command::new(program).args(words))
    }

    /// Starts a program; what it says on stderr is passed on.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.with_context(|| format!("cannot start {command:?}"))?;
        let tasks = child.stdin.take().expect("piped");
        let stdout = BufReader::new(child.stdout.take().expect("piped"));
        // A thread, because a pipe has no time limit. It ends with the child.
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

    /// Lets it do a task.
    pub fn run(&mut self, task: &Task) -> Result<Outcome> {
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

/// The other end, for peers in Rust: does the tasks that come on stdin until there are no more.
pub fn serve(mut run: impl FnMut(&Task) -> Result<Outcome>) -> Result<()> {
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
            Outcome {
                turns: 4,
                hand_overs: 3,
                all_turns: 6,
                seconds: 0.5,
                ..Outcome::default()
            }
        );
        let failed = script(r#"{"error": "no such recipe"}"#)
            .unwrap()
            .run(&task());
        assert_eq!(failed.unwrap_err().to_string(), "no such recipe");
    }
}
