//! Jobs that use the terminal, typed into an interactive shell in a pseudo-terminal.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::bellwether::{Running, assert_code, bellwether, serve, until, user_and_host};
use crate::screen;

/// What ends the line of a command, so that its end is seen.
const DONE: &str = "; echo \"code=$?\"";

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

    /// In a terminal of a certain kind.
    fn start_in(terminal_kind: &str) -> Self {
        let (server, addresses) =
            serve(bellwether().args(["serve", "--listen", "127.0.0.1:0", "--tick-time", "200ms"]));
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
        let program = std::path::Path::new(env!("CARGO_BIN_EXE_bellwether"));
        let mut path = program.parent().unwrap().as_os_str().to_owned();
        path.push(":/usr/bin:/bin");
        // It makes a session, and stdin its terminal.
        let shell = Command::new("setsid")
            .args(["--ctty", "--wait", "bash"])
            .args(["--norc", "--noprofile", "--noediting", "-i"])
            .env_clear()
            .envs([("PS1", "ready> "), ("TERM", terminal_kind)])
            .env("PATH", path)
            .env("BELLWETHER_CONNECT", &addresses[0])
            .stdin(terminal.try_clone().unwrap())
            .stdout(terminal.try_clone().unwrap())
            .stderr(terminal)
            .spawn()
            .unwrap();
        let keyboard = File::from(master);
        let screen = Arc::new(Mutex::new(String::new()));
        let (mut seen, shown) = (keyboard.try_clone().unwrap(), screen.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // It ends with an error when nobody has the terminal any more.
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

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for a text, and takes the screen up to it away. What was typed is on the screen too.
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

    /// What a person sees by now, since the last text that was waited for.
    pub(crate) fn seen(&self) -> Vec<String> {
        screen::rows(&self.screen.lock().unwrap())
    }

    /// Waits until what a person sees is as it should be.
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

    /// Waits until the last row that a person sees says something.
    #[track_caller]
    fn until_last_row(&self, says: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        until("the last row of the screen", || {
            last = self.seen().pop().unwrap_or_default();
            says(&last)
        });
        last
    }

    /// A try from elsewhere.
    fn try_lock(&self, wait: &str) -> std::process::Output {
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

#[test]
fn job_reads_what_is_typed() {
    let mut shell = Shell::start();
    let script = "read x; echo \"got-$x\"; exit 7";
    shell.type_line(&format!("bellwether lock x -- sh -c '{script}'{DONE}"));
    shell.until_shown("\n");
    shell.type_line("hello");
    shell.until_shown("got-hello");
    shell.until_shown("code=7");
}

#[test]
fn ctrl_c_reaches_the_job_once() {
    let mut shell = Shell::start();
    // `wait` is what a trap interrupts at once, and what runs in the background of a script heeds no Ctrl-C.
    let script = r#"trap "echo in\"\"t; kill \$!" INT; tail -f /dev/null & echo he""ld; wait; echo en""ded; exit 3"#;
    shell.type_line(&format!("bellwether lock x -- sh -c '{script}'{DONE}"));
    shell.until_shown("held");
    shell.press("\x03");
    shell.until_shown("int\r\n");
    shell.until_shown("ended\r\n");
    shell.until_shown("code=3");
    let rest = shell.screen.lock().unwrap().clone();
    assert!(!rest.contains("int"), "{rest}");
    assert_code(&shell.try_lock("0s"), 0);
}

#[test]
fn ctrl_c_ends_a_job_that_does_not_care() {
    let mut shell = Shell::start();
    shell.type_line(&format!(
        "bellwether lock x -- sh -c 'echo he\"\"ld; exec tail -f /dev/null'{DONE}"
    ));
    shell.until_shown("held");
    shell.press("\x03");
    shell.until_shown("code=130");
    assert_code(&shell.try_lock("0s"), 0);
}

#[test]
fn ctrl_c_ends_a_wait() {
    let mut shell = Shell::start();
    let mut holder = Running::start(bellwether().args([
        "lock",
        "-c",
        &shell.address,
        "x",
        "--",
        "sh",
        "-c",
        "echo held; exec tail -f /dev/null",
    ]));
    assert_eq!(holder.line().as_deref(), Some("held"));
    shell.type_line(&format!("bellwether lock x -- echo mine{DONE}"));
    shell.until_shown("waiting for /x");
    shell.press("\x03");
    shell.until_shown("code=130");
}

/// Somebody who holds the lock until the input ends, or waits for it.
fn contender(address: &str) -> Running {
    let mut command = bellwether();
    command.args(["lock", "-c", address, "x", "--hold"]);
    Running::start_with(command.stdin(Stdio::piped()))
}

#[test]
fn wait_is_shown_in_one_line_that_changes_and_goes() {
    let mut shell = Shell::start_in("xterm");
    let mut first = contender(&shell.address);
    assert!(first.line().is_some());
    let mut second = contender(&shell.address);
    assert!(second.error_line().is_some());
    shell.type_line("bellwether lock x -- echo mi\"\"ne");
    shell.until_shown("echo mi\"\"ne\r\n");
    let me = user_and_host();
    let place = |place: &str, holder: &Running| {
        let holder = holder.id();
        format!("bellwether: waiting for /x: {place} in line, held by {me} pid {holder}, ")
    };
    let begin = place("2nd", &first);
    let row = shell.until_last_row(|row| row.starts_with(&begin));
    // Time goes by, on the same line.
    shell.until_last_row(|later| later.starts_with(&begin) && later != row);
    assert_eq!(shell.seen().len(), 1, "{:?}", shell.seen());
    first.end_input();
    assert!(second.line().is_some());
    let begin = place("next", &second);
    shell.until_last_row(|row| row.starts_with(&begin));
    assert_eq!(shell.seen().len(), 1, "{:?}", shell.seen());
    second.end_input();
    shell.until_last_row(|row| row == "ready>");
    assert_eq!(shell.seen(), ["mine", "ready>"]);
}

#[test]
fn wait_that_is_interrupted_leaves_nothing_behind() {
    let mut shell = Shell::start_in("xterm");
    let mut holder = contender(&shell.address);
    assert!(holder.line().is_some());
    shell.type_line("bellwether lock x -- echo mi\"\"ne");
    shell.until_shown("echo mi\"\"ne\r\n");
    shell.until_last_row(|row| row.contains("next in line"));
    shell.press("\x03");
    shell.until_last_row(|row| row == "ready>");
    assert_eq!(shell.seen(), ["ready>"]);
}

#[test]
fn repair_and_job_have_the_terminal_in_turn() {
    let mut shell = Shell::start();
    shell.type_line(&format!("bellwether lock x -- sh -c 'kill -9 $$'{DONE}"));
    shell.until_shown("code=137");
    let script = "read x; echo \"got-$x\"";
    shell.type_line(&format!(
        "bellwether lock x --on-crash 'read x; echo repaired-$x' -- sh -c '{script}'{DONE}"
    ));
    shell.until_shown("repairing");
    shell.type_line("one");
    shell.until_shown("repaired-one");
    shell.type_line("two");
    shell.until_shown("got-two");
    shell.until_shown("code=0");
}

#[test]
fn ctrl_z_stops_the_job_and_not_the_heartbeat() {
    let mut shell = Shell::start();
    let script = "echo he\"\"ld; read x; echo \"got-$x\"";
    shell.type_line(&format!(
        "bellwether lock --session-timeout 4s x -- sh -c '{script}'"
    ));
    shell.until_shown("held");
    shell.press("\x1a");
    shell.until_shown("Stopped");
    shell.until_shown("ready> ");
    // The terminal is the shell's, and the lock is kept for longer than the session timeout.
    assert_code(&shell.try_lock("6s"), 124);
    shell.type_line("fg");
    shell.until_shown("bellwether lock");
    shell.until_shown("\n");
    shell.type_line("hello");
    shell.until_shown("got-hello");
    shell.until_shown("ready> ");
    shell.type_line("echo \"code=$?\"");
    shell.until_shown("code=0");
    assert_code(&shell.try_lock("0s"), 0);
}

#[test]
fn job_in_the_background_is_brought_to_the_front() {
    let mut shell = Shell::start();
    let script = "echo he\"\"ld; read x; echo \"got-$x\"";
    shell.type_line(&format!("bellwether lock x -- sh -c '{script}' &"));
    shell.until_shown("held");
    shell.type_line("fg");
    shell.until_shown("bellwether lock");
    shell.until_shown("\n");
    shell.type_line("hello");
    shell.until_shown("got-hello");
    shell.until_shown("ready> ");
}

#[test]
fn terminal_is_given_back_to_a_script() {
    let mut shell = Shell::start();
    let script = "bellwether lock x -- echo ra\"\"n; read x; echo \"script-$x\"";
    shell.type_line(&format!("sh -c '{script}'{DONE}"));
    shell.until_shown("ran");
    shell.type_line("hello");
    shell.until_shown("script-hello");
    shell.until_shown("code=0");
}

#[test]
fn terminal_is_given_back_when_the_keeper_is_killed() {
    let mut shell = Shell::start();
    let script = "bellwether lock x -- sh -c \"echo he\\\"\\\"ld; kill -KILL \\$PPID; tail -f /dev/null\"; read x; echo \"script-$x\"";
    shell.type_line(&format!("sh -c '{script}'{DONE}"));
    shell.until_shown("held");
    shell.until_shown("the keeper of the job was killed");
    shell.type_line("hello");
    shell.until_shown("script-hello");
    shell.until_shown("code=0");
}

#[test]
fn waiter_that_is_stopped_does_not_run_its_job_until_it_goes_on() {
    let mut shell = Shell::start();
    let mut holder = contender(&shell.address);
    assert!(holder.line().is_some());
    shell.type_line("bellwether lock x -- echo ra\"\"n");
    shell.until_shown("waiting for /x");
    shell.press("\x1a");
    shell.until_shown("Stopped");
    holder.end_input();
    shell.until_shown("/x is held; the command starts when this one goes on");
    shell.type_line("fg");
    // The shell says which command goes on before it does.
    shell.until_shown("bellwether lock x -- echo");
    shell.until_shown("ran\r\n");
    assert_code(&shell.try_lock("10s"), 0);
}
