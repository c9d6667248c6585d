//! Compares one request with that of other clients and of a bare socket.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_bench::comparison::Bound;
use bellwether_bench::contest::Candidate::{
    ByHand, Curator, CurrentThread, Kazoo, Ours, ZookeeperClient,
};
use bellwether_bench::contest::{Args, Candidate, Servers};
use bellwether_bench::measure::awake::Awake;
use bellwether_bench::measure::figures::Figures;
use bellwether_bench::measure::machine::machine;
use bellwether_bench::peer::{Peer, Task};
use bellwether_bench::wire::Wire;
use bellwether_testkit::Request;

/// The clients, and their names on the page.
const CLIENTS: [(Candidate, &str); 6] = [
    (ByHand, BARE),
    (Ours, "ours, session thread"),
    (CurrentThread, "ours, current-thread runtime"),
    (ZookeeperClient, "zookeeper-client"),
    (Curator, "Java's client"),
    (Kazoo, "kazoo"),
];

const BARE: &str = "bare blocking socket";

/// The node of the request.
const NODE: &str = "/services-worker-17";

const SERVERS: [&str; 2] = ["Apache ZooKeeper 3.8", "the embedded server"];

/// The figures and their units.
const MEASURES: [(&str, &str); 3] = [("p50", "us"), ("p99", "us"), ("switches a request", "")];

/// The state of the processors during the measurement.
const CORES: [&str; 2] = ["", ", on cores that do not sleep"];

pub(crate) fn compare(args: &Args, servers: &Servers) -> Result<()> {
    for address in servers.addresses() {
        let create = Request::create(NODE, vec![b'x'; 100]);
        Wire::connect(address)?.call(&create)?;
    }
    let mut peers = Vec::new();
    for (candidate, name) in CLIENTS {
        peers.push((candidate, name, candidate.start(args)?));
    }
    // The first round is a warm-up and is discarded.
    round(args, servers, &mut peers, &mut Figures::default())?;
    let mut figures = Figures::default();
    for _ in 0..args.rounds() {
        round(args, servers, &mut peers, &mut figures)?;
    }
    args.keep("request", &page(args, &figures)?)
}

fn round(
    args: &Args,
    servers: &Servers,
    peers: &mut [(Candidate, &str, Peer)],
    figures: &mut Figures,
) -> Result<()> {
    let duration = Duration::from_secs_f64(args.seconds);
    for cores in CORES {
        let _awake = match cores {
            "" => None,
            _ => Some(Awake::keep()?),
        };
        for (server, address) in SERVERS.into_iter().zip(servers.addresses()) {
            for (candidate, name, peer) in &mut *peers {
                let task = Task {
                    recipe: "exists".to_owned(),
                    address: address.to_owned(),
                    path: NODE.to_owned(),
                    contenders: 1,
                    sessions: 1,
                    warm_up: duration / 2,
                    duration,
                };
                let outcome = match peer.run(&task) {
                    // The others continue, and the page reports it.
                    Err(error) if candidate.is_peer() => {
                        println!("{}", figures.fail(&row(server, cores, "p50"), name, &error));
                        *peer = candidate.start(args)?;
                        continue;
                    }
                    outcome => outcome.with_context(|| format!("{name}, {task}"))?,
                };
                let round_trips = outcome.round_trips.context("no latencies")?;
                let values = [
                    Some(round_trips.p50_us),
                    Some(round_trips.p99_us),
                    round_trips.switches,
                ];
                for ((measure, unit), value) in MEASURES.into_iter().zip(values) {
                    if let Some(value) = value {
                        let row = row(server, cores, measure);
                        println!("{}", figures.add(&row, unit, name, value));
                    }
                }
            }
        }
    }
    Ok(())
}

fn row(server: &str, cores: &str, measure: &str) -> String {
    format!("{server}{cores}, {measure}")
}

fn page(args: &Args, figures: &Figures) -> Result<String> {
    let mut page = format!(
        "# One request beside that of other clients\n\n{}\n\n`crates/bench/compare/recipes request --rounds {} --seconds {}`; medians, with \
         the range of the rounds. `exists` of a node that is there, one request after the other on one session, each client in a process of its \
         own. The bare socket is one thread that writes and blocks in a read: the least that a request can take. Switches are voluntary context \
         switches of all threads of a client's process, for clients in Rust. With the session thread a request may wake two threads, that one \
         and the caller; on a current-thread runtime one. The goals leave a tenth for heartbeats and timers.\n",
        machine()?,
        args.rounds,
        args.seconds,
    );
    for server in SERVERS {
        for cores in CORES {
            writeln!(
                page,
                "\n## On {server}{cores}\n\n\
                 | client | p50 | p99 | p50 / that of the bare socket | switches a request | goal |\n|---|---|---|---|---|---|"
            )?;
            let spread = |measure: &str, name| figures.spread(&row(server, cores, measure), name);
            let bare = figures.median(&row(server, cores, "p50"), BARE)?;
            for (candidate, name) in CLIENTS {
                write!(page, "| {name} ")?;
                let [p50, p99, switches] = MEASURES.map(|(measure, unit)| {
                    let spread = spread(measure, name);
                    spread.map_or_else(String::new, |spread| spread.with_range(unit))
                });
                let ratio = spread("p50", name)
                    .map_or_else(String::new, |p50| format!("{:.2}", p50.median / bare));
                let median = spread("switches a request", name).map(|spread| spread.median);
                let verdict = goal(candidate)
                    .zip(median)
                    .map_or_else(String::new, |(goal, median)| goal.verdict(median));
                writeln!(page, "| {p50} | {p99} | {ratio} | {switches} | {verdict} |")?;
            }
        }
    }
    writeln!(page, "\n## Raw\n\n```\n{}```", figures.raw())?;
    Ok(page)
}

/// The goal for context switches per request.
fn goal(candidate: Candidate) -> Option<Bound> {
    match candidate {
        Ours => Some(Bound::AtMost(2.1)),
        CurrentThread => Some(Bound::AtMost(1.1)),
        _ => None,
    }
}
