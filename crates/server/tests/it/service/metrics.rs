//! Metrics: what is counted, that Prometheus can parse it, and that docs, graphs and alerts name existing metrics.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use bellwether_server::{Config, Server};
use bellwether_testkit::{RawClient, Request};

use crate::{ok, until};

/// Every sample by its name and labels.
fn samples(text: &str) -> BTreeMap<&str, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name, value.parse().unwrap())
        })
        .collect()
}

/// Names of all metrics, from their headers.
fn names(text: &str) -> BTreeSet<&str> {
    let heads = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    heads.map(|head| head.split(' ').next().unwrap()).collect()
}

async fn server_on_disk(folder: &tempfile::TempDir) -> Server {
    let config = Config {
        connections_per_address_max: 2,
        data_dir: Some(folder.path().to_owned()),
        ..Config::default()
    };
    Server::start(config).await.unwrap()
}

#[tokio::test]
async fn counts_are_those_of_the_traffic_and_histograms_add_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_on_disk(&folder).await;
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    for number in 0..7 {
        ok(&mut client, Request::create(format!("/n{number}"), "xyz")).await;
    }
    assert!(
        client
            .call(Request::create("/n0", ""))
            .await
            .unwrap()
            .ok()
            .is_err()
    );
    for _ in 0..5 {
        ok(&mut client, Request::get_data("/n1")).await;
    }
    for _ in 0..2 {
        assert!(
            client
                .call(Request::get_data("/none"))
                .await
                .unwrap()
                .ok()
                .is_err()
        );
    }
    // The second connection from this address is the last one accepted.
    let _second = RawClient::connect(server.addresses()[0]).await.unwrap();
    assert!(RawClient::connect(server.addresses()[0]).await.is_err());
    let monitor = server.monitor();
    until("the third connection is refused", || {
        samples(&monitor.metrics())[r#"bellwether_connections_refused_total{reason="too_many_from_address"}"#] == 1.0
    })
    .await;

    let text = monitor.metrics();
    let samples = samples(&text);
    let requests = |operation: &str, outcome: &str| {
        samples[format!(
            r#"bellwether_requests_total{{operation="{operation}",outcome="{outcome}"}}"#
        )
        .as_str()]
    };
    assert_eq!(requests("create", "ok"), 7.0);
    assert_eq!(requests("create", "error"), 1.0);
    assert_eq!(requests("getData", "ok"), 5.0);
    assert_eq!(requests("getData", "error"), 2.0);
    assert_eq!(
        samples[r#"bellwether_request_duration_seconds_count{kind="read"}"#],
        7.0
    );
    assert_eq!(
        samples[r#"bellwether_request_duration_seconds_count{kind="write"}"#],
        8.0
    );
    // Eight writes and two new sessions, each of which arrived alone.
    assert_eq!(samples["bellwether_transactions_total"], 10.0);
    assert_eq!(samples["bellwether_commit_transactions_sum"], 10.0);
    assert_eq!(
        samples["bellwether_fsync_duration_seconds_count"],
        samples["bellwether_commit_transactions_count"]
    );
    assert_eq!(samples["bellwether_sessions"], 2.0);
    assert_eq!(samples["bellwether_connections"], 2.0);
    assert_histograms_add_up(&text);
    server.shutdown().await;
}

/// Buckets are cumulative: none has less than the one before, and the last has as many as the count says. The sum fits the buckets.
fn assert_histograms_add_up(text: &str) {
    let samples = samples(text);
    let mut series = BTreeMap::<(&str, &str), Vec<(f64, f64)>>::new();
    for line in text.lines() {
        // `le` is the last label.
        if let Some((name, rest)) = line.split_once("_bucket{")
            && let Some((labels, bound)) = rest.split_once("le=\"")
            && let Some((bound, value)) = bound.split_once("\"} ")
        {
            let bucket = (bound.parse().unwrap(), value.parse().unwrap());
            let labels = labels.trim_end_matches(',');
            series.entry((name, labels)).or_default().push(bucket);
        }
    }
    assert!(series.len() >= 5, "{series:?}");
    for ((name, labels), buckets) in series {
        let total = |end: &str| match labels {
            "" => samples[format!("{name}_{end}").as_str()],
            labels => samples[format!("{name}_{end}{{{labels}}}").as_str()],
        };
        let rising = buckets
            .windows(2)
            .all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1);
        assert!(rising, "{name}{{{labels}}}: {buckets:?}");
        let last = buckets.last().unwrap();
        assert_eq!(*last, (f64::INFINITY, total("count")), "{name}{{{labels}}}");
        let (mut below, mut lower, mut least, mut most) = (0.0, 0.0, 0.0, 0.0);
        for (bound, count) in buckets {
            least += lower * (count - below);
            // Nothing is known of values above the last bound.
            most += if count > below {
                bound * (count - below)
            } else {
                0.0
            };
            (below, lower) = (count, bound);
        }
        let sum = total("sum");
        assert!(
            least <= sum && sum <= most,
            "{name}{{{labels}}}: {sum} is not within {least} and {most}"
        );
    }
}

#[tokio::test]
async fn promtool_finds_nothing_wrong_with_metrics_and_alert_rules() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_on_disk(&folder).await;
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    ok(&mut client, Request::create("/a", "")).await;
    let text = server.monitor().metrics();
    promtool(&["check", "metrics"], &text);
    let rules = monitoring().join("alerts.yml");
    promtool(&["check", "rules", rules.to_str().unwrap()], "");
    server.shutdown().await;
}

