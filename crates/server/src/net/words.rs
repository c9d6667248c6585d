//! Collects what the four-letter words tell.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use super::four_letter::{
    self, ConnectionEntry, ConnectionReport, DirectorySizes, Dump, Environment, ExpiryBucket,
    Interest, Monitor, ServerReport, SessionReport,
};
use crate::clock;
use crate::engine::Engine;
use crate::peer::Peer;
use crate::proto::op::Op;
use crate::stats::NO_CXID;

/// The answer to `word`, asked by `asker`; `argument` is the mask that `stmk` brings.
pub(super) fn answer(engine: &Engine, asker: &Peer, word: &str, argument: i64) -> String {
    if !engine.config.words.contains(word) {
        return four_letter::refused(word);
    }
    match word {
        "ruok" => four_letter::RUOK.into(),
        "isro" => four_letter::ISRO.into(),
        "gtmk" => four_letter::mask(engine.trace_mask.load(Relaxed)),
        "stmk" => {
            engine.trace_mask.store(argument, Relaxed);
            four_letter::mask(argument)
        }
        "srst" => {
            engine.stats.reset();
            four_letter::SRST.into()
        }
        "crst" => {
            engine
                .connections
                .all()
                .iter()
                .for_each(|peer| peer.stats.reset());
            four_letter::CRST.into()
        }
        "dirs" => four_letter::dirs(directory_sizes(engine)),
        "hash" => four_letter::hash(engine.published.digests()),
        "conf" => {
            let port = engine
                .config
                .listen
                .first()
                .map_or(0, |address| address.port());
            four_letter::conf(&engine.config, port, directory_sizes(engine))
        }
        "envi" => four_letter::envi(&environment()),
        "srvr" => four_letter::srvr(&server(engine)),
        "stat" => four_letter::stat(&server(engine), &connections(engine, asker)),
        "cons" => four_letter::cons(&connections(engine, asker)),
        "dump" => four_letter::dump(&dump(engine)),
        "mntr" => four_letter::mntr(&monitor(engine)),
        "wchs" => {
            let (connections, paths, watches) = engine.published.watch_summary();
            four_letter::wchs(connections, paths, watches)
        }
        "wchc" => four_letter::wchc(&watches_by_session(engine)),
        "wchp" => {
            let mut by_path: BTreeMap<_, Vec<i64>> = BTreeMap::new();
            for (session, paths) in watches_by_session(engine) {
                for path in paths {
                    by_path.entry(path).or_default().push(session);
                }
            }
            four_letter::wchp(&by_path.into_iter().collect::<Vec<_>>())
        }
        _ => four_letter::refused(word),
    }
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
        // The root counts under both of its names.
        node_count: tree.node_count() + 1,
    }
}

fn connections(engine: &Engine, asker: &Peer) -> Vec<ConnectionReport> {
    let mut peers = engine.connections.all();
    peers.sort_by_key(|peer| peer.number);
    peers
        .iter()
        .map(|peer| connection(engine, peer, asker))
        .collect()
}

fn connection(engine: &Engine, peer: &Peer, asker: &Peer) -> ConnectionReport {
    let stats = &peer.stats;
    let interest = match (
        peer.number == asker.number,
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

fn monitor(engine: &Engine) -> Monitor {
    let tree = engine.published.tree();
    let stats = &engine.stats;
    let value = |number: &std::sync::atomic::AtomicU64| {
        i64::try_from(number.load(Relaxed)).unwrap_or(i64::MAX)
    };
    let bytes = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    Monitor {
        server: server(engine),
        uptime_ms: u64::try_from(engine.clock.now_ms()).unwrap_or(0),
        watch_count: engine.published.watch_count(),
        ephemerals_count: tree.ephemeral_count(),
        data_bytes: tree.bytes() as u64,
        sessions: engine.sessions.len(),
        open_files: open_files(),
        open_files_max: open_files_max(),
        values: vec![
            ("connection_rejected", value(&stats.connections_rejected)),
            ("auth_failed_count", value(&stats.auth_failures)),
            ("stale_sessions_expired", value(&stats.sessions_expired)),
            ("commit_count", value(&stats.commits)),
            ("outstanding_request_bytes", value(&stats.outstanding_bytes)),
            ("outbox_bytes", bytes(engine.connections.outbox_bytes())),
            ("watch_bytes", bytes(engine.published.watch_bytes())),
        ],
    }
}

fn directory_sizes(engine: &Engine) -> DirectorySizes {
    let config = &engine.config;
    let log_dir = config.data_log_dir.as_ref().or(config.data_dir.as_ref());
    DirectorySizes {
        snapshots_bytes: bytes_of(config.data_dir.as_deref(), "snapshot."),
        log_bytes: bytes_of(log_dir.map(PathBuf::as_path), "log."),
    }
}

/// The bytes of the data files in a folder whose names begin with `prefix`.
fn bytes_of(data_dir: Option<&Path>, prefix: &str) -> u64 {
    let Some(entries) = data_dir.and_then(|dir| fs::read_dir(dir.join("version-2")).ok()) else {
        return 0;
    };
    let files = entries.filter_map(Result::ok);
    let wanted = files.filter(|file| file.file_name().to_string_lossy().starts_with(prefix));
    wanted
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}

fn open_files() -> Option<u64> {
    Some(fs::read_dir("/proc/self/fd").ok()?.count() as u64)
}

fn open_files_max() -> Option<u64> {
    let limits = fs::read_to_string("/proc/self/limits").ok()?;
    let line = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Where the server runs, as far as the system tells.
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
