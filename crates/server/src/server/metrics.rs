//! All metrics of a server in the Prometheus text format.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use crate::client::Usage;
use crate::engine::Engine;
use crate::four_letter::VERSION;
use crate::metrics::{DataFiles, Exposition, add_process, disk};

/// Microseconds per second: durations are measured in microseconds.
const SECOND: f64 = 1e6;

/// Returns the current metrics.
pub(crate) fn text(engine: &Engine) -> String {
    let mut to = Exposition::default();
    build(&mut to, engine);
    requests(&mut to, engine);
    commits(&mut to, engine);
    clients(&mut to, engine);
    addresses(&mut to, engine);
    defences(&mut to, engine);
    tree(&mut to, engine);
    files(&mut to, engine);
    add_process(&mut to);
    to.into_text()
}

fn build(to: &mut Exposition, engine: &Engine) {
    to.head(
        "bellwether_build_info",
        "gauge",
        "Always 1; the label says which version runs.",
    );
    let version = VERSION.split(',').next().unwrap_or(VERSION);
    to.sample("bellwether_build_info", &[("version", version)], 1);
    let uptime = engine.clock.now_ms() as f64 / 1000.0;
    to.gauge(
        "bellwether_uptime_seconds",
        "Time since the server started.",
        uptime,
    );
}

fn requests(to: &mut Exposition, engine: &Engine) {
    let (stats, meters) = (&engine.stats, &engine.stats.meters);
    let name = "bellwether_requests_total";
    to.head(
        name,
        "counter",
        "Answered requests by operation and outcome; error means that the answer was a code.",
    );
    for (operation, outcome, count) in meters.requests() {
        to.sample(
            name,
            &[("operation", &operation), ("outcome", outcome)],
            count,
        );
    }
    let name = "bellwether_request_duration_seconds";
    to.head(
        name,
        "histogram",
        "Time from the arrival of a request to its answer, for reads and for writes.",
    );
    to.histogram(name, &[("kind", "read")], SECOND, &meters.read_time);
    to.histogram(name, &[("kind", "write")], SECOND, &meters.write_time);
    let name = "bellwether_slow_requests_total";
    to.head(
        name,
        "counter",
        "Requests that took longer than the threshold of the slow-request log, by operation.",
    );
    for (operation, count) in meters.slow_requests() {
        to.sample(name, &[("operation", &operation)], count);
    }
    let waiting = stats.outstanding.load(Relaxed);
    to.gauge(
        "bellwether_requests_outstanding",
        "Requests that wait for the disk, or to be computed.",
        waiting,
    );
    let bytes = stats.outstanding_bytes.load(Relaxed);
    to.gauge(
        "bellwether_requests_outstanding_bytes",
        "Bytes of the requests that wait for the disk, or to be computed.",
        bytes,
    );
    let received = meters.received_bytes.load(Relaxed);
    to.counter(
        "bellwether_received_bytes_total",
        "Bytes of all requests.",
        received,
    );
    let sent = engine.connections.sent_bytes();
    to.counter(
        "bellwether_sent_bytes_total",
        "Bytes of all answers and events.",
        sent,
    );
}

fn commits(to: &mut Exposition, engine: &Engine) {
    let (stats, meters) = (&engine.stats, &engine.stats.meters);
    let name = "bellwether_fsync_duration_seconds";
    to.head(
        name,
        "histogram",
        "Time to write one batch of transactions to the log and fsync it.",
    );
    to.histogram(name, &[], SECOND, &meters.sync_time);
    let name = "bellwether_commit_duration_seconds";
    to.head(
        name,
        "histogram",
        "Time to fsync one batch of transactions and make it visible.",
    );
    to.histogram(name, &[], SECOND, &meters.commit_time);
    let name = "bellwether_commit_transactions";
    to.head(
        name,
        "histogram",
        "Transactions that shared one fsync (group commit).",
    );
    to.histogram(name, &[], 1.0, &meters.commit_txns);
    let commits = stats.commits.load(Relaxed);
    to.counter(
        "bellwether_transactions_total",
        "Transactions that were committed, failed ones included.",
        commits,
    );
}

fn clients(to: &mut Exposition, engine: &Engine) {
    let stats = &engine.stats;
    to.gauge(
        "bellwether_connections",
        "Open connections.",
        engine.connections.len(),
    );
    to.gauge(
        "bellwether_connections_max",
        "Maximum number of connections.",
        engine.connections.max(),
    );
    let name = "bellwether_connections_refused_total";
    to.head(name, "counter", "Connections that were refused, by reason.");
    for (reason, count) in stats.meters.refused() {
        to.sample(name, &[("reason", reason)], count);
    }
    let handshakes = stats.tls_handshakes_failed.load(Relaxed);
    let help = "TLS connections whose handshake failed or timed out.";
    to.counter("bellwether_tls_handshakes_failed_total", help, handshakes);
    let failures = stats.auth_failures.load(Relaxed);
    to.counter(
        "bellwether_auth_failures_total",
        "Credentials that were refused.",
        failures,
    );
    to.gauge(
        "bellwether_sessions",
        "Open sessions.",
        engine.sessions.len(),
    );
    to.gauge(
        "bellwether_sessions_computable",
        "Open sessions whose passwords any client can compute.",
        engine.sessions.computable_len(),
    );
    let expired = stats.sessions_expired.load(Relaxed);
    to.counter(
        "bellwether_sessions_expired_total",
        "Sessions whose client was silent for its timeout.",
        expired,
    );
    let name = "bellwether_limits_reached_total";
    to.head(
        name,
        "counter",
        "How often clients reached a limit, by limit.",
    );
    for (limit, count) in stats.meters.reached() {
        to.sample(name, &[("limit", limit)], count);
    }
    to.gauge(
        "bellwether_input_bytes",
        "Bytes of long requests that have not arrived completely.",
        engine.connections.input_bytes(),
    );
    to.gauge(
        "bellwether_outbox_bytes",
        "Bytes that wait for clients to read.",
        engine.connections.outbox_bytes(),
    );
    to.gauge(
        "bellwether_watches",
        "Armed watches; a persistent one counts twice.",
        engine.published.watch_count(),
    );
    to.gauge(
        "bellwether_watch_path_bytes",
        "Bytes of the paths that are watched.",
        engine.published.watch_bytes(),
    );
}

