//! Four-letter words, parsed as operators' tools do.

use std::collections::HashMap;
use std::net::SocketAddr;

use bellwether_server::{Config, WordList};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{RawClient, Request, TestServer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::{client_of, ok, server_and_client};

const ALL: [&str; 20] = [
    "ruok", "isro", "gtmk", "srst", "crst", "dirs", "hash", "conf", "envi", "srvr", "stat", "cons",
    "dump", "mntr", "wchs", "wchc", "wchp", "stmk", "slow", "addr",
];

async fn ask(server: &TestServer, word: &str) -> String {
    four_letter_word(server.address(), word).await.unwrap()
}

/// Lines of the form `key<separator>value`.
fn pairs<'a>(text: &'a str, separator: &str) -> HashMap<&'a str, &'a str> {
    text.lines()
        .filter_map(|line| line.split_once(separator))
        .map(|(key, value)| (key.trim(), value.trim()))
        .collect()
}

#[tokio::test]
async fn short_words_have_short_answers() {
    let server = TestServer::start().await.unwrap();
    for (word, answer) in [
        ("ruok", "imok"),
        ("isro", "rw"),
        ("gtmk", "306"),
        ("srst", "Server stats reset.\n"),
        ("crst", "Connection stats reset.\n"),
        ("ruok\n", "imok"),
        ("ruok and more", "imok"),
    ] {
        assert_eq!(ask(&server, word).await, answer);
    }
}

#[tokio::test]
async fn only_listed_words_are_answered_and_unknown_ones_are_no_words() {
    let server = TestServer::with(Config {
        words: WordList::parse("ruok, mntr").unwrap(),
        ..TestServer::config()
    })
    .await
    .unwrap();
    for word in ALL.into_iter().filter(|word| *word != "stmk") {
        let refusal = format!("{word} is not executed because it is not in the whitelist.\n");
        let listed = ["ruok", "mntr", "srvr"].contains(&word);
        assert_eq!(ask(&server, word).await != refusal, listed, "{word}");
    }
    for unknown in ["RUOK", "help", "abcd", "ruo\n"] {
        assert_eq!(ask(&server, unknown).await, "", "{unknown}");
    }
}

#[tokio::test]
async fn a_word_is_answered_to_those_who_have_said_all_they_will() {
    let server = TestServer::start().await.unwrap();
    for word in ["ruok", "mntr", "stat\n"] {
        let mut client = RawClient::open(server.address()).await.unwrap();
        client.send_bytes(word.as_bytes()).await.unwrap();
        client.shut_down_sending().await.unwrap();
        assert!(!client.receive_to_end().await.unwrap().is_empty(), "{word}");
    }
}

#[tokio::test]
async fn a_word_may_come_byte_by_byte_and_its_number_too() {
    let server = TestServer::start().await.unwrap();
    let mut client = RawClient::open(server.address()).await.unwrap();
    for byte in b"stmk\0\0\0\0\0\0\x02\x03" {
        client.send_bytes(&[*byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(client.receive_to_end().await.unwrap(), "515");
    assert_eq!(ask(&server, "gtmk").await, "515");
}

#[tokio::test]
async fn a_word_is_none_once_a_session_was_asked_for() {
    let (_server, mut client) = server_and_client().await;
    client.send_bytes(b"ruok").await.unwrap();
    client.closed().await.unwrap();
}

/// kazoo reads once, up to 8192 bytes, and takes the result for the whole answer.
#[tokio::test]
async fn every_answer_comes_in_one_piece() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::get_data("/").watching()).await;
    for word in ALL {
        let mut first = vec![0; 8192];
        let mut socket = TcpStream::connect(server.address()).await.unwrap();
        socket.write_all(word.as_bytes()).await.unwrap();
        if word == "stmk" {
            socket.write_all(&[0; 8]).await.unwrap();
        }
        let read = socket.read(&mut first).await.unwrap();
        let mut rest = Vec::new();
        socket.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"", "{word}: behind the first {read} bytes");
    }
}

