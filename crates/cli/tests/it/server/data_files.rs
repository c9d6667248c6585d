//! `bellwether log`, `bellwether snapshot` and `bellwether serve --repair`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bellwether_testkit::{Create, RawClient, Request};
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use crate::support::bellwether::{assert_code, bellwether, serve, text};

/// Data folder of a server that has carried out these requests.
fn folder(requests: impl IntoIterator<Item = Request>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), requests);
    folder
}

/// Runs a server on a folder for these requests.
fn run(folder: &Path, requests: impl IntoIterator<Item = Request>) {
    let mut command = bellwether();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
    let (mut server, addresses) = serve(command.arg(folder));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut client = RawClient::connect(&addresses[0]).await.unwrap();
        for request in requests {
            client.call(request).await.unwrap().ok().unwrap();
        }
    });
    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
}

fn file(folder: &TempDir, name: &str) -> PathBuf {
    folder.path().join("version-2").join(name)
}

fn command(name: &str, file: &Path) -> Command {
    let mut command = bellwether();
    command.arg(name).arg(file);
    command
}

fn flip(file: &Path, offset: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[offset] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

/// Where the record of `path` begins.
fn offset_of(log: &Path, path: &str) -> usize {
    let output = command("log", log).arg("--json").output().unwrap();
    let lines = text(&output.stdout);
    let records = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let offset = records
        .filter(|record| record["path"] == path)
        .find_map(|record| record["offset"].as_u64());
    usize::try_from(offset.unwrap()).unwrap()
}

fn nodes() -> Vec<Request> {
    vec![
        Request::create("/a", "some data"),
        Request::create("/b", [0xFF, 0x00]),
        Request::create_mode("/e", "", Create::EPHEMERAL),
        Request::Multi(vec![Request::set_data("/a", "new"), Request::delete("/b")]),
        Request::create("/last", "x".repeat(1000)),
    ]
}

#[test]
fn a_log_is_a_line_for_each_record() {
    let folder = folder(nodes());
    let output = command("log", &file(&folder, "log.1")).output().unwrap();
    assert_code(&output, 0);
    let output = text(&output.stdout);
    let lines: Vec<_> = output.lines().collect();
    assert!(lines[0].starts_with("16 0x1 20"), "{output}");
    assert!(lines[0].contains(" createSession timeout="), "{output}");
    let create = " create /a \"some data\" acl=world:anyone:cdrwa parent-cversion=1 bytes=";
    assert!(lines[1].contains(create), "{output}");
    assert!(lines[1].contains(" digest=0x"), "{output}");
    assert!(lines[2].contains(" create /b 0xff00 "), "{output}");
    assert!(lines[3].contains(" create /e ephemeral \"\" "), "{output}");
    assert!(
        lines[4].contains(" multi [setData /a \"new\" version=1; delete /b] "),
        "{output}"
    );
    assert!(lines[5].contains("…(1000 bytes) "), "{output}");
    assert_eq!(lines[6], "clean end after 6 records");
}

#[test]
fn a_log_is_also_told_in_json() {
    let folder = folder(nodes());
    let output = command("log", &file(&folder, "log.1"))
        .arg("--json")
        .output()
        .unwrap();
    assert_code(&output, 0);
    let output = text(&output.stdout);
    let objects: Vec<Value> = output
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects[1]["zxid"], "0x2");
    assert_eq!(objects[1]["type"], "create");
    assert_eq!(objects[1]["data"]["text"], "some data");
    assert_eq!(objects[2]["data"]["base64"], "/wA=");
    assert_eq!(objects[4]["parts"][1]["path"], "/b");
    assert_eq!(objects[6]["end"], "clean");
    assert_eq!(objects[6]["records"], 6);
}

#[test]
fn a_snapshot_is_a_line_for_each_node() {
    let folder = folder(nodes());
    // Another start takes a snapshot of the log's content.
    run(folder.path(), []);
    let newest = file(&folder, "snapshot.6");
    let output = command("snapshot", &newest).output().unwrap();
    assert_code(&output, 0);
    let output = text(&output.stdout);
    assert!(output.starts_with("session 0x"), "{output}");
    assert!(
        output.contains(" /a \"new\" acl=world:anyone:cdrwa czxid=0x2 mzxid=0x5 "),
        "{output}"
    );
    assert!(
        output.contains("sound end after 7 nodes; digest 0x"),
        "{output}"
    );
    let output = command("snapshot", &newest).arg("--json").output().unwrap();
    let output = text(&output.stdout);
    let last: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!(last["end"], "sound");
    assert_eq!(last["nodes"], 7);

    flip(&newest, 300);
    let output = command("snapshot", &newest).output().unwrap();
    assert_code(&output, 1);
    let output = text(&output.stdout);
    assert!(
        output.lines().last().unwrap().starts_with("damaged at "),
        "{output}"
    );
}

