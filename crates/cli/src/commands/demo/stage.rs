//! Runs the commands of the tour as child processes, and prints what they print.

use std::io::{self, BufRead, BufReader, ErrorKind, IsTerminal, PipeReader};
use std::ops::ControlFlow;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::Context;
use bellwether::Client;
use bellwether::inspect::Contention;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{Instant, timeout};

use crate::local::{PROGRAM, Pauses};
use crate::output;
use crate::output::refusal::Refusal;
use crate::value::servers;

/// How long a command may take until it has ended, or until what is to be shown has happened.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// How long commands may take to end after SIGTERM, and after SIGKILL.
const END_LIMIT: Duration = Duration::from_secs(5);

/// The name of this program on the command lines that are shown.
const BELLWETHER: &str = "bellwether";

/// The folder with the programs of the tour.
pub(super) fn programs(folder: &Path) -> PathBuf {
    folder.join("bin")
}

/// The folder with the settings of the tour.
pub(super) fn settings(folder: &Path) -> PathBuf {
    folder.join("settings")
}

/// The socket of the server.
pub(super) fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

/// A command in the background, by its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started(usize);

/// The tour as it is performed: its commands, and where they are printed.
#[derive(Debug)]
pub(super) struct Stage<'a> {
    folder: &'a Path,
    client: Client,
    pace: Duration,
    is_paused_before_next: bool,
    performers: Vec<Performer>,
    in_background: usize,
    lines: (UnboundedSender<Spoken>, UnboundedReceiver<Spoken>),
    /// A message for each Enter, on a terminal.
    enter: Option<UnboundedReceiver<()>>,
}

/// A command of the tour.
#[derive(Debug)]
struct Performer {
    child: Child,
    /// What its lines begin with.
    indent: String,
    heard: Vec<String>,
    /// Whether all its processes have ended, or at least closed its output.
    is_silent: bool,
}

/// A line of a command, or the end of its output.
#[derive(Debug)]
struct Spoken {
    by: usize,
    line: Option<String>,
}

impl<'a> Stage<'a> {
    pub(super) async fn open(folder: &'a Path, pace: Duration) -> anyhow::Result<Self> {
        let connect = bellwether::connect(address(folder)).on_current_runtime();
        Ok(Self {
            folder,
            client: connect.await?,
            pace,
            is_paused_before_next: false,
            performers: Vec::new(),
            in_background: 0,
            lines: unbounded_channel(),
            enter: is_on_terminal().then(enter),
        })
    }

    /// What to set in another terminal to use the server of the tour.
    pub(super) fn address(&self) -> String {
        address(self.folder)
    }

    pub(super) fn is_on_terminal(&self) -> bool {
        self.enter.is_some()
    }

    pub(super) fn folder(&self) -> &Path {
        self.folder
    }

    /// Prints the title of a part.
    pub(super) async fn title(&mut self, title: &str) -> anyhow::Result<()> {
        self.pause().await?;
        self.print(&format!("\n{}\n", bold(&format!("== {title} =="))))
    }

    /// Explains the next command.
    pub(super) async fn explain(&mut self, text: &str) -> anyhow::Result<()> {
        self.pause().await?;
        self.print(&format!("\n{text}\n"))
    }

    /// Shows a command and runs it to its end, which is expected to have this exit code.
    pub(super) async fn run(&mut self, words: &[&str], code: i32) -> anyhow::Result<()> {
        let shown = shown(words);
        let Started(place) = self.perform(words, &shown, "  ".to_owned())?;
        self.until(&shown, |stage| stage.performers[place].is_silent)
            .await?;
        let status = self.performers[place].child.wait().await?;
        if status.code() != Some(code) {
            let what = format!("`{shown}` {}, and not with {code}", ending(status));
            return Err(Refusal::failed(what).into());
        }
        if code != 0 {
            self.print(&format!("  exit code {code}\n"))?;
        }
        self.is_paused_before_next = true;
        Ok(())
    }

    /// Shows a command and starts it in the background.
    pub(super) fn start(&mut self, words: &[&str]) -> anyhow::Result<Started> {
        self.in_background += 1;
        let indent = format!("  [{}] ", self.in_background);
        let started = self.perform(words, &format!("{} &", shown(words)), indent)?;
        self.is_paused_before_next = true;
        Ok(started)
    }

