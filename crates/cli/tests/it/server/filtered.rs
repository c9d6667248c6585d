//! A server under a filter of system calls, like that of a systemd unit.

use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::support::bellwether::{Running, bellwether, text};

/// `setpriority` in the table of this architecture.
const SETPRIORITY: &str = if cfg!(target_arch = "x86_64") {
    "141"
} else {
    "140"
};

#[test]
fn server_that_cannot_lower_priorities_warns_and_the_doctor_knows() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/without_system_call.py");
    let mut command = Command::new("python3");
    command.arg(script).arg(SETPRIORITY);
    command.arg(env!("CARGO_BIN_EXE_bellwether"));
    command.args(["serve", "--listen", "127.0.0.1:0", "--words", "srvr,mntr"]);
    command.env_remove("RUST_LOG").env_remove("NOTIFY_SOCKET");
    let mut server = Running::start(&mut command);
    let (mut warned, mut address) = (false, None);
    // In any order: threads warn.
    while !warned || address.is_none() {
        let line = server.error_line().expect("it serves and warns");
        warned |= line.contains("cannot lower the priority of threads");
        if let Some((_, at)) = line.split_once("serving on ") {
            address = at.split(';').next().map(str::to_owned);
        }
    }
    let mut doctor = bellwether();
    let found = doctor.args(["doctor", "-c", &address.unwrap()]).output();
    let found = text(&found.unwrap().stdout);
    assert!(found.contains("could not lower their priority"), "{found}");
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}
