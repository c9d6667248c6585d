//! The audit log: what is in it, and what never is.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bellwether_server::{Config, Server};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{CrashDisk, RawClient, Request, TestServer};
use serde_json::Value;
use tempfile::TempDir;

use crate::{ok, refusal, until};

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// A server with an audit log.
async fn audited(folder: &TempDir) -> (Server, PathBuf) {
    let path = folder.path().join("audit.log");
    let config = Config {
        audit_log: Some(path.clone()),
        ..TestServer::config()
    };
    (Server::start(config).await.unwrap(), path)
}

#[tokio::test]
async fn writes_sessions_failures_and_changes_by_words_are_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let (server, path) = audited(&folder).await;
    let address = server.addresses()[0];
    let mut client = RawClient::connect(address).await.unwrap();
    ok(&mut client, Request::auth_digest("alice:open sesame")).await;
    // Content of paths and data cannot break the lines.
    let odd = "/a\"b\\c\u{e9}\u{2028}d";
    ok(&mut client, Request::create(odd, "secret data")).await;
    refusal(&mut client, Request::create(odd, "")).await;
    let multi = vec![Request::create("/m", ""), Request::set_data("/m", "x")];
    ok(&mut client, Request::Multi(multi)).await;
    ok(&mut client, Request::get_data("/m")).await;
    ok(&mut client, Request::Multi(vec![Request::delete("/none")])).await;
    let mut stranger = RawClient::connect(address).await.unwrap();
    let unknown = Request::Auth {
        scheme: "nothing".into(),
        data: Some(b"open sesame".to_vec()),
    };
    refusal(&mut stranger, unknown).await;
    four_letter_word(address, "srst").await.unwrap();
    server.hooks().expire_session(stranger.session_id());
    ok(&mut client, Request::CloseSession).await;
    until("the expiry is written", || {
        lines(&path)
            .iter()
            .any(|line| line["operation"] == "expireSession")
    })
    .await;
    server.shutdown().await;

    let lines = lines(&path);
    let summary: Vec<_> = lines
        .iter()
        .map(|line| {
            let text = |name: &str| line[name].as_str().unwrap_or_default().to_owned();
            (text("operation"), text("path"), text("result"))
        })
        .collect();
    let expected = [
        ("createSession", "", "ok"),
        ("create", odd, "ok"),
        ("create", odd, "NodeExists"),
        ("create", "/m", "ok"),
        ("setData", "/m", "ok"),
        ("multi", "", "NoNode"),
        ("createSession", "", "ok"),
        ("addAuth", "", "refused"),
        ("srst", "", "ok"),
    ];
    let expected = expected.map(|(operation, path, result)| {
        (operation.to_owned(), path.to_owned(), result.to_owned())
    });
    assert_eq!(summary[..expected.len()], expected);
    let rest: Vec<_> = summary[expected.len()..]
        .iter()
        .map(|one| one.0.as_str())
        .collect();
    assert!(
        rest.contains(&"expireSession") && rest.contains(&"closeSession"),
        "{rest:?}"
    );
    let create = &lines[1];
    assert_eq!(create["session"], format!("{:#x}", client.session_id()));
    let ids = create["ids"].as_array().unwrap();
    assert!(ids.contains(&"digest:alice".into()), "{ids:?}");
    assert!(
        create["address"]
            .as_str()
            .unwrap()
            .starts_with("127.0.0.1:")
    );
    assert!(create["zxid"].as_str().unwrap().starts_with("0x"));
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(
        !text.contains("sesame") && !text.contains("secret data"),
        "{text}"
    );
}

