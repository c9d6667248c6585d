//! Commands on the tree of a server, run to their end.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use bellwether_testkit::FaultProxy;
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::bellwether::{assert_code, bellwether, text};

/// Runs a command on the tree.
pub(crate) fn run(address: &str, arguments: &[&str]) -> Output {
    command(address, arguments).output().unwrap()
}

pub(crate) fn command(address: &str, arguments: &[&str]) -> Command {
    let mut command = bellwether();
    command
        .args(arguments)
        .args(["--connect", address])
        .env_remove("BELLWETHER_AUTH")
        .stdin(Stdio::null());
    command
}

/// A proxy in front of the servers of an address, and the address through it.
pub(crate) fn proxy(address: &str, runtime: &Runtime) -> (FaultProxy, String) {
    let (servers, chroot) = address.split_at(address.find('/').unwrap_or(address.len()));
    let proxy = runtime.block_on(FaultProxy::start(servers)).unwrap();
    let through = format!("{}{chroot}", proxy.connect_string());
    (proxy, through)
}

/// Runs a command that must succeed without messages, and returns its output.
pub(crate) fn answer(address: &str, arguments: &[&str]) -> String {
    let output = run(address, arguments);
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "", "{arguments:?}");
    text(&output.stdout)
}

pub(crate) fn json(address: &str, arguments: &[&str]) -> Value {
    serde_json::from_str(&answer(address, arguments)).unwrap()
}

/// Creates `/many` with `nodes` nodes below it, some of them two levels deep.
pub(crate) fn make_many(address: &str, nodes: usize) {
    let acl = r#"[{"scheme":"world","id":"anyone","rights":"cdrwa"}]"#;
    let node = |path: &str| {
        format!(r#"{{"path":"{path}","kind":"persistent","data":{{"text":""}},"acl":{acl}}}"#)
    };
    let mut lines = vec![node("/"), node("/dir")];
    for number in 0..nodes - 1 {
        let above = if number % 2 == 0 { "" } else { "/dir" };
        lines.push(node(&format!("{above}/n{number}")));
    }
    let file = format!(
        r#"{{"format":"bellwether-export","version":1,"path":"/","nodes":[{}]}}"#,
        lines.join(",")
    );
    let mut import = command(address, &["import", "/many", "--quiet"]);
    let mut import = import.stdin(Stdio::piped()).spawn().unwrap();
    import
        .stdin
        .take()
        .unwrap()
        .write_all(file.as_bytes())
        .unwrap();
    assert!(import.wait().unwrap().success());
}
