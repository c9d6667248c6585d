//! An interactive shell in a pseudo-terminal.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::support::bellwether::{Running, bellwether, serve, until};
use crate::support::screen;

/// A `PATH` in which the program under test comes first.
pub(crate) fn path_with_bellwether() -> OsString {
    let program = Path::new(env!("CARGO_BIN_EXE_bellwether"));
    let mut path = program.parent().unwrap().as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    path
}

/// A pseudo-terminal: what a user sees and types on, and what a program uses.
pub(crate) fn open_terminal() -> (File, File) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let size = Winsize {
        ws_row: screen::ROWS,
        ws_col: screen::COLUMNS,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let terminal = OpenOptions::new()
        .read(true)
        .write(true)
        .open(name)
        .unwrap();
    (File::from(master), terminal)
}

/// A shell with job control in a terminal, and a server.
pub(crate) struct Shell {
    keyboard: File,
    screen: Arc<Mutex<String>>,
    shell: Child,
    pub(crate) address: String,
    _server: Running,
}

impl Shell {
    pub(crate) fn start() -> Self {
        Self::start_in("dumb")
    }

    /// Bash, in a terminal of a certain kind.
    pub(crate) fn start_in(terminal_kind: &str) -> Self {
        let bash = ["bash", "--norc", "--noprofile", "--noediting", "-i"];
        Self::start_program(&bash, terminal_kind)
    }

    /// A shell that shows `PS1` as its prompt.
    pub(crate) fn start_program(program: &[&str], terminal_kind: &str) -> Self {
        let (server, addresses) =
            serve(bellwether().args(["serve", "--listen", "127.0.0.1:0", "--tick-time", "200ms"]));
        let (keyboard, terminal) = open_terminal();
        // It creates a session, and makes stdin its terminal.
        let shell = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .args(program)
            .env_clear()
            .envs([("PS1", "ready> "), ("TERM", terminal_kind)])
            .env("PATH", path_with_bellwether())
            .env("BELLWETHER_CONNECT", &addresses[0])
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal)
            .spawn()
            .unwrap();
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut seen, shown) = (keyboard.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Ends with an error when no process has the terminal open.
            while let Ok(count @ 1..) = seen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]).into_owned();
                shown.lock().unwrap().push_str(&text);
            }
        });
        let mut shell = Self {
            keyboard,
            screen,
            shell,
            address: addresses[0].clone(),
            _server: server,
        };
        shell.until_shown("ready> ");
        shell
    }

    pub(crate) fn type_line(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Types a command, which shows `code=N` when it has ended.
    pub(crate) fn run(&mut self, command: &str) {
        self.type_line(&format!("{command}; echo \"code=$?\""));
    }

    /// Types a line, and waits for its effect.
    #[track_caller]
    pub(crate) fn answer(&mut self, line: &str, shown: &str) {
        self.type_line(line);
        self.until_shown(shown);
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text, and drops the screen up to it. The screen includes what was typed.
    #[track_caller]
    pub(crate) fn until_shown(&mut self, text: &str) {
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(text, || {
                let mut screen = self.screen.lock().unwrap();
                last.clone_from(&screen);
                let end = screen.find(text).map(|place| place + text.len());
                end.map(|end| screen.drain(..end)).is_some()
            });
        }));
        assert!(found.is_ok(), "no {text:?} on the screen: {last:?}");
    }

    /// Bytes since the last text that was waited for.
    pub(crate) fn rest(&self) -> String {
        self.screen.lock().unwrap().clone()
    }

    /// The screen since the last text that was waited for.
    pub(crate) fn seen(&self) -> Vec<String> {
        screen::rows(&self.screen.lock().unwrap())
    }

    /// Waits until the screen satisfies `is_right`.
    #[track_caller]
    pub(crate) fn until_seen(&self, is_right: impl Fn(&[String]) -> bool) {
        let mut last = Vec::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until("the screen", || {
                last = self.seen();
                is_right(&last)
            });
        }));
        assert!(found.is_ok(), "the screen is {last:#?}");
    }

    /// Waits until the last row of the screen satisfies `says`.
    #[track_caller]
    pub(crate) fn until_last_row(&self, says: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        until("the last row of the screen", || {
            last = self.seen().pop().unwrap_or_default();
            says(&last)
        });
        last
    }

    /// An attempt from another client.
    pub(crate) fn try_lock(&self, wait: &str) -> std::process::Output {
        bellwether()
            .args([
                "lock",
                "-c",
                &self.address,
                "x",
                "--wait",
                wait,
                "--",
                "true",
            ])
            .output()
            .unwrap()
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