/// One of the figures of an address.
type Figure = fn(&Usage) -> u64;

/// The addresses with most requests.
fn addresses(to: &mut Exposition, engine: &Engine) {
    let top = engine.connections.top_addresses();
    let figures: [(&str, &str, &str, Figure); 4] = [
        (
            "bellwether_address_requests_total",
            "counter",
            "Requests of the 20 client addresses with most requests.",
            |usage| usage.requests,
        ),
        (
            "bellwether_address_received_bytes_total",
            "counter",
            "Bytes of the requests of these addresses.",
            |usage| usage.received_bytes,
        ),
        (
            "bellwether_address_sent_bytes_total",
            "counter",
            "Bytes of all answers and events for these addresses.",
            |usage| usage.sent_bytes,
        ),
        (
            "bellwether_address_connections",
            "gauge",
            "Open connections of these addresses.",
            |usage| usage.connections,
        ),
    ];
    for (name, kind, help, figure) in figures {
        to.head(name, kind, help);
        for (origin, usage) in &top {
            to.sample(name, &[("address", &origin.to_string())], figure(usage));
        }
    }
}

fn defences(to: &mut Exposition, engine: &Engine) {
    let meters = &engine.stats.meters;
    let flag = |is_set: &AtomicBool| u8::from(is_set.load(Relaxed));
    to.gauge(
        "bellwether_priorities_not_lowered",
        "1 if threads for new connections and long reads could not lower their priority.",
        flag(&meters.keeps_priorities),
    );
    to.gauge(
        "bellwether_dashboard_open",
        "1 if the dashboard of this server can be read without a token.",
        flag(&meters.has_open_dashboard),
    );
}

fn tree(to: &mut Exposition, engine: &Engine) {
    let tree = engine.published.tree();
    to.gauge("bellwether_nodes", "Nodes of the tree.", tree.node_count());
    to.gauge(
        "bellwether_ephemeral_nodes",
        "Nodes that belong to a session.",
        tree.ephemeral_count(),
    );
    to.gauge(
        "bellwether_data_bytes",
        "Bytes of all paths and data.",
        tree.bytes(),
    );
    to.gauge(
        "bellwether_tree_bytes",
        "Estimate of the memory of the tree.",
        tree.size().bytes,
    );
    to.gauge(
        "bellwether_tree_bytes_max",
        "Limit of that estimate: beyond it, writes that make the tree larger are refused.",
        engine.tree_limits().bytes_max,
    );
    to.gauge(
        "bellwether_growth_refused",
        "1 while writes that make the tree larger are refused, for lack of disk or memory.",
        u8::from(engine.refuses_growth().is_some()),
    );
    to.gauge(
        "bellwether_last_zxid",
        "The zxid of the last transaction.",
        tree.last_zxid(),
    );
}

/// Metrics of the data files; none without a data folder.
fn files(to: &mut Exposition, engine: &Engine) {
    let config = engine.config();
    let logs = config.data_log_dir.as_ref().or(config.data_dir.as_ref());
    let Some(logs) = logs else {
        return;
    };
    let snapshots = DataFiles::of(config.data_dir.as_ref(), "snapshot.");
    to.gauge(
        "bellwether_snapshots",
        "Snapshots in the data folder.",
        snapshots.count,
    );
    to.gauge(
        "bellwether_snapshot_bytes",
        "Bytes of all snapshots.",
        snapshots.bytes,
    );
    let since_1970 = |time: SystemTime| {
        time.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
    };
    if let Some(newest) = snapshots.newest {
        let help = "When the newest snapshot was written, in seconds since 1970.";
        to.gauge(
            "bellwether_snapshot_last_timestamp_seconds",
            help,
            since_1970(newest).as_secs_f64(),
        );
    }
    let help = "Bytes of all logs, including the preallocated space of the newest.";
    to.gauge(
        "bellwether_log_bytes",
        help,
        DataFiles::of(Some(logs), "log.").bytes,
    );
    to.gauge(
        "bellwether_disk_low",
        "How full the disk of the log is: 0, 1 below the low-water mark, 2 below a quarter of it.",
        engine.room.state() as u8,
    );
    if let Some((size, used)) = disk(logs) {
        to.gauge(
            "bellwether_disk_bytes",
            "Size of the file system that has the logs.",
            size,
        );
        to.gauge(
            "bellwether_disk_used_bytes",
            "Used bytes of the file system that has the logs.",
            used,
        );
    }
}
