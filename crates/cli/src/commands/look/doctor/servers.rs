//! Checks each server: whether it answers, its version, and its limits.

use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::time::{Duration, Instant};

use bellwether::zk::{Dial as _, Dialing, Endpoint, Stream, four_letter_word};
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

/// Busiest client addresses and slow requests that are shown of each server.
const SHOWN_MAX: usize = 3;

pub(super) async fn look(args: &ConnectArgs) -> anyhow::Result<Vec<Finding>> {
    match connect::whereabouts(args)? {
        Whereabouts::Local(folder) => {
            let mut findings = vec![local(&folder).await?];
            findings.extend(look_at(vec![Reach::local(folder)]).await);
            Ok(findings)
        }
        Whereabouts::Named(endpoints) => {
            let dial = connect::dial_for_words(args).await?;
            let reach = |endpoint: Endpoint| {
                let dial = dial.clone();
                Reach::new(endpoint.to_string(), move || dial.dial(&endpoint))
            };
            Ok(look_at(endpoints.into_iter().map(reach).collect()).await)
        }
    }
}

/// How a server is reached for four-letter words.
struct Reach {
    name: String,
    dial: Box<dyn Fn() -> Dialing>,
}

impl Reach {
    fn new(name: String, dial: impl Fn() -> Dialing + 'static) -> Self {
        Self {
            name,
            dial: Box::new(dial),
        }
    }

    /// The local server, which is not started for this.
    fn local(folder: Folder) -> Self {
        let name = format!("unix:{}", folder.socket().display());
        Self::new(name, move || {
            let folder = folder.clone();
            Box::pin(async move {
                let stream = folder.connect().await.map_err(io::Error::other)?;
                let stream = stream.ok_or(io::ErrorKind::NotConnected)?;
                let stream: Box<dyn Stream> = Box::new(stream);
                Ok(stream)
            })
        })
    }

    async fn ask(&self, word: &str) -> io::Result<String> {
        four_letter_word((self.dial)(), word).await
    }

    /// The answer to a word; empty if the server does not allow it.
    async fn allowed(&self, word: &str) -> String {
        let answer = self.ask(word).await.unwrap_or_default();
        match answer.contains("is not executed because") {
            true => String::new(),
            false => answer,
        }
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

async fn look_at(servers: Vec<Reach>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let (mut answered, mut silent) = (Vec::new(), Vec::new());
    for server in &servers {
        match Server::ask(server).await {
            Ok(server) => answered.push(server),
            Err(why) => silent.push((&server.name, why)),
        }
    }
    for (name, why) in silent {
        let what = format!("{name} does not answer: {why}");
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
        findings.extend(server.unseen());
        findings.extend(server.limits());
        findings.extend(server.slow_requests());
        findings.extend(server.passwords());
        findings.extend(server.clients());
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
    /// The answers to words that only this project's servers have, if they are allowed.
    addresses: String,
    slow: String,
}

impl Server {
    async fn ask(reach: &Reach) -> io::Result<Self> {
        let begin = Instant::now();
        let words = reach.ask("srvr").await?;
        let took = begin.elapsed();
        let words = words.lines().filter_map(|line| {
            let (key, value) = line.split_once(": ")?;
            Some((key.to_owned(), value.trim().to_owned()))
        });
        let numbers = reach.ask("mntr").await.unwrap_or_default();
        let numbers = numbers.lines().filter_map(|line| {
            let (key, value) = line.split_once('\t')?;
            Some((key.to_owned(), value.trim().parse().ok()?))
        });
        let mut server = Self {
            address: reach.name.clone(),
            took,
            words: words.collect(),
            numbers: numbers.collect(),
            addresses: String::new(),
            slow: String::new(),
        };
        // Apache's server takes words that it does not have for requests of absurd length, and logs them.
        if server.is_ours() {
            server.addresses = reach.allowed("addr").await;
            server.slow = reach.allowed("slow").await;
        }
        Ok(server)
    }

    fn is_ours(&self) -> bool {
        let version = self.words.get("Zookeeper version");
        version.is_some_and(|version| version.contains("-bellwether-"))
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
            .filter(|max| *max >= Duration::from_secs(1) && self.slow.is_empty())
        {
            let what = format!("the slowest answer of {address} took {max:?}");
            findings.push(
                Finding::warning("limits", what)
                    .advice("check its disk and, for Java, its garbage collector"),
            );
        }
        findings
    }

    /// What cannot be checked, because the server does not tell.
    fn unseen(&self) -> Option<Finding> {
        if !self.numbers.is_empty() {
            return None;
        }
        let what = format!(
            "{} does not tell its counters: open files, connections, waiting and slow requests, priorities, dashboard, passwords and clients are not checked",
            self.address
        );
        let advice = match self.is_ours() {
            true => {
                "allow mntr, slow and addr with `serve --words`, or ask by its Unix socket, as its user or root"
            }
            false => "allow the four-letter word mntr: 4lw.commands.whitelist",
        };
        Some(Finding::fine("server", what).advice(advice))
    }

    /// Requests of the slow-request log.
    fn slow_requests(&self) -> Option<Finding> {
        let count = self.numbers.get("zk_slow_requests").copied();
        let count = count.filter(|count| *count > 0.0)?;
        let mut what = format!(
            "{count} requests of {} were slow since it started",
            self.address
        );
        for line in self.slow.lines().take(SHOWN_MAX) {
            let (time, rest) = line.split_once(' ')?;
            let time = time.strip_prefix("time_ms=")?.parse().ok()?;
            let time = Timestamp::from_millisecond(time).ok()?;
            what.push_str(&format!("\n{:18}{time:.3} {rest}", ""));
        }
        let advice = "the stage that takes long is the cause; the log of the server has more, and docs/service.md what each stage is";
        Some(Finding::warning("slow", what).advice(advice))
    }

    /// The client addresses with most requests.
    fn clients(&self) -> Option<Finding> {
        let lines = self.addresses.lines().take(SHOWN_MAX);
        let busiest: Vec<_> = lines.filter_map(client).collect();
        let what = format!(
            "most requests of {} come from {}",
            self.address,
            busiest.join(", ")
        );
        (!busiest.is_empty()).then(|| Finding::fine("clients", what))
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

/// A client in a line such as `10.0.0.7 connections=1 requests=20 received_bytes=300 sent_bytes=4000`.
fn client(line: &str) -> Option<String> {
    let mut fields = line.split(' ');
    let address = fields.next()?;
    let fields: HashMap<_, _> = fields.filter_map(|field| field.split_once('=')).collect();
    let field = |name| fields.get(name).copied();
    let (connections, requests) = (field("connections")?, field("requests")?);
    let (received, sent) = (field("received_bytes")?, field("sent_bytes")?);
    Some(format!(
        "{address} ({requests} requests, {received} bytes in, {sent} out, {connections} connections)"
    ))
}
