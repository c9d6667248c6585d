//! `bellwether serve --data` on file systems that are full or read-only.

use std::path::Path;
use std::process::{Command, Stdio};

use bellwether_testkit::{Body, RawClient, Request};

use crate::support::bellwether::Running;

/// Runs a script with a file system of this size at `folder`, and the program as `$BW`. `None` if that is not allowed here. The script reads what
/// the test writes.
pub(super) fn with_small_disk(folder: &Path, size: &str, script: &str) -> Option<Running> {
    // A namespace of processes too, so that a server ends with the script.
    const NAMESPACES: [&str; 5] = [
        "--map-root-user",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
    ];
    let mount = format!("mount -t tmpfs -o size={size} tmpfs \"$DATA\"");
    let is_allowed = |status: std::process::ExitStatus| status.success();
    let run = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(NAMESPACES).args(["sh", "-c", script]);
        command.env("BW", env!("CARGO_BIN_EXE_bellwether"));
        command.env("DATA", folder).stdin(Stdio::piped());
        command.env_remove("RUST_LOG").env_remove("NOTIFY_SOCKET");
        command
    };
    if !run(&mount).status().is_ok_and(is_allowed) {
        eprintln!("skipped: no file system can be mounted here");
        return None;
    }
    Some(Running::start_with(&mut run(&format!("{mount}; {script}"))))
}

/// The address in the line that says where the server serves.
pub(super) fn serving(server: &mut Running) -> String {
    let line = server.error_line().expect("the server serves");
    let address = line.strip_prefix("bellwether: serving on ");
    address.unwrap_or_else(|| panic!("{line}")).to_owned()
}

#[tokio::test]
async fn full_disk_stops_the_server_which_has_everything_when_there_is_space() {
    let folder = tempfile::tempdir().unwrap();
    // Without a low-water mark.
    let serve = "\"$BW\" serve --listen 127.0.0.1:0 --data \"$DATA\" --min-free-disk 0";
    let script = format!("{serve}; echo code $?; mount -o remount,size=8m \"$DATA\"; exec {serve}");
    let Some(mut server) = with_small_disk(folder.path(), "160k", &script) else {
        return;
    };
    let address = serving(&mut server);
    let mut client = RawClient::connect(&address).await.unwrap();
    let mut acknowledged = 0;
    loop {
        let create = Request::create(format!("/{acknowledged}"), vec![7; 4000]);
        match client.call(create).await {
            Ok(reply) => drop(reply.outcome.unwrap()),
            Err(_) => break,
        }
        acknowledged += 1;
    }
    assert!((5..40).contains(&acknowledged), "{acknowledged} writes");
    let error = loop {
        let line = server.error_line().expect("it says why it stops");
        if line.starts_with("bellwether: ") {
            break line;
        }
    };
    for part in ["cannot write the log", "log.1", "No space left on device"] {
        assert!(error.contains(part), "{part} is not in {error}");
    }
    let hint = server.error_line().unwrap();
    assert!(hint.contains("hint: free some space"), "{hint}");
    assert_eq!(server.line().as_deref(), Some("code 125"));

    let address = loop {
        let line = server.error_line().expect("the server serves again");
        if let Some(address) = line.strip_prefix("bellwether: serving on ") {
            break address.to_owned();
        }
    };
    let mut client = RawClient::connect(&address).await.unwrap();
    let reply = client.call(Request::get_children("/")).await.unwrap();
    let Body::Children(names) = reply.outcome.unwrap() else {
        panic!("no list");
    };
    // The one that was not acknowledged may be there or not.
    let found = names.len() - 1;
    assert!(
        found == acknowledged || found == acknowledged + 1,
        "{acknowledged} of {names:?}"
    );
    for number in 0..acknowledged {
        assert!(names.contains(&number.to_string()), "{number} is lost");
    }
    let reply = client.call(Request::create("/more", "")).await.unwrap();
    reply.outcome.unwrap();
}

#[test]
fn read_only_disk_is_refused_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let script = "mount -o remount,ro \"$DATA\"; \"$BW\" serve --listen 127.0.0.1:0 --data \"$DATA\"; echo code $?";
    let Some(mut server) = with_small_disk(folder.path(), "160k", script) else {
        return;
    };
    assert_eq!(server.line().as_deref(), Some("code 125"));
    let said = server.errors().join("\n");
    for part in [
        "the server cannot start",
        folder.path().to_str().unwrap(),
        "Read-only file system",
        "hint: the file system is read-only",
    ] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
}
