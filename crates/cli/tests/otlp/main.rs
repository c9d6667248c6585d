//! Spans of the command at an OpenTelemetry collector. These need the feature `otlp`, so they are a target of their own.

#![allow(
    clippy::unwrap_used,
    reason = "a test fails by panicking, and says why"
)]

mod collector;
mod command;
mod protobuf;
mod tls;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::collector::Collector;
use crate::command::Home;

/// A trace context as another program would set it.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

#[test]
fn spans_of_a_job_reach_the_collector() {
    let (home, collector) = (Home::new(), Collector::start());
    let output = home
        .bellwether(&[
            "lock",
            "demo",
            "--",
            "sh",
            "-c",
            "echo $BELLWETHER_TOKEN $TRACEPARENT",
        ])
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address())
        .env("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=night")
        .env("OTEL_RESOURCE_ATTRIBUTES", "deployment=test")
        .env("OTEL_SERVICE_NAME", "nightly")
        .env("TRACEPARENT", format!("00-{TRACE}-{PARENT}-01"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (token, trace_parent) = said.trim().split_once(' ').unwrap();

    let received = collector.received();
    assert_eq!(received.tenant.as_deref(), Some("night"));
    let resource = &received.resource;
    assert_eq!(resource["service.name"], "nightly");
    assert_eq!(resource["deployment"], "test");
    assert!(!resource["host.name"].is_empty());

    assert_eq!(
        received.names(),
        [
            "bellwether lock",
            "hold.release",
            "job",
            "line.turn",
            "lock.join"
        ]
    );
    let command = received.span("bellwether lock");
    assert_eq!(command.parent, PARENT);
    assert_eq!(command.attributes["process.exit.code"], "0");
    for name in ["lock.join", "line.turn", "job", "hold.release"] {
        let span = received.span(name);
        assert_eq!((&*span.trace, &span.parent), (TRACE, &command.id), "{name}");
        assert!(span.start >= command.start && span.end <= command.end);
        assert!(!span.is_error, "{name}");
    }
    for (name, outcome) in [("line.turn", "held"), ("hold.release", "done")] {
        let attributes = &received.span(name).attributes;
        assert_eq!(attributes["path"], "/demo");
        assert_eq!(attributes["token"], token, "{name}");
        assert_eq!(attributes["outcome"], outcome, "{name}");
    }
    let job = received.span("job");
    assert_eq!(job.attributes["program"], "sh");
    assert_eq!(job.attributes["outcome"], "exited with 0");
    // What the job sends belongs below its span.
    assert_eq!(trace_parent, format!("00-{TRACE}-{}-01", job.id));
}

#[test]
fn spans_are_sent_when_a_signal_ends_the_command() {
    for arguments in [
        &[
            "lock",
            "demo",
            "--",
            "sh",
            "-c",
            "echo held; exec sleep 600",
        ][..],
        &["lock", "demo", "--hold"],
    ] {
        let (home, collector) = (Home::new(), Collector::start());
        let mut command = home.bellwether(arguments);
        let mut running = command
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(running.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let process = Pid::from_raw(running.id().cast_signed());
        kill(process, Signal::SIGTERM).unwrap();
        let code = running.wait().unwrap().code().unwrap();

        let received = collector.received();
        let command = received.span("bellwether lock");
        assert_eq!(command.attributes["process.exit.code"], code.to_string());
        assert_eq!(command.is_error, code != 0, "{arguments:?}");
        assert_eq!(received.span("line.turn").attributes["outcome"], "held");
    }
}

#[test]
fn failed_call_is_an_error_at_the_collector() {
    let (home, collector) = (Home::new(), Collector::start());
    let created = home.bellwether(&["create", "/count", "many"]).status();
    assert!(created.unwrap().success());
    let output = home
        .bellwether(&["counter", "get", "/count"])
        .env("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", collector.traces())
        .output()
        .unwrap();
    assert!(!output.status.success(), "{output:?}");
    let received = collector.received();
    assert_eq!(received.resource["service.name"], "bellwether");
    let failed = received.span("counter.get");
    assert_eq!(failed.parent, received.span("bellwether counter get").id);
    assert_eq!(failed.attributes["outcome"], "failed");
    assert!(failed.is_error);
}

#[test]
fn each_item_of_a_worker_is_a_trace() {
    let (home, collector) = (Home::new(), Collector::start());
    for item in ["a", "b"] {
        let put = home.bellwether(&["queue", "put", "/work", item]).status();
        assert!(put.unwrap().success());
    }
    let work = ["queue", "work", "/work", "--idle", "0s", "--", "true"];
    let output = home
        .bellwether(&work)
        .env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let received = collector.received();
    let attempts = received.spans.iter().filter(|span| span.name == "attempt");
    let attempts: Vec<_> = attempts.collect();
    assert_eq!(attempts.len(), 2);
    assert_ne!(attempts[0].trace, attempts[1].trace);
    for attempt in attempts {
        assert_eq!(attempt.attributes["path"], "/work");
        let below = received
            .spans
            .iter()
            .filter(|span| span.parent == attempt.id);
        let mut below: Vec<_> = below.map(|span| &*span.name).collect();
        below.sort_unstable();
        assert_eq!(below, ["job", "queue.ack"]);
    }
}

/// The session lives on while the collector hangs, and the end waits for it no longer than a second.
#[test]
fn collector_that_never_answers_costs_no_lock_and_no_exit_code() {
    // The system accepts connections for it.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let home = Home::new();
    let script = "for second in 1 2 3 4 5 6; do sleep 1; done; date +%s%N; exit 7";
    let arguments = ["lock", "demo", "--session-timeout", "2s", "--", "sh", "-c"];
    let output = home
        .bellwether(&arguments)
        .arg(script)
        .env(
            "OTEL_EXPORTER_OTLP_ENDPOINT",
            format!("http://{}", silent.local_addr().unwrap()),
        )
        // It hangs from the first moment.
        .env("OTEL_BSP_SCHEDULE_DELAY", "10")
        .env("OTEL_EXPORTER_OTLP_TIMEOUT", "600000")
        .output()
        .unwrap();
    let now = std::time::SystemTime::now();
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    let ended: u64 = String::from_utf8(output.stdout)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let took = now - Duration::from_nanos(ended);
    // Nothing else ends it before ten minutes have passed.
    assert!(took < Duration::from_secs(20), "{took:?}");
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("bellwether: traces were not sent: no answer within 1s\n"),
        "{errors}"
    );
}

#[test]
fn absent_collector_is_a_notice() {
    let absent = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let home = Home::new();
    let lock = |quiet: &[&str]| {
        let start = Instant::now();
        let output = home
            .bellwether(quiet)
            .args(["lock", "demo", "--", "true"])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://{absent}"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(start.elapsed() < Duration::from_secs(20));
        String::from_utf8(output.stderr).unwrap()
    };
    let errors = lock(&[]);
    let notices = errors.lines().filter(|line| line.contains("traces"));
    let notices: Vec<_> = notices.collect();
    assert_eq!(notices.len(), 1, "{errors}");
    assert!(notices[0].contains("refused"), "{errors}");
    assert_eq!(lock(&["--quiet"]), "");
}

#[test]
fn unusable_settings_are_a_notice() {
    let home = Home::new();
    for (name, value) in [
        ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
        ("OTEL_EXPORTER_OTLP_TIMEOUT", "10s"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "no address"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent"),
    ] {
        let output = home
            .bellwether(&["lock", "demo", "--", "true"])
            .env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
            .env(name, value)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let errors = String::from_utf8(output.stderr).unwrap();
        assert!(
            errors.contains("traces are not exported: "),
            "{name}: {errors}"
        );
    }
}

#[test]
fn nothing_is_exported_unless_a_collector_is_named() {
    let home = Home::new();
    let script = "ls /proc/$PPID/task | wc -l; echo ${TRACEPARENT-none}";
    let threads = |variables: &[(&str, &str)]| {
        let output = home
            .bellwether(&["lock", "demo", "--", "sh", "-c", script])
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9");
    let without = threads(&[]);
    assert!(without.ends_with("\nnone\n"));
    assert_eq!(threads(&[endpoint, ("OTEL_SDK_DISABLED", "true")]), without);
    assert_eq!(
        threads(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]),
        without
    );
    assert_ne!(threads(&[endpoint]), without);
}
