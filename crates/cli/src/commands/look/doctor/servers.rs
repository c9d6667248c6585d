//! Checks each server: whether it answers, its version, and its limits.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use bellwether::zk::{Dial as _, Endpoint, Sockets, four_letter_word};
use jiff::Timestamp;

use super::finding::Finding;
use crate::args::ConnectArgs;
use crate::connect::{self, Whereabouts};
use crate::local::{self, Folder};

/// The part of a limit from which on it counts as nearly reached.
const NEAR: f64 = 0.8;

/// Epochs that are hours since 1970, of the years 2020 to 2200. Ensembles count elections, and do not reach them.
const EPOCHS_OF_THE_CLOCK: Range<i64> = 438_000..2_016_000;

/// The default limit of waiting requests in Apache's server (`globalOutstandingLimit`).
const OUTSTANDING_MAX: f64 = 1000.0;

pub(super) async fn look(args: &ConnectArgs) -> anyhow::Result<Vec<Finding>> {
    match connect::whereabouts(args)? {
        Whereabouts::Local(folder) => Ok(vec![local(&folder).await?]),
        // Four-letter words are sent without TLS, which a listener with TLS does not answer.
        Whereabouts::Named(_) if connect::speaks_tls(args)? => Ok(vec![Finding::fine(
            "server",
            "a server answers by TLS; the servers are not checked one by one",
        )]),
        Whereabouts::Named(endpoints) => Ok(look_at(&endpoints).await),
    }
}

/// The local server. It has answered this command already.
async fn local(folder: &Folder) -> anyhow::Result<Finding> {
    let server = folder.connect().await?;
    Ok(match server.as_ref().and_then(local::process) {
        Some(process) => Finding::fine(
            "server",
            format!(
                "{} is the local server, pid {process}",
                folder.socket().display()
            ),
        ),
        None => Finding::critical("server", "the local server has just exited")
            .advice("`bellwether local log` shows its log"),
    })
}

async fn look_at(endpoints: &[Endpoint]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut answered, mut silent) = (Vec::new(), Vec::new());
    for endpoint in endpoints {
        match Server::ask(endpoint).await {
            Ok(server) => answered.push(server),
            Err(why) => silent.push((endpoint, why)),
        }
    }
    for (endpoint, why) in silent {
        let what = format!("{endpoint} does not answer: {why}");
        let finding = match answered.is_empty() {
            true => Finding::critical("server", what),
            false => Finding::warning("server", what),
        };
        findings.push(
            finding.advice("check whether it runs, and whether it can be reached from this host"),
        );
    }
    for server in &answered {
        findings.push(server.introduced());
        findings.extend(server.set_back());
        findings.extend(server.limits());
        findings.extend(server.passwords());
    }
    let versions = answered.iter().filter_map(|server| server.version());
    let mut versions: Vec<_> = versions.collect();
    versions.sort_unstable();
    versions.dedup();
    if versions.len() > 1 {
        let what = format!(
            "the servers have {} different versions: {}",
            versions.len(),
            versions.join(", ")
        );
        findings.push(Finding::warning("server", what).advice("finish the upgrade"));
    }
    findings
}

/// The answers of a server to four-letter words.
struct Server {
    address: String,
    /// The time for one answer.
    took: Duration,
    /// The answer to `srvr`, which is allowed by default.
    words: HashMap<String, String>,
    /// The answer to `mntr`, if it is allowed.
    numbers: HashMap<String, f64>,
}

impl Server {
    async fn ask(endpoint: &Endpoint) -> io::Result<Self> {
        let begin = Instant::now();
        let words = four_letter_word(Sockets.dial(endpoint), "srvr").await?;
        let took = begin.elapsed();
        let words = words.lines().filter_map(|line| {
            let (key, value) = line.split_once(": ")?;
            Some((key.to_owned(), value.trim().to_owned()))
        });
        let numbers = four_letter_word(Sockets.dial(endpoint), "mntr").await;
        let numbers = numbers.unwrap_or_default();
        let numbers = numbers.lines().filter_map(|line| {
            let (key, value) = line.split_once('\t')?;
            Some((key.to_owned(), value.trim().parse().ok()?))
        });
        Ok(Self {
            address: endpoint.to_string(),
            took,
            words: words.collect(),
            numbers: numbers.collect(),
        })
    }

    fn version(&self) -> Option<&str> {
        let version = self.words.get("Zookeeper version")?;
        version.split([',', ' ']).next()
    }

