//! The audit log: what is in it, and what never is.

use std::path::Path;

use bellwether_server::{Config, Server};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{RawClient, Request, TestServer};
use serde_json::Value;

use crate::{ok, refusal, until};

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[tokio::test]
async fn writes_sessions_failures_and_changes_by_words_are_in_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.log");
    let config = Config {
        audit_log: Some(path.clone()),
        ..TestServer::config()
    };
    let server = Server::start(config).await.unwrap();
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
    let path = folder.path().join("audit.log");
    let config = Config {
        audit_log: Some(path.clone()),
        ..TestServer::config()
    };
    let server = Server::start(config).await.unwrap();
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
