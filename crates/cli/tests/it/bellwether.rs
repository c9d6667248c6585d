//! Runs the command and follows what it prints.

use std::io::{BufRead, BufReader, Lines};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use bellwether_testkit::{Apache, SharedApache};
use rustix::process::{Pid, Signal, kill_process};

/// The command, without anything of the environment that it would read.
pub(crate) fn bellwether() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bellwether"));
    for variable in ["BELLWETHER_CONNECT", "RUST_LOG", "NOTIFY_SOCKET"] {
        command.env_remove(variable);
    }
    command
}

/// Makes two tests of each function, which gets an address: of an embedded server, and of a chroot on Apache's.
macro_rules! on_both_engines {
    ($($name:ident,)*) => {
        mod embedded {
            $(#[test]
            fn $name() {
                let (_server, addresses) =
                    $crate::bellwether::serve($crate::bellwether::bellwether().args([
                        "serve", "--listen", "127.0.0.1:0", "--tick-time", "200ms",
                    ]));
                super::$name(&addresses[0]);
            })*
        }

        mod apache {
            $(#[test]
            fn $name() {
                let (_server, address) = $crate::bellwether::apache();
                super::$name(&address);
            })*
        }
    };
}

/// A server in the background, and where it listens.
pub(crate) fn serve(command: &mut Command) -> (Running, Vec<String>) {
    let mut server = Running::start(command);
    let mut said = Vec::new();
    // Warnings may come before.
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

/// Apache's server, and the address of a chroot of its own there.
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

/// A command in the background. Killed when dropped, so that a test that fails leaves none behind.
pub(crate) struct Running {
    child: Child,
    stdout: Lines<BufReader<ChildStdout>>,
    stderr: Lines<BufReader<ChildStderr>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let stderr = BufReader::new(child.stderr.take().unwrap()).lines();
        Self {
            child,
            stdout,
            stderr,
        }
    }

    /// The next line of stdout.
    pub(crate) fn line(&mut self) -> Option<String> {
        self.stdout.next().map(|line| line.unwrap())
    }

    /// The next line of stderr.
    pub(crate) fn error_line(&mut self) -> Option<String> {
        self.stderr.next().map(|line| line.unwrap())
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for the end and returns the exit code.
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Asserts the exit code, and shows what was printed if it is another.
pub(crate) fn assert_code(output: &Output, code: i32) {
    assert_eq!(
        output.status.code(),
        Some(code),
        "stderr: {}",
        text(&output.stderr)
    );
}
