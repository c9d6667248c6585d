//! Collects the values that four-letter words show.

use std::collections::BTreeMap;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

use bellwether_wire::op::Op;

use super::text::{
    self, ConnectionEntry, ConnectionReport, DirectorySizes, Dump, Environment, ExpiryBucket,
    Interest, MonitorText, ServerReport, SessionReport,
};
use crate::client::Peer;
use crate::clock;
use crate::engine::Engine;
use crate::metrics::{self, DataFiles, Histogram};
use crate::stats::NO_CXID;

/// The answer to `word` for `asker`; `argument` is the mask of `stmk`.
pub(crate) fn answer(engine: &Engine, asker: &Peer, word: &str, argument: i64) -> String {
    if !is_allowed(engine, asker, word) {
        return text::refused(word);
    }
    tell(engine, asker.number, word, argument)
}

/// Whether `asker` may send this word: one that is enabled, or an operator, whom the kernel has authenticated.
pub(crate) fn is_allowed(engine: &Engine, asker: &Peer, word: &str) -> bool {
    engine.config().words.contains(word) || asker.address.is_operator()
}

/// Like [`answer`], even for a word that is not enabled. `asker` is the number of the connection that sent the word, 0 for none.
pub(crate) fn tell(engine: &Engine, asker: u64, word: &str, argument: i64) -> String {
    match word {
        "addr" => addresses(engine),
        "ruok" => text::RUOK.into(),
        "isro" => text::ISRO.into(),
        "gtmk" => text::mask(engine.trace_mask.load(Relaxed)),
        "stmk" => {
            engine.trace_mask.store(argument, Relaxed);
            text::mask(argument)
        }
        "srst" => {
            engine.stats.reset();
            text::SRST.into()
        }
        "crst" => {
            engine
                .connections
                .all()
                .iter()
                .for_each(|peer| peer.stats.reset());
            text::CRST.into()
        }
        "dirs" => text::dirs(directory_sizes(engine)),
        "hash" => text::hash(engine.published.digests()),
        "conf" => {
            let port = engine
                .config()
                .listen
                .first()
                .map_or(0, |address| address.port());
            text::conf(&engine.config(), port, directory_sizes(engine))
        }
        "envi" => text::envi(&environment()),
        "slow" => slow(engine),
        "srvr" => text::srvr(&server(engine)),
        "stat" => text::stat(&server(engine), &connections(engine, asker)),
        "cons" => text::cons(&connections(engine, asker)),
        "dump" => text::dump(&dump(engine)),
        "mntr" => text::mntr(&monitor(engine)),
        "wchs" => {
            let (connections, paths, watches) = engine.published.watch_summary();
            text::wchs(connections, paths, watches)
        }
        "wchc" => text::wchc(&watches_by_session(engine)),
        "wchp" => {
            let mut by_path: BTreeMap<_, Vec<i64>> = BTreeMap::new();
            for (session, paths) in watches_by_session(engine) {
                for path in paths {
                    by_path.entry(path).or_default().push(session);
                }
            }
            text::wchp(&by_path.into_iter().collect::<Vec<_>>())
        }
        _ => text::refused(word),
    }
}

/// The client addresses with most requests, one per line. Apache has no such word.
fn addresses(engine: &Engine) -> String {
    let top = engine.connections.top_addresses();
    let lines = top.iter().map(|(origin, usage)| {
        format!(
            "{origin} connections={} requests={} received_bytes={} sent_bytes={}\n",
            usage.connections, usage.requests, usage.received_bytes, usage.sent_bytes
        )
    });
    lines.collect()
}

/// The last slow requests, one per line. Apache has no such word.
fn slow(engine: &Engine) -> String {
    let last = engine.published.slow.last();
    last.iter().map(|slow| format!("{slow}\n")).collect()
}

fn server(engine: &Engine) -> ServerReport {
    let tree = engine.published.tree();
    let stats = &engine.stats;
    ServerReport {
        latency_ms: stats.latency.summary(),
        received: stats.received.load(Relaxed),
        sent: stats.sent.load(Relaxed),
        connections: engine.connections.len(),
        outstanding: usize::try_from(stats.outstanding.load(Relaxed)).unwrap_or(usize::MAX),
        zxid: tree.last_zxid(),
        // Apache counts the root under both of its names.
        node_count: tree.node_count() + 1,
        refuses_growth: engine.refuses_growth(),
    }
}

