//! The slow-request log: what is counted and remembered. With the lowest threshold, every request is slow.

use std::time::Duration;

use bellwether_server::{Config, Server};
use bellwether_testkit::{RawClient, Request, TestServer};

use crate::{ok, until};

fn config(slow_request: Duration) -> Config {
    Config {
        slow_request,
        ..TestServer::config()
    }
}

/// The `name=value` parts of a line, without the values that differ from run to run.
fn told(line: &str) -> (Vec<&str>, Vec<&str>) {
    let parts: Vec<_> = line.split(' ').collect();
    let names = parts.iter().map(|part| part.split('=').next().unwrap());
    let fixed = |part: &&str| part.starts_with("operation=") || part.starts_with("path=");
    let fixed = parts.iter().copied().filter(fixed);
    (names.collect(), fixed.collect())
}

#[tokio::test]
async fn slow_requests_are_counted_and_shown_with_their_stages() {
    let server = Server::start(config(Duration::from_nanos(1)))
        .await
        .unwrap();
    let monitor = server.monitor();
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    ok(&mut client, Request::create("/a", "secret")).await;
    let parts = vec![
        Request::create("/b", ""),
        Request::create("/c", vec![b'x'; 100_000]),
    ];
    ok(&mut client, Request::Multi(parts)).await;
    ok(&mut client, Request::get_data("/b")).await;
    // Too long to be computed under the lock.
    ok(&mut client, Request::get_data("/c")).await;
    // Parked behind a write.
    let both = [Request::set_data("/a", ""), Request::get_children("/")];
    for _ in client.send_all(&both).await.unwrap() {
        client.receive_reply().await.unwrap().ok().unwrap();
    }
    until("all are reported", || {
        monitor.word("slow").lines().count() == 6
    })
    .await;
    let slow = monitor.word("slow");
    assert!(!slow.contains("secret"), "{slow}");
    let mut lines: Vec<_> = slow.lines().map(told).collect();
    // Those of different threads may be reported in another order than they were answered in.
    lines.sort_by(|one, other| one.1.cmp(&other.1));
    let write = "time_ms operation path bytes session address took_ms queued_ms writer_ms log_ms fsync_ms publish_ms reply_ms";
    let read = "time_ms operation path bytes session address took_ms queued_ms read_ms reply_ms";
    let expected = [
        (write, ["operation=create", "path=\"/a\""]),
        (read, ["operation=getChildren", "path=\"/\""]),
        (read, ["operation=getData", "path=\"/b\""]),
        (read, ["operation=getData", "path=\"/c\""]),
        (write, ["operation=multi", "path=\"/b\""]),
        (write, ["operation=setData", "path=\"/a\""]),
    ];
    let expected = expected.map(|(names, fixed)| (names.split(' ').collect(), fixed.to_vec()));
    assert_eq!(lines, expected, "{slow}");
    assert!(monitor.word("mntr").contains("zk_slow_requests\t6\n"));
    let metrics = monitor.metrics();
    for (operation, count) in [("create", 1), ("getData", 2), ("multi", 1)] {
        let sample =
            format!("bellwether_slow_requests_total{{operation=\"{operation}\"}} {count}\n");
        assert!(metrics.contains(&sample), "{metrics}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn a_reload_changes_the_threshold_and_zero_switches_it_off() {
    let server = Server::start(config(Duration::ZERO)).await.unwrap();
    let monitor = server.monitor();
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    ok(&mut client, Request::create("/off", "")).await;
    let reloaded = server.reload(config(Duration::from_nanos(1))).unwrap();
    assert_eq!(reloaded.applied, ["bellwether.slowRequestMs"]);
    ok(&mut client, Request::create("/on", "")).await;
    until("it is reported", || !monitor.word("slow").is_empty()).await;
    server.reload(config(Duration::ZERO)).unwrap();
    ok(&mut client, Request::create("/off-again", "")).await;
    // A later write is published after the one before was reported.
    ok(&mut client, Request::delete("/off")).await;
    let slow = monitor.word("slow");
    assert!(
        slow.contains("path=\"/on\"") && slow.lines().count() == 1,
        "{slow}"
    );
    server.shutdown().await;
}