    /// Shows a signal to a command in the background, and sends it with the `kill` of a shell. Waits until all processes of the command have
    /// ended.
    pub(super) async fn kill(&mut self, target: Started, option: &str) -> anyhow::Result<()> {
        let performer = &self.performers[target.0];
        // It has not been waited for, so no other process has its id.
        let process = performer.child.id().context("the command has ended")?;
        let words = ["kill", option, &process.to_string()];
        self.run(&words, 0).await?;
        self.until_ended(target).await
    }

    /// Waits until a command in the background has printed a line that contains `text`.
    pub(super) async fn until_heard(&mut self, started: Started, text: &str) -> anyhow::Result<()> {
        self.until(text, |stage| {
            let heard = &stage.performers[started.0].heard;
            heard.iter().any(|line| line.contains(text))
        })
        .await
    }

    /// Waits until a command in the background has ended, with all its processes.
    pub(super) async fn until_ended(&mut self, started: Started) -> anyhow::Result<()> {
        self.until("the end of a command", |stage| {
            stage.performers[started.0].is_silent
        })
        .await?;
        self.performers[started.0].child.wait().await?;
        Ok(())
    }

    /// Waits until this number of contenders is in the line at a path.
    pub(super) async fn until_in_line(&mut self, path: &str, count: usize) -> anyhow::Result<()> {
        let contention = Contention::new(&self.client, path);
        let mut pauses = Pauses::until(Instant::now() + COMMAND_LIMIT);
        while contention.line().await?.len() < count {
            anyhow::ensure!(pauses.next().await, "no {count} contenders at {path}");
        }
        Ok(())
    }

    /// Ends all commands that still run, and returns the session.
    pub(super) async fn end(mut self) -> Client {
        for signal in [Signal::TERM, Signal::KILL] {
            for performer in &mut self.performers {
                let is_left = matches!(performer.child.try_wait(), Ok(None));
                if let Some(process) = performer.process().filter(|_| is_left) {
                    // It may have ended, and is not reaped yet.
                    let _ = kill_process(process, signal);
                }
            }
            let silence = async {
                while self.performers.iter().any(|one| !one.is_silent) {
                    let Some(spoken) = self.lines.1.recv().await else {
                        return;
                    };
                    // What is printed now is about this end, and not part of the tour.
                    self.performers[spoken.by].is_silent |= spoken.line.is_none();
                }
                for performer in &mut self.performers {
                    let _ = performer.child.wait().await;
                }
            };
            if timeout(END_LIMIT, silence).await.is_ok() {
                break;
            }
        }
        self.client
    }

