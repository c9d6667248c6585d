//! Many sessions in one process.

use std::fs;

use bellwether_client::Client;
use bellwether_testkit::Apache;
use futures_util::future::try_join_all;

const SESSIONS: usize = 10_000;
const AT_ONCE: usize = 250;

fn status(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap();
    let number = value.trim_start_matches(':').split_whitespace().next();
    number.unwrap().parse().unwrap()
}

#[tokio::test]
#[ignore = "opens 10,000 connections, for figures: needs as many descriptors here and in the server"]
async fn ten_thousand_sessions_in_one_process() {
    let server = Apache::start().await.unwrap();
    let servers = server.connect_string();
    let warm = Client::connect(&servers).await.unwrap();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = (status("VmRSS"), status("Threads"), descriptors());
    let mut clients = Vec::new();
    while clients.len() < SESSIONS {
        let opening = (0..AT_ONCE).map(|_| {
            let connect = Client::connect(&servers);
            connect
                .session_timeout(std::time::Duration::from_secs(60))
                .into_future()
        });
        clients.extend(try_join_all(opening).await.unwrap());
    }
    let replies = clients.iter().map(|client| client.exists("/"));
    assert!(
        try_join_all(replies)
            .await
            .unwrap()
            .iter()
            .all(Option::is_some)
    );
    let after = (status("VmRSS"), status("Threads"), descriptors());
    eprintln!(
        "{SESSIONS} sessions: {} KiB more memory ({} bytes each), {} more threads, {} more descriptors",
        after.0 - before.0,
        (after.0 - before.0) * 1024 / SESSIONS as u64,
        after.1 - before.1,
        after.2 - before.2,
    );
    assert_eq!(after.1, before.1, "one thread carries all sessions");
    assert!(after.2 - before.2 <= SESSIONS, "one descriptor each");
    warm.exists("/").await.unwrap();
}