#[tokio::test]
async fn mntr_is_a_key_a_tab_and_a_value_on_every_line() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::create_ephemeral("/a")).await;
    ok(&mut client, Request::get_data("/a").watching()).await;
    let text = ask(&server, "mntr").await;
    for line in text.lines() {
        let fields: Vec<_> = line.split('\t').collect();
        let [key, value] = fields[..] else {
            panic!("{line:?}");
        };
        assert!(key.starts_with("zk_") && !value.is_empty(), "{line:?}");
        if !["zk_version", "zk_server_state"].contains(&key) {
            assert!(value.parse::<f64>().is_ok(), "{line:?}");
        }
    }
    let keys: Vec<_> = text.lines().filter_map(|l| l.split('\t').next()).collect();
    assert_eq!(keys[..2], ["zk_version", "zk_server_state"]);
    let values = pairs(&text, "\t");
    for (key, value) in [
        ("zk_server_state", "standalone"),
        ("zk_num_alive_connections", "2"),
        ("zk_global_sessions", "1"),
        ("zk_znode_count", "6"),
        ("zk_ephemerals_count", "1"),
        ("zk_watch_count", "1"),
        ("zk_outstanding_requests", "0"),
        ("zk_outstanding_request_bytes", "0"),
        ("zk_input_bytes", "0"),
        ("zk_limits_reached", "0"),
        ("zk_outbox_bytes", "0"),
        ("zk_watch_bytes", "2"),
    ] {
        assert_eq!(values[key], value, "{key}");
    }
    for key in [
        "zk_avg_latency",
        "zk_max_latency",
        "zk_min_latency",
        "zk_packets_received",
        "zk_packets_sent",
        "zk_approximate_data_size",
        "zk_open_file_descriptor_count",
        "zk_max_file_descriptor_count",
        "zk_uptime",
    ] {
        assert!(values.contains_key(key), "{key}");
    }
}

/// zktop parses the answer like this.
#[tokio::test]
async fn stat_can_be_taken_apart() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    let text = ask(&server, "stat").await;
    let mut lines = text.lines();
    let version = lines.next().unwrap();
    let number = version.strip_prefix("Zookeeper version: ").unwrap();
    let (number, _) = number.split_once('-').unwrap();
    assert_eq!(number.split('.').count(), 3, "{version}");
    assert!(number.split('.').all(|part| part.parse::<u32>().is_ok()));
    assert_eq!(lines.next(), Some("Clients:"));
    let clients: Vec<_> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
    assert_eq!(clients.len(), 2, "{text}");
    let own = client.local_address().unwrap().to_string();
    assert!(
        clients
            .iter()
            .any(|line| line.starts_with(&format!(" /{own}[1](queued=0,recved=")))
    );
    for line in clients {
        let (address, rest) = line.trim().split_once('[').unwrap();
        address[1..].parse::<SocketAddr>().unwrap();
        let (interest, fields) = rest.split_once("](").unwrap();
        interest.parse::<u32>().unwrap();
        let fields = fields.strip_suffix(')').unwrap();
        assert!(fields.split(',').all(|field| field.contains('=')), "{line}");
    }
    let rest: Vec<_> = lines.collect();
    assert!(
        rest.iter().all(|line| line.matches(':').count() == 1),
        "{text}"
    );
    let values: HashMap<_, _> = rest
        .iter()
        .map(|line| line.split_once(": ").unwrap())
        .collect();
    assert_eq!(values["Latency min/avg/max"].split('/').count(), 3);
    assert_eq!(values["Mode"], "standalone");
    assert_eq!(values["Node count"], "6");
    assert_eq!(values["Zxid"], format!("{:#x}", client.last_zxid()));
    for key in ["Received", "Sent", "Connections", "Outstanding"] {
        values[key].parse::<u64>().unwrap();
    }
}