    /// Shows a command line, and starts it.
    fn perform(&mut self, words: &[&str], shown: &str, indent: String) -> anyhow::Result<Started> {
        self.print(&format!("{}\n", bold(&format!("$ {shown}"))))?;
        let (reader, writer) = io::pipe()?;
        let mut command = self.command(words);
        command
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer);
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot run {shown}"))?;
        // It has the other ends of the pipe, and the reader would wait for ever.
        drop(command);
        let place = self.performers.len();
        read_lines(reader, place, self.lines.0.clone());
        self.performers.push(Performer {
            child,
            indent,
            heard: Vec::new(),
            is_silent: false,
        });
        Ok(Started(place))
    }

    /// A command in an environment of its own. It ends with this process.
    fn command(&self, words: &[&str]) -> Command {
        let mut command = match words {
            [BELLWETHER, words @ ..] => {
                let mut command = Command::new(PROGRAM);
                command.arg0(BELLWETHER);
                command.arg(format!("--worker={}", std::process::id()));
                command.args(words);
                command
            }
            words => {
                let mut command = Command::new("sh");
                command.arg("-c").arg(shown(words));
                command
            }
        };
        let leaking = std::env::vars_os().map(|(name, _)| name);
        let leaking = leaking.filter(|name| {
            let name = name.as_encoded_bytes();
            name.starts_with(b"BELLWETHER_") || name.starts_with(b"OTEL_")
        });
        for name in leaking {
            command.env_remove(name);
        }
        command.env_remove("RUST_LOG");
        let mut path = programs(self.folder).into_os_string();
        if let Some(before) = std::env::var_os("PATH") {
            path.push(":");
            path.push(before);
        }
        command
            .env("PATH", path)
            .env("XDG_CONFIG_HOME", settings(self.folder))
            .env(servers::VARIABLE, self.address())
            .current_dir(self.folder)
            // Ctrl-C reaches this process, which ends them.
            .process_group(0);
        command
    }

    /// Prints the lines of all commands until the condition holds.
    async fn until(&mut self, what: &str, holds: impl Fn(&Self) -> bool) -> anyhow::Result<()> {
        let until = async {
            while !holds(self) {
                self.print_next().await?;
            }
            Ok(())
        };
        match timeout(COMMAND_LIMIT, until).await {
            Ok(done) => done,
            Err(_) => {
                let what = format!("waited {COMMAND_LIMIT:?} in vain for: {what}");
                Err(Refusal::failed(what).into())
            }
        }
    }

    /// Prints the next line of any command. Cancel safe.
    async fn print_next(&mut self) -> anyhow::Result<()> {
        let spoken = self.lines.1.recv().await;
        let spoken = spoken.expect("this has a sender too");
        let performer = &mut self.performers[spoken.by];
        let Some(line) = spoken.line else {
            performer.is_silent = true;
            return Ok(());
        };
        let text = format!("{}{line}\n", performer.indent);
        performer.heard.push(line);
        self.print(&text)
    }

    /// Pauses after a command, and prints what commands in the background print meanwhile. Enter ends the pause.
    pub(super) async fn pause(&mut self) -> anyhow::Result<()> {
        if !std::mem::take(&mut self.is_paused_before_next) || self.pace.is_zero() {
            return Ok(());
        }
        let (mut enter, pace) = (self.enter.take(), self.pace);
        let printed = async {
            loop {
                let entered = async {
                    match &mut enter {
                        Some(enter) => enter.recv().await,
                        None => None,
                    }
                };
                tokio::select! {
                    Some(()) = entered => return Ok(()),
                    printed = self.print_next() => printed?,
                }
            }
        };
        let printed = timeout(pace, printed).await;
        self.enter = enter;
        printed.unwrap_or(Ok(()))
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        match output::print_now(text)? {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(io::Error::from(ErrorKind::BrokenPipe).into()),
        }
    }

    /// Prints a line that belongs to no command.
    pub(super) fn say(&self, text: &str) -> anyhow::Result<()> {
        self.print(&format!("{text}\n"))
    }
}

impl Performer {
    fn process(&self) -> Option<Pid> {
        let number = i32::try_from(self.child.id()?).ok()?;
        Pid::from_raw(number)
    }
}

fn address(folder: &Path) -> String {
    format!("unix:{}", socket(folder).display())
}

/// Reads the output of a command on a separate thread, which ends with it.
fn read_lines(reader: PipeReader, by: usize, to: UnboundedSender<Spoken>) {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(reader);
        let mut bytes = Vec::new();
        while let Ok(1..) = reader.read_until(b'\n', &mut bytes) {
            let line = String::from_utf8_lossy(&bytes);
            let line = Some(line.trim_end_matches('\n').to_owned());
            if to.send(Spoken { by, line }).is_err() {
                return;
            }
            bytes.clear();
        }
        // The tour may be over.
        let _ = to.send(Spoken { by, line: None });
    });
}

fn is_on_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// A message for each line that is typed.
fn enter() -> UnboundedReceiver<()> {
    let (send, enter) = unbounded_channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        while let Ok(1..) = io::stdin().lock().read_line(&mut line) {
            line.clear();
            if send.send(()).is_err() {
                return;
            }
        }
    });
    enter
}

/// Text in bold on a terminal.
fn bold(text: &str) -> String {
    match io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none() {
        true => format!("\x1b[1m{text}\x1b[0m"),
        false => text.to_owned(),
    }
}

/// How a command has ended that was expected to end otherwise.
fn ending(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exited with {code}"),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
    }
}

/// A command line as a user types it.
fn shown(words: &[&str]) -> String {
    let words: Vec<_> = words.iter().map(|word| quoted(word)).collect();
    words.join(" ")
}

fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_shown_as_a_shell_reads_them() {
        let words = ["bellwether", "lock", "x", "-m", "it's on", "--", "sh", ""];
        let shown = shown(&words);
        assert_eq!(shown, r"bellwether lock x -m 'it'\''s on' -- sh ''");
        let script = format!("printf '%s\\n' {shown}");
        let read = std::process::Command::new("sh")
            .args(["-c", &script])
            .output();
        let read = String::from_utf8(read.unwrap().stdout).unwrap();
        assert_eq!(read, words.map(|word| format!("{word}\n")).concat());
    }
}
