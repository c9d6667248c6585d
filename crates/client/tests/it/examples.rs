//! The examples, as users run them.

use std::path::PathBuf;
use std::process::Stdio;

use bellwether_client::CreateMode;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::Command;

use crate::support::place::{Place, soon};

/// Cargo builds examples beside the tests.
fn example(name: &str) -> Command {
    let test = std::env::current_exe().unwrap();
    let folder: PathBuf = test.parent().unwrap().parent().unwrap().join("examples");
    let mut command = Command::new(folder.join(name));
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true);
    command
}

#[tokio::test]
async fn follow_prints_each_change() {
    let place = Place::embedded().await;
    let client = place.client().await;
    client
        .create("/settings", b"one", CreateMode::Persistent)
        .await
        .unwrap();
    let mut child = example("follow")
        .args([&place.connect_string(), "/settings"])
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = async || soon(lines.next_line()).await.unwrap().unwrap();
    assert_eq!(next().await, "version 0: one");
    client.set("/settings", b"two", None).await.unwrap();
    assert_eq!(next().await, "version 1: two");
    client.delete("/settings", None).await.unwrap();
    assert_eq!(next().await, "deleted");
    assert!(soon(child.wait()).await.unwrap().success());
}

#[tokio::test]
async fn append_numbers_its_lines() {
    let place = Place::embedded().await;
    let mut child = example("append")
        .args([&place.connect_string(), "/lines"])
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"a\nb\nc\n").await.unwrap();
    drop(input);
    let output = soon(child.wait_with_output()).await.unwrap();
    assert!(output.status.success());
    let expected =
        "a: /lines/line-0000000000\nb: /lines/line-0000000001\nc: /lines/line-0000000002\n";
    assert_eq!(String::from_utf8(output.stdout).unwrap(), expected);
    let client = place.client().await;
    assert_eq!(
        &client.get("/lines/line-0000000001").await.unwrap().0[..],
        b"b"
    );
}