fn connections(engine: &Engine, asker: u64) -> Vec<ConnectionReport> {
    let mut peers = engine.connections.all();
    peers.sort_by_key(|peer| peer.number);
    peers
        .iter()
        .map(|peer| connection(engine, peer, asker))
        .collect()
}

fn connection(engine: &Engine, peer: &Peer, asker: u64) -> ConnectionReport {
    let stats = &peer.stats;
    let interest = match (
        peer.number == asker,
        peer.is_paused(),
        peer.outbox.len() > 0,
    ) {
        (true, _, _) | (_, true, false) => Interest::Nothing,
        (_, true, true) => Interest::Writing,
        (_, false, true) => Interest::ReadingAndWriting,
        (_, false, false) => Interest::Reading,
    };
    let session = engine
        .sessions
        .get(peer.session_id())
        .map(|session| SessionReport {
            id: session.id,
            last_operation: Op::from_number(stats.last_op.load(Relaxed))
                .map_or("NA", Op::short_name),
            established_ms: stats.established_ms.load(Relaxed),
            timeout_ms: session.timeout_ms(),
            last_xid: Some(stats.last_cxid.load(Relaxed)).filter(|xid| *xid != NO_CXID),
            last_zxid: stats.last_zxid.load(Relaxed),
            last_response_ms: stats.last_response_ms.load(Relaxed),
            last_latency_ms: stats.last_latency_ms.load(Relaxed),
            latency_ms: stats.latency.summary(),
        });
    ConnectionReport {
        peer: peer.address,
        interest,
        queued: peer.outstanding(),
        received: stats.received.load(Relaxed),
        sent: stats.sent.load(Relaxed),
        session,
    }
}

fn dump(engine: &Engine) -> Dump {
    let wall_ahead_ms = clock::wall_ms() - engine.clock.now_ms();
    let mut sessions: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    for session in engine.sessions.all() {
        if !session.has_ended() {
            sessions
                .entry(session.deadline_ms() + wall_ahead_ms)
                .or_default()
                .push(session.id);
        }
    }
    let mut connections: BTreeMap<i64, Vec<ConnectionEntry>> = BTreeMap::new();
    for peer in engine.connections.all() {
        if let Some(session) = engine.sessions.get(peer.session_id()) {
            connections
                .entry(session.deadline_ms() + wall_ahead_ms)
                .or_default()
                .push(ConnectionEntry {
                    peer: peer.address,
                    session: session.id,
                });
        }
    }
    let tree = engine.published.tree();
    let mut owners: Vec<i64> = tree.ephemeral_owners().collect();
    owners.sort_unstable();
    let paths = |id| {
        tree.ephemerals_of(id)
            .map(|path| path.to_string())
            .collect()
    };
    Dump {
        sessions: buckets(sessions),
        ephemerals: owners.into_iter().map(|id| (id, paths(id))).collect(),
        connections: buckets(connections),
    }
}

fn buckets<T>(by_time: BTreeMap<i64, Vec<T>>) -> Vec<ExpiryBucket<T>> {
    let bucket = |(expires_ms, members)| ExpiryBucket {
        expires_ms,
        members,
    };
    by_time.into_iter().map(bucket).collect()
}

fn watches_by_session(engine: &Engine) -> Vec<(i64, Vec<std::sync::Arc<str>>)> {
    let sessions: BTreeMap<u64, i64> = engine
        .connections
        .all()
        .iter()
        .map(|peer| (peer.number, peer.session_id()))
        .collect();
    let mut watches: Vec<_> = engine
        .published
        .watch_report()
        .by_peer
        .into_iter()
        .filter_map(|(number, paths)| Some((*sessions.get(&number)?, paths)))
        .collect();
    watches.sort();
    watches
}