#[tokio::test]
async fn srvr_is_stat_without_the_clients() {
    let server = TestServer::start().await.unwrap();
    let text = ask(&server, "srvr").await;
    let keys: Vec<_> = text
        .lines()
        .filter_map(|line| line.split(':').next())
        .collect();
    assert_eq!(
        keys,
        [
            "Zookeeper version",
            "Latency min/avg/max",
            "Received",
            "Sent",
            "Connections",
            "Outstanding",
            "Zxid",
            "Mode",
            "Node count"
        ]
    );
}

#[tokio::test]
async fn cons_tells_the_last_thing_that_each_client_did() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::set_data("/", "x")).await;
    let text = ask(&server, "cons").await;
    let own = format!(" /{}[1](", client.local_address().unwrap());
    let line = text.lines().find(|line| line.starts_with(&own)).unwrap();
    for part in [
        format!("sid={:#x},", client.session_id()),
        "lop=SETD,".into(),
        "to=30000,".into(),
        "lcxid=0x1,".into(),
        format!("lzxid={:#x},", client.last_zxid()),
    ] {
        assert!(line.contains(&part), "{part} in {line}");
    }
    assert!(text.ends_with("\n\n"));
}

#[tokio::test]
async fn the_watch_words_tell_who_watches_what() {
    let (server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "")).await;
    for path in ["/", "/a"] {
        ok(&mut client, Request::get_data(path).watching()).await;
    }
    let sid = format!("{:#x}", client.session_id());
    let summary = ask(&server, "wchs").await;
    assert_eq!(summary, "1 connections watching 2 paths\nTotal watches:2\n");
    let by_session = ask(&server, "wchc").await;
    let mut paths: Vec<_> = by_session.lines().skip(1).collect();
    paths.sort_unstable();
    assert_eq!(paths, ["", "\t/", "\t/a"]);
    assert!(by_session.starts_with(&format!("{sid}\n")));
    let by_path = ask(&server, "wchp").await;
    assert_eq!(by_path, format!("/\n\t{sid}\n/a\n\t{sid}\n\n"));
}

#[tokio::test]
async fn envi_and_conf_say_what_clients_look_for() {
    let server = TestServer::start().await.unwrap();
    let environment = ask(&server, "envi").await;
    assert!(environment.starts_with("Environment:\n"));
    let version = pairs(&environment, "=")["zookeeper.version"].to_owned();
    let digits = version.split(['.', '-']).take(3);
    assert!(
        digits.clone().all(|part| part.parse::<u32>().is_ok()),
        "{version}"
    );
    let configuration = ask(&server, "conf").await;
    let values = pairs(&configuration, "=");
    assert_eq!(values["clientPort"], server.address().port().to_string());
    assert_eq!(values["tickTime"], "200");
    assert_eq!(values["minSessionTimeout"], "400");
    assert_eq!(values["maxSessionTimeout"], "60000");
}

#[tokio::test]
async fn counters_start_again_when_they_are_reset() {
    let (server, mut client) = server_and_client().await;
    for _ in 0..20 {
        ok(&mut client, Request::Ping).await;
    }
    let received = |text: &str| pairs(text, ":")["Received"].parse::<u64>().unwrap();
    assert!(received(&ask(&server, "srvr").await) > 20);
    ask(&server, "srst").await;
    assert!(received(&ask(&server, "srvr").await) < 5);
    ask(&server, "crst").await;
    let own = format!("/{}[1](queued=0,recved=0,", client.local_address().unwrap());
    assert!(ask(&server, "cons").await.contains(&own));
}

#[tokio::test]
async fn words_do_not_need_a_session_and_leave_none() {
    let server = TestServer::start().await.unwrap();
    for word in ALL.into_iter().filter(|word| *word != "stmk") {
        ask(&server, word).await;
    }
    assert_eq!(server.session_count().unwrap(), 0);
    ok(&mut client_of(&server).await, Request::Ping).await;
}