/// A snapshot of a root whose access list has a number that is not in the table.
fn snapshot_without_acl() -> Vec<u8> {
    const STAT_BYTES: usize = 60;
    let mut bytes = [&b"ZKSN"[..], &2i32.to_be_bytes(), &(-1i64).to_be_bytes()].concat();
    // No sessions and no lists; then a path and data, both empty.
    bytes.extend([0; 16]);
    bytes.extend(7i64.to_be_bytes());
    bytes.extend([0; STAT_BYTES]);
    let end = b"\0\0\0\x01/";
    bytes.extend(end);
    bytes.extend(i64::from(adler32(&bytes)).to_be_bytes());
    bytes.extend(end);
    bytes
}

fn adler32(bytes: &[u8]) -> u32 {
    let (low, high) = bytes.iter().fold((1, 0), |(low, high), byte| {
        let low = (low + u32::from(*byte)) % 65521;
        (low, (high + low) % 65521)
    });
    high << 16 | low
}

#[test]
fn a_snapshot_tells_how_many_nodes_lack_their_access_lists() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("snapshot.0");
    fs::write(&path, snapshot_without_acl()).unwrap();
    let output = command("snapshot", &path).output().unwrap();
    assert_code(&output, 0);
    let output = text(&output.stdout);
    let end = "sound end after 1 nodes, 1 of them without an access list; no digest";
    assert_eq!(output.lines().last(), Some(end));
    let output = command("snapshot", &path).arg("--json").output().unwrap();
    let output = text(&output.stdout);
    let last: Value = serde_json::from_str(output.lines().last().unwrap()).unwrap();
    assert_eq!(last["without_acl"], 1);
}

#[test]
fn a_closed_pipe_is_a_quiet_end() {
    // More than a pipe holds.
    let folder = folder((0..300).map(|n| Request::create(format!("/{n}"), vec![b'x'; 1000])));
    let mut child = command("log", &file(&folder, "log.1"))
        .arg("--json")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 0);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn a_file_that_is_not_there_is_125() {
    assert_code(
        &command("log", Path::new("/no/such/log.1"))
            .output()
            .unwrap(),
        125,
    );
    assert_code(
        &command("snapshot", Path::new("/no/such/snapshot.1"))
            .output()
            .unwrap(),
        125,
    );
}

#[test]
fn damage_stops_a_start_and_a_repair_gives_up_what_follows() {
    let folder = folder(nodes());
    let log = file(&folder, "log.1");
    let offset = offset_of(&log, "/b");
    flip(&log, offset + 40);
    let damaged = fs::read(&log).unwrap();

    let shown = command("log", &log).output().unwrap();
    assert_code(&shown, 1);
    let end = format!(
        "damaged at {offset} after 2 records: the record is bad, and good ones follow it\n"
    );
    assert!(
        text(&shown.stdout).ends_with(&end),
        "{}",
        text(&shown.stdout)
    );

    let mut start = bellwether();
    start
        .args(["serve", "--listen", "127.0.0.1:0", "--data"])
        .arg(folder.path());
    let refused = start.output().unwrap();
    assert_code(&refused, 125);
    let said = text(&refused.stderr);
    assert!(
        said.contains(&format!("log.1 is damaged at offset {offset}")),
        "{said}"
    );
    let hint = format!(
        "bellwether serve --data {} --repair",
        folder.path().display()
    );
    let last = said.lines().last().unwrap();
    assert!(
        last.starts_with("hint: ") && last.ends_with(&hint),
        "{said}"
    );

    let mut repair = bellwether();
    repair
        .args(["serve", "--repair", "--data"])
        .arg(folder.path());
    let unanswered = repair.stdin(Stdio::null()).output().unwrap();
    assert_code(&unanswered, 2);
    let said = text(&unanswered.stderr);
    let step = format!("would cut log.1 at offset {offset}: ");
    assert!(said.contains(&step), "{said}");
    assert!(
        said.contains(" with 3 readable transactions, 0x4 to 0x6, "),
        "{said}"
    );
    assert!(said.contains("hint: --yes "), "{said}");
    assert_eq!(fs::read(&log).unwrap(), damaged);

    let repaired = repair.arg("--yes").output().unwrap();
    assert_code(&repaired, 0);
    let said = text(&repaired.stderr);
    assert!(said.contains("tokens continue above 0x"), "{said}");
    let kept = fs::read(file(&folder, &format!("cut-log.1-{offset}"))).unwrap();
    assert!(damaged[offset..].starts_with(&kept));
    // Data before the damage is there, and data after it is not.
    run(
        folder.path(),
        [Request::get_data("/a"), Request::create("/b", "")],
    );
    let again = repair.output().unwrap();
    assert_code(&again, 0);
    assert!(text(&again.stderr).contains("nothing to repair"));
}

#[test]
fn a_repair_wants_a_folder_with_data() {
    assert_code(
        &bellwether().args(["serve", "--repair"]).output().unwrap(),
        2,
    );
    assert_code(&bellwether().args(["serve", "--yes"]).output().unwrap(), 2);
    let empty = tempfile::tempdir().unwrap();
    let mut repair = bellwether();
    repair
        .args(["serve", "--repair", "--data"])
        .arg(empty.path());
    assert_code(&repair.output().unwrap(), 125);
    assert_eq!(fs::read_dir(empty.path()).unwrap().count(), 0);
}
