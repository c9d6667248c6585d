//! Runs the command and follows its output.

use std::io::{BufRead, BufReader, Read, Write as _};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant, SystemTime};

use bellwether_testkit::{Apache, SharedApache};
use rustix::process::{Pid, Signal, kill_process};

/// Time limit of every wait in a test.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Environment variable of the local server's folder.
pub(crate) const LOCAL_FOLDER: &str = "BELLWETHER_LOCAL";

/// The command, without the environment variables that it would read, and with no signal ignored, however the tests were started.
pub(crate) fn bellwether() -> Command {
    started_by_env(&["--default-signal"])
}

/// The same, with SIGHUP ignored from the start, as by `nohup`.
pub(crate) fn bellwether_without_hangups() -> Command {
    started_by_env(&["--default-signal", "--ignore-signal=HUP"])
}

fn started_by_env(options: &[&str]) -> Command {
    let mut command = Command::new("env");
    command.args(options).arg(env!("CARGO_BIN_EXE_bellwether"));
    for variable in [
        "BELLWETHER_CONNECT",
        "BELLWETHER_KEEPER",
        "RUST_LOG",
        "NOTIFY_SOCKET",
    ] {
        command.env_remove(variable);
    }
    // Hides the settings and the local server of the user who runs the tests.
    command.env("XDG_CONFIG_HOME", "/nonexistent");
    command.env(LOCAL_FOLDER, "/nonexistent/local");
    command
}

/// `bellwether … --connect address -- sh -c script`; the script finds `bellwether` too.
pub(crate) fn job(address: &str, arguments: &[&str], script: &str) -> Command {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_bellwether"));
    let mut path = program.parent().unwrap().as_os_str().to_owned();
    path.push(":/usr/bin:/bin");
    let mut command = bellwether();
    command.env("PATH", path).args(arguments).args([
        "--connect",
        address,
        "--",
        "sh",
        "-c",
        script,
    ]);
    command
}

/// A job that prints `held` and ends when it is killed or asked to.
#[track_caller]
pub(crate) fn holding(address: &str, arguments: &[&str]) -> Running {
    let script = "echo held; exec tail -f /dev/null";
    let mut holder = Running::start(&mut job(address, arguments, script));
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder
}

/// Generates two tests from each function, which gets an address: of an embedded server, and of a chroot on Apache's.
macro_rules! on_both_engines {
    ($($name:ident,)*) => {
        mod embedded {
            $(#[test]
            fn $name() {
                let (_server, addresses) =
                    $crate::support::bellwether::serve($crate::support::bellwether::bellwether().args([
                        "serve", "--listen", "127.0.0.1:0", "--tick-time", "200ms",
                        // With others, a test cannot end the session of a command.
                        "--session-passwords", "apache",
                    ]));
                super::$name(&addresses[0]);
            })*
        }

        mod apache {
            $(#[test]
            fn $name() {
                let (_server, address) = $crate::support::bellwether::apache();
                super::$name(&address);
            })*
        }
    };
}

/// A server in the background, and its addresses.
pub(crate) fn serve(command: &mut Command) -> (Running, Vec<String>) {
    let mut server = Running::start(command);
    let mut said = Vec::new();
    // Warnings may precede it.
    let addresses = loop {
        let line = server.error_line().unwrap_or_else(|| panic!("{said:?}"));
        match line.strip_prefix("bellwether: serving on ") {
            Some(ready) => {
                let addresses = ready.split(';').next().unwrap_or_default();
                break addresses.split(", ").map(str::to_owned).collect();
            }
            None => said.push(line),
        }
    };
    (server, addresses)
}

/// Apache's server, and the address of a separate chroot there.
pub(crate) fn apache() -> (SharedApache, String) {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(Apache::shared()).unwrap();
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_nanos();
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let (address, process) = (server.connect_string(), std::process::id());
    let address = format!("{address}/cli/{process}-{now:x}-{count}");
    (server, address)
}

/// A command in the background. Killed on drop, so that a failed test leaves none behind.
pub(crate) struct Running {
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        Self::start_with(command.stdin(Stdio::null()))
    }

    /// Like [`start`](Self::start), with the stdin of the command.
    pub(crate) fn start_with(command: &mut Command) -> Self {
        Self::follow(command.stdout(Stdio::piped()).stderr(Stdio::piped()))
    }

    /// Like [`start_with`](Self::start_with), with the stdout and stderr of the command; lines can be read only from pipes.
    pub(crate) fn follow(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let nothing = || channel().1;
        let stdout = child.stdout.take().map_or_else(nothing, lines);
        let stderr = child.stderr.take().map_or_else(nothing, lines);
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// The next line of stdout; `None` when all processes have closed it.
    pub(crate) fn line(&mut self) -> Option<String> {
        next(&self.stdout)
    }

    /// The next line of stderr.
    pub(crate) fn error_line(&mut self) -> Option<String> {
        next(&self.stderr)
    }

    /// The rest of stderr.
    pub(crate) fn errors(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.error_line()).collect()
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end and returns the exit code.
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.status().code()
    }

    /// Writes a line to stdin.
    pub(crate) fn tell(&mut self, line: &str) {
        let input = self.child.stdin.as_mut().unwrap();
        writeln!(input, "{line}").unwrap();
    }

    /// Closes stdin.
    pub(crate) fn end_input(&mut self) {
        drop(self.child.stdin.take());
    }

    fn status(&mut self) -> ExitStatus {
        let mut status = None;
        until("the command has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Lines as they arrive, from a separate thread, so that a wait for one can have a limit.
fn lines(from: impl Read + Send + 'static) -> Receiver<String> {
    let (send, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines().map_while(Result::ok) {
            if send.send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn next(lines: &Receiver<String>) -> Option<String> {
    match lines.recv_timeout(LIMIT) {
        Ok(line) => Some(line),
        Err(RecvTimeoutError::Disconnected) => None,
        Err(RecvTimeoutError::Timeout) => panic!("neither a line nor the end within {LIMIT:?}"),
    }
}

/// The only child of a process.
pub(crate) fn child_of(process: Pid) -> Pid {
    let children = format!("/proc/{process}/task/{process}/children");
    let children = std::fs::read_to_string(children).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

pub(crate) fn ignores_hangups(process: Pid) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let (_, bits) = status.split_once("SigIgn:").unwrap();
    let bits = bits.lines().next().unwrap().trim();
    u64::from_str_radix(bits, 16).unwrap() & 1 == 1
}

/// Polls until a condition holds.
#[track_caller]
#[expect(
    clippy::disallowed_methods,
    reason = "a look at other processes, again and again up to a limit"
)]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < LIMIT, "{what}: not within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// `USER@HOST` of this process, as in messages.
pub(crate) fn user_and_host() -> String {
    let user = Command::new("id").arg("-un").output().unwrap();
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    format!("{}@{host}", text(&user.stdout).trim())
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts the exit code, and prints the output if it differs.
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "stderr: {}",
        text(&output.stderr)
    );
}

/// Apache's password of a session, which any client can compute: `java.util.Random` with a known seed.
pub(crate) fn public_password(session: i64) -> Vec<u8> {
    const MULTIPLIER: u64 = 0x5_DEEC_E66D;
    let mut state = (session ^ 0xB341_5C00).cast_unsigned() ^ MULTIPLIER;
    let mut word = || {
        state = state.wrapping_mul(MULTIPLIER).wrapping_add(0xB) & ((1 << 48) - 1);
        u32::try_from(state >> 16).unwrap().to_le_bytes()
    };
    [word(), word(), word(), word()].concat()
}