fn promtool(arguments: &[&str], input: &str) {
    let mut promtool = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is missing; ./test installs it");
    promtool
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = promtool.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
}

fn docs() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn monitoring() -> PathBuf {
    docs().join("monitoring")
}

/// All words in a text that may be names of our metrics, without the suffixes of histograms.
fn mentioned(text: &str) -> BTreeSet<String> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = text.split(|letter| !is_name(letter));
    let ours = words.filter(|word| word.starts_with("bellwether_") || word.starts_with("process_"));
    ours.map(|word| {
        let ends = ["_bucket", "_sum", "_count"];
        let base = ends.iter().find_map(|end| word.strip_suffix(end));
        base.unwrap_or(word).to_owned()
    })
    .collect()
}

#[tokio::test]
async fn documents_graphs_and_alerts_name_the_metrics_that_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let server = server_on_disk(&folder).await;
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    ok(&mut client, Request::create("/a", "")).await;
    let text = server.monitor().metrics();
    let mut there: BTreeSet<_> = names(&text).into_iter().map(str::to_owned).collect();
    // It appears once there is a snapshot.
    there.insert("bellwether_snapshot_last_timestamp_seconds".to_owned());
    let library = docs().join("../crates/bellwether/src/session/telemetry.rs");
    let source = fs::read_to_string(library).unwrap();
    // Names of metrics stand in quotes, names of crates do not.
    there.extend(source.split('"').skip(1).step_by(2).flat_map(mentioned));
    let page = fs::read_to_string(docs().join("metrics.md")).unwrap();
    let documented = mentioned(&page);
    assert_eq!(
        documented, there,
        "left: docs/metrics.md, right: what there is"
    );
    for file in ["grafana.json", "alerts.yml"] {
        let text = fs::read_to_string(monitoring().join(file)).unwrap();
        let missing: Vec<_> = mentioned(&text).difference(&there).cloned().collect();
        assert!(missing.is_empty(), "{file} names {missing:?}");
    }
    server.shutdown().await;
}

#[tokio::test]
async fn each_address_has_its_figures_also_when_its_connections_have_ended() {
    let server = Server::start(Config::default()).await.unwrap();
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    for _ in 0..5 {
        ok(&mut client, Request::get_data("/")).await;
    }
    let of_loopback = |figure: &str| {
        let text = server.monitor().metrics();
        let name = format!("bellwether_address_{figure}{{address=\"127.0.0.1\"}}");
        samples(&text).get(name.as_str()).copied()
    };
    assert_eq!(of_loopback("requests_total"), Some(5.0));
    assert_eq!(of_loopback("connections"), Some(1.0));
    let received = of_loopback("received_bytes_total").unwrap();
    let sent = of_loopback("sent_bytes_total").unwrap();
    assert!(
        received >= 5.0 * 12.0 && sent > received,
        "{received} {sent}"
    );
    drop(client);
    until("the connection has ended", || server.connections() == 0).await;
    assert_eq!(of_loopback("requests_total"), Some(5.0));
    assert_eq!(of_loopback("connections"), Some(0.0));
    server.shutdown().await;
}