    fn introduced(&self) -> Finding {
        let (address, took) = (&self.address, self.took);
        let Some(version) = self.version() else {
            let what = format!("{address} answers in {took:.1?}, but does not tell its version");
            return Finding::warning("server", what).advice(
                "allow the four-letter word srvr: 4lw.commands.whitelist, or `serve --words`",
            );
        };
        let word = |key: &str| self.words.get(key).map_or("?", String::as_str);
        Finding::fine(
            "server",
            format!(
                "{address} answers in {took:.1?}: {version}, {}, {} nodes, {} connections",
                word("Mode"),
                word("Node count"),
                word("Connections"),
            ),
        )
    }

    /// Whether its zxids come from the clock: its data had gone back in time.
    fn set_back(&self) -> Option<Finding> {
        let zxid = self.words.get("Zxid")?.strip_prefix("0x")?;
        let epoch = i64::from_str_radix(zxid, 16).ok()? >> 32;
        if !EPOCHS_OF_THE_CLOCK.contains(&epoch) {
            return None;
        }
        let since = Timestamp::from_second(epoch * 3600).ok()?;
        let what = format!(
            "{} continues above all earlier zxids and fencing tokens since its data were restored, repaired or copied, in the hour after {since}",
            self.address
        );
        Some(Finding::fine("tokens", what))
    }

    fn limits(&self) -> Vec<Finding> {
        let number = |key: &str| self.numbers.get(key).copied();
        let address = &self.address;
        let mut findings = Vec::new();
        findings.extend(self.words.get("Refuses growth").map(|why| {
            let what = format!("{address} refuses writes that make its tree larger: {why}");
            Finding::critical("limits", what)
                .advice("delete nodes that are not needed, or give it more disk or memory")
        }));
        let files = number("zk_open_file_descriptor_count");
        let files_max = number("zk_max_file_descriptor_count").filter(|max| *max > 0.0);
        if let Some((open, max)) = files.zip(files_max)
            && open / max > NEAR
        {
            let what = format!("{address} has {open} of {max} files open");
            findings.push(Finding::critical("limits", what).advice(
                "raise the limit of open files, or find the clients that open so many connections",
            ));
        }
        let connections = number("zk_num_alive_connections");
        if let Some((open, max)) = connections.zip(number("zk_connections_max"))
            && open / max > NEAR
        {
            let what = format!("{address} has {open} of {max} connections");
            findings.push(Finding::critical("limits", what).advice(
                "raise its limit of open files, or maxCnxns (`serve --max-connections`) if that is lower, or find the clients that open \
                 so many",
            ));
        }
        if let Some(waiting) = number("zk_outstanding_requests")
            && waiting / OUTSTANDING_MAX > NEAR
        {
            let what = format!("{waiting} requests are waiting in {address}");
            findings.push(
                Finding::warning("limits", what)
                    .advice("its disk may be slow, or clients send more than it can handle"),
            );
        }
        if number("zk_priorities_not_lowered").is_some_and(|flag| flag > 0.0) {
            let what = format!("threads of {address} could not lower their priority");
            findings.push(Finding::warning("limits", what).advice(
                "crowds of connections take CPU time from sessions; allow the system call setpriority, as the unit in packaging does",
            ));
        }
        if number("zk_dashboard_open").is_some_and(|flag| flag > 0.0) {
            let what = format!("the dashboard of {address} can be read without a token");
            findings.push(
                Finding::warning("access", what).advice(
                    "start the server without --open, unless every user of its host may look",
                ),
            );
        }
        if let Some(max) = self
            .latency_max()
            .filter(|max| *max >= Duration::from_secs(1))
        {
            let what = format!("the slowest answer of {address} took {max:?}");
            findings.push(
                Finding::warning("limits", what)
                    .advice("check its disk and, for Java, its garbage collector"),
            );
        }
        findings
    }

    /// Sessions that any client can take over. Apache's server, where all are such sessions, does not tell.
    fn passwords(&self) -> Option<Finding> {
        let sessions = self.numbers.get("zk_computable_sessions")?;
        (*sessions > 0.0).then(|| {
            let what = format!(
                "any client can compute the passwords of {sessions} sessions of {}, and take them over",
                self.address
            );
            Finding::warning("sessions", what).advice(
                "start it without --session-passwords apache; restart the clients of sessions that are from before",
            )
        })
    }

    /// The highest latency that the server has measured.
    fn latency_max(&self) -> Option<Duration> {
        let latencies = self.words.get("Latency min/avg/max")?;
        let max: f64 = latencies.rsplit('/').next()?.parse().ok()?;
        Duration::try_from_secs_f64(max / 1000.0).ok()
    }
}