#[tokio::test]
async fn a_session_that_is_resumed_is_in_it_and_so_is_an_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let (server, path) = audited(&folder).await;
    let address = server.addresses()[0];
    let client = RawClient::connect(address).await.unwrap();
    let session = client.session_id();
    let back = client.reattach(address).await.unwrap();
    assert!(!back.is_refused());
    server.hooks().expire_session(session);
    let late = back.reattach(address).await.unwrap();
    assert!(late.is_refused());
    server.shutdown().await;
    let lines = lines(&path);
    let results = |operation: &str| -> Vec<_> {
        let lines = lines.iter();
        let lines = lines.filter(|line| line["operation"] == operation);
        let lines = lines.inspect(|line| assert_eq!(line["session"], format!("{session:#x}")));
        lines.map(|line| line["result"].clone()).collect()
    };
    assert_eq!(results("createSession"), ["ok"]);
    assert_eq!(results("resumeSession"), ["ok", "refused"]);
}

#[tokio::test]
async fn a_log_that_cannot_be_opened_stops_the_start() {
    let config = Config {
        audit_log: Some("/no/such/folder/audit.log".into()),
        ..TestServer::config()
    };
    let error = Server::start(config).await.unwrap_err();
    assert!(
        error.to_string().contains("/no/such/folder/audit.log"),
        "{error}"
    );
}

/// Refused writes take no zxid and no space in the log of transactions. Who sends them without end is found here.
#[tokio::test]
async fn writes_that_are_refused_for_a_shortage_are_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let disk = CrashDisk::new();
    for (name, free_disk, nodes_max) in [("disk", 10, 0), ("tree", 1 << 30, 1)] {
        disk.report_space(1 << 40, 1 << 30);
        let path = folder.path().join(name);
        let config = Config {
            audit_log: Some(path.clone()),
            tree_nodes_max: nodes_max,
            ..TestServer::config()
        };
        let disks = Arc::new(disk.clone());
        let builder = Server::builder().config(config).disks(disks.clone(), disks);
        let server = builder.start().await.unwrap();
        let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
        disk.report_space(1 << 40, free_disk);
        let monitor = server.monitor();
        until("growth is refused", || {
            monitor.word("srvr").contains("Refuses growth")
        })
        .await;
        refusal(&mut client, Request::create("/a", "secret data")).await;
        let multi = vec![Request::create("/b", ""), Request::create("/c", "")];
        client.call(Request::Multi(multi)).await.unwrap();
        server.shutdown().await;
        let lines = lines(&path);
        let refused: Vec<_> = lines
            .iter()
            .filter(|line| line["result"] == "QuotaExceeded")
            .collect();
        let [create, multi] = refused[..] else {
            panic!("{name}: {lines:?}");
        };
        assert_eq!(create["operation"], "create");
        assert_eq!(create["path"], "/a");
        assert_eq!(multi["operation"], "multi");
        for line in refused {
            assert_eq!(line["session"], format!("{:#x}", client.session_id()));
            assert!(line["address"].as_str().unwrap().starts_with("127.0.0.1:"));
            assert!(line.get("zxid").is_none(), "{line}");
        }
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(!text.contains("secret data"), "{text}");
    }
}

/// The figures of docs/security.md: a line for each write, and its length without the path.
#[tokio::test]
async fn each_write_has_one_line_of_the_length_that_is_documented() {
    const WRITES: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let (server, path) = audited(&folder).await;
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    let all: Vec<_> = (0..WRITES)
        .map(|number| match number % 3 {
            0 => Request::create(format!("/{number:04}"), ""),
            1 => Request::set_data("/0000", vec![b'x'; 1000]),
            _ => Request::Multi(vec![Request::set_data("/0000", ""); 2]),
        })
        .collect();
    for _ in client.send_all(&all).await.unwrap() {
        client.receive_reply().await.unwrap().ok().unwrap();
    }
    server.shutdown().await;
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| line.contains("\"path\":\"/0"))
        .collect();
    // Two for each transaction of two parts.
    assert_eq!(lines.len(), WRITES / 3 * (1 + 1 + 2));
    let bytes: usize = lines
        .iter()
        .map(|line| line.len() + 1 - "/0000".len())
        .sum();
    let average = bytes / lines.len();
    println!("{average} bytes a line");
    assert!((155..=175).contains(&average), "{average} bytes a line");
}
