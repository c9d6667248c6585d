//! Lists the commands that use the local server.

use std::fmt;
use std::fs;
use std::future::ready;
use std::io;

use bellwether::zk::four_letter_word;
use serde_json::{Value, json};
use tokio::net::UnixStream;

/// The flag by which a front starts the keeper of its job.
const KEEPER_FLAG: &str = "--keeper";

/// A command that has a session with the local server.
#[derive(Debug)]
pub(crate) struct LocalUser {
    /// The process that receives signals for the command.
    process: i32,
    command: String,
}

impl LocalUser {
    /// The command of a process. For a keeper, that of the front which started it.
    fn of(process: i32) -> Self {
        let words = command_line(process);
        let is_keeper = words.iter().any(|word| word == KEEPER_FLAG);
        match parent(process).filter(|_| is_keeper) {
            Some(front) => Self {
                process: front,
                command: command_line(front).join(" "),
            },
            None => Self {
                process,
                command: words.join(" "),
            },
        }
    }

    pub(crate) fn object(&self) -> Value {
        json!({ "pid": self.process, "command": self.command })
    }
}

impl fmt::Display for LocalUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {} {}", self.process, self.command)
    }
}

/// Asks the server at the other end for the commands that have a session there.
pub(crate) async fn ask(server: UnixStream) -> io::Result<Vec<LocalUser>> {
    let connections = four_letter_word(ready(Ok(server)), "cons").await?;
    let processes = connections.lines().filter_map(process_in_session);
    Ok(processes.map(LocalUser::of).collect())
}

/// The process in a line such as ` /unix:UID:PID[1](queued=0,…,sid=0x1,…)`.
fn process_in_session(line: &str) -> Option<i32> {
    let (peer, rest) = line.split_once('[')?;
    let (_, process) = peer.rsplit_once(':')?;
    let process = process.parse().ok()?;
    rest.contains(",sid=").then_some(process)
}

fn command_line(process: i32) -> Vec<String> {
    let line = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0);
    let words = words.map(|word| String::from_utf8_lossy(word).into_owned());
    words.filter(|word| !word.is_empty()).collect()
}

fn parent(process: i32) -> Option<i32> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    parent.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_in_sessions_are_found() {
        let with = " /unix:1000:4711[1](queued=0,recved=1,sent=1,sid=0x10,lop=SESS)";
        assert_eq!(process_in_session(with), Some(4711));
        let asks = " /unix:1000:4712[0](queued=0,recved=1,sent=0)";
        assert_eq!(process_in_session(asks), None);
    }
}