fn monitor(engine: &Engine) -> MonitorText {
    let tree = engine.published.tree();
    let stats = &engine.stats;
    let value = |number: &std::sync::atomic::AtomicU64| {
        i64::try_from(number.load(Relaxed)).unwrap_or(i64::MAX)
    };
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    let limits = stats.meters.reached();
    let limits_reached: u64 = limits.iter().map(|(_, count)| count).sum();
    let limits_reached = i64::try_from(limits_reached).unwrap_or(i64::MAX);
    let audit_failures = engine.audit.as_ref().map_or(0, |audit| audit.failures());
    let audit_failures = i64::try_from(audit_failures).unwrap_or(i64::MAX);
    let slow_requests = stats.meters.slow_requests();
    let slow_requests: u64 = slow_requests.iter().map(|(_, count)| count).sum();
    let slow_requests = i64::try_from(slow_requests).unwrap_or(i64::MAX);
    MonitorText {
        server: server(engine),
        uptime_ms: u64::try_from(engine.clock.now_ms()).unwrap_or(0),
        watch_count: engine.published.watch_count(),
        ephemerals_count: tree.ephemeral_count(),
        data_bytes: tree.bytes() as u64,
        sessions: engine.sessions.len(),
        open_files: metrics::open_files(),
        open_files_max: metrics::open_files_max(),
        values: vec![
            ("connections_max", count(engine.connections.max())),
            ("handshakes", count(engine.connections.newcomers())),
            ("connection_rejected", value(&stats.connections_rejected)),
            (
                "computable_sessions",
                count(engine.sessions.computable_len()),
            ),
            ("slow_requests", slow_requests),
            ("sessions_rejected", value(&stats.sessions_rejected)),
            ("limits_reached", limits_reached),
            ("auth_failed_count", value(&stats.auth_failures)),
            ("tls_handshakes_failed", value(&stats.tls_handshakes_failed)),
            ("audit_failures", audit_failures),
            ("stale_sessions_expired", value(&stats.sessions_expired)),
            ("commit_count", value(&stats.commits)),
            ("outstanding_request_bytes", value(&stats.outstanding_bytes)),
            ("input_bytes", count(engine.connections.input_bytes())),
            ("outbox_bytes", count(engine.connections.outbox_bytes())),
            ("tree_bytes", count(tree.size().bytes)),
            ("tree_bytes_max", count(engine.tree_limits().bytes_max)),
            ("disk_low", i64::from(engine.room.state() as u8)),
            (
                "refuses_growth",
                i64::from(engine.refuses_growth().is_some()),
            ),
            ("watch_bytes", count(engine.published.watch_bytes())),
            (
                "priorities_not_lowered",
                flag(&stats.meters.keeps_priorities),
            ),
            ("dashboard_open", flag(&stats.meters.has_open_dashboard)),
        ],
        times_ms: times_ms(engine),
        disk: disk(engine),
    }
}

fn flag(is_set: &AtomicBool) -> i64 {
    is_set.load(Relaxed).into()
}

/// Percentiles of the last seconds, by Apache's names.
fn times_ms(engine: &Engine) -> Vec<(&'static str, f64)> {
    let (meters, now) = (&engine.stats.meters, Instant::now());
    #[expect(clippy::cast_precision_loss, reason = "bounds of buckets are small")]
    let ms = |times: &Histogram, part| times.recent_percentile(part, now) as f64 / 1000.0;
    vec![
        ("p50_readlatency", ms(&meters.read_time, 0.5)),
        ("p99_readlatency", ms(&meters.read_time, 0.99)),
        ("p50_updatelatency", ms(&meters.write_time, 0.5)),
        ("p99_updatelatency", ms(&meters.write_time, 0.99)),
        ("p50_fsynctime", ms(&meters.sync_time, 0.5)),
        ("p99_fsynctime", ms(&meters.sync_time, 0.99)),
    ]
}

/// Size of the log's disk, and how much of it is used.
fn disk(engine: &Engine) -> Option<(u64, u64)> {
    let config = engine.config();
    let logs = config.data_log_dir.as_ref().or(config.data_dir.as_ref());
    metrics::disk(logs?)
}

fn directory_sizes(engine: &Engine) -> DirectorySizes {
    let config = engine.config();
    let log_dir = config.data_log_dir.as_ref().or(config.data_dir.as_ref());
    DirectorySizes {
        snapshots_bytes: DataFiles::of(config.data_dir.as_ref(), "snapshot.").bytes,
        log_bytes: DataFiles::of(log_dir, "log.").bytes,
    }
}

/// Environment of the server process, as far as known.
fn environment() -> Environment {
    let file = |path: &str| {
        fs::read_to_string(path)
            .unwrap_or_default()
            .trim()
            .to_owned()
    };
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    Environment {
        host_name: file("/proc/sys/kernel/hostname"),
        os_name: file("/proc/sys/kernel/ostype"),
        os_arch: std::env::consts::ARCH.into(),
        os_version: file("/proc/sys/kernel/osrelease"),
        user_name: variable("USER"),
        user_home: variable("HOME"),
        user_dir: std::env::current_dir()
            .unwrap_or_default()
            .display()
            .to_string(),
    }
}
