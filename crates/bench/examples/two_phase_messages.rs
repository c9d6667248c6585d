//! Counts the messages of a transaction, as the server counts them, for both forms and growing numbers of sites: see `compare/two_phase`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether::two_phase::{Decision, Form, Participation, Vote};
use bellwether::{Client, TwoPhase, connect};
use bellwether_bench::measure::packets::Packets;
use bellwether_bench::measure::plot::{Line, plot};
use bellwether_testkit::Engine;
use clap::Parser;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// Counts the messages of two-phase commit, and writes a table and a plot.
#[derive(Debug, Parser)]
struct Args {
    /// The folder for the results.
    #[arg(long, default_value = "docs")]
    results: PathBuf,
    /// The largest number of sites.
    #[arg(long, default_value_t = 50)]
    sites_max: u32,
}

const SITES: [u32; 9] = [2, 3, 5, 7, 10, 15, 20, 30, 50];

/// Long, so that neither heartbeats nor pings are counted.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

/// The interval between two checks whether the server is idle.
const LOOK_EVERY: Duration = Duration::from_millis(20);

const QUIET_MAX: Duration = Duration::from_secs(30);

/// The order in which sites vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Votes {
    /// Each when no request is in flight.
    OneByOne,
    AtOnce,
}

/// The counted variants, in the order of the columns.
const COLUMNS: [(&str, Form, Votes); 4] = [
    (
        "coordinator, one by one",
        Form::Coordinator,
        Votes::OneByOne,
    ),
    ("every site, one by one", Form::EverySite, Votes::OneByOne),
    ("coordinator, at once", Form::Coordinator, Votes::AtOnce),
    ("every site, at once", Form::EverySite, Votes::AtOnce),
];

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let engine = Engine::embedded().await?;
    let rows = count_all(&engine, args.sites_max).await?;
    let svg = plot(
        "Messages of one transaction, by the server's count",
        "sites",
        "messages",
        &lines(&rows),
    );
    std::fs::write(args.results.join("two-phase-messages.svg"), svg)?;
    let report = format!("{HEAD}\n{}", table(&rows));
    std::fs::write(args.results.join("two-phase-messages.md"), report)?;
    Ok(())
}

const HEAD: &str = "\
# Messages of two-phase commit

One committed transaction, from its beginning until every site has applied it and left, each site with a session of its own. The embedded server counts
(`zk_packets_received` and `zk_packets_sent` of `mntr`): requests and replies. It does not count events, which are fewer. `crates/bench/compare/two_phase` writes this
page.

With a coordinator each site costs the same, for any number of sites. In the form of every site each site hears of every other site's
vote, and reads it: n² messages. Votes one by one, each when no request is in flight, are the worst case. Of votes that arrive together,
one event reports several, and one request reads them.

![messages over sites](two-phase-messages.svg)
";

/// Messages by the number of sites, one number per column.
type Row = (u32, [f64; COLUMNS.len()]);

async fn count_all(engine: &Engine, sites_max: u32) -> Result<Vec<Row>> {
    let server = Server::new(engine)?;
    let mut rows = Vec::new();
    for n in SITES.into_iter().filter(|n| *n <= sites_max) {
        let mut row = (n, [0.0; COLUMNS.len()]);
        for (count, (name, form, votes)) in row.1.iter_mut().zip(COLUMNS) {
            *count = messages(&server, n, form, votes).await?;
            println!("{n} sites, {name}: {count}");
        }
        rows.push(row);
    }
    Ok(rows)
}

/// The number of messages of one transaction.
async fn messages(server: &Server, n: u32, form: Form, votes: Votes) -> Result<f64> {
    let names: Vec<String> = (0..n).map(|site| format!("site-{site:02}")).collect();
    let mut clients = Vec::new();
    for _ in 0..=n {
        let client = connect(&server.address).session_timeout(SESSION_TIMEOUT);
        clients.push(client.await?);
    }
    let coordinator = clients.pop().context("one more than sites")?;
    let transactions = |client: &Client| TwoPhase::new(client, "/transactions").form(form);
    // The directory exists, and stays.
    transactions(&coordinator).begin(["nobody"], "").await?;
    let (before, _) = server.when_quiet().await?;
    let mut asked = 0;

    let begun = transactions(&coordinator).begin(&names, "").await?;
    let id = begun.id().to_owned();
    let deciding = tokio::spawn(async move {
        let mut begun = begun;
        match form {
            Form::Coordinator => begun.decide().await.map(drop),
            // It is not needed any more.
            _ => Ok(()),
        }
    });
    let mut seats = Vec::new();
    for (client, name) in clients.iter().zip(&names) {
        seats.push(transactions(client).transaction(&id).join(name).await?);
    }
    let mut ends = JoinSet::new();
    for seat in seats {
        if votes == Votes::OneByOne {
            asked += server.when_quiet().await?.1;
        }
        ends.spawn(vote_and_end(seat));
    }
    for end in ends.join_all().await {
        end?;
    }
    deciding.await??;
    let (after, last_asked) = server.when_quiet().await?;
    let (requests, events) = after.since(&before);
    let (own_requests, own_events) = server.per_question;
    let asked = f64::from(asked + last_asked);
    for client in clients.into_iter().chain([coordinator]) {
        client.close().await;
    }
    // Every request has its reply.
    Ok(2.0 * (requests - asked * own_requests) + events - asked * own_events)
}

async fn vote_and_end(mut seat: Participation) -> Result<()> {
    seat.vote(Vote::Commit).await?;
    ensure!(seat.decision().await? == Decision::Commit, "not committed");
    Ok(seat.applied().await?)
}

/// The counters of a server, and the cost of a query for them.
struct Server {
    address: String,
    per_question: (f64, f64),
}

impl Server {
    fn new(engine: &Engine) -> Result<Self> {
        let address = engine.connect_string();
        let [first, second, third] = [&address; 3].map(|address| Packets::of(address));
        let (first, second, third) = (first?, second?, third?);
        ensure!(
            third.since(&second) == second.since(&first),
            "it is not quiet"
        );
        Ok(Self {
            address,
            per_question: third.since(&second),
        })
    }

    /// Its counters once the server is idle, and the number of queries until then.
    async fn when_quiet(&self) -> Result<(Packets, u32)> {
        let deadline = Instant::now() + QUIET_MAX;
        let mut turns = interval(LOOK_EVERY);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last = Packets::of(&self.address)?;
        for asked in 1.. {
            turns.tick().await;
            let now = Packets::of(&self.address)?;
            if now.since(&last) == self.per_question {
                return Ok((now, asked + 1));
            }
            last = now;
            ensure!(Instant::now() < deadline, "it never became quiet");
        }
        unreachable!("it is asked until the deadline")
    }
}

fn table(rows: &[Row]) -> String {
    let mut text = String::from("| sites |");
    for (name, form, _) in COLUMNS {
        let unit = match form {
            Form::EverySite => "n²",
            _ => "n",
        };
        text += &format!(" {name} | / {unit} |");
    }
    text += &format!("\n|{}\n", "---|".repeat(1 + 2 * COLUMNS.len()));
    for (n, counts) in rows {
        text += &format!("| {n} |");
        for (count, (_, form, _)) in counts.iter().zip(COLUMNS) {
            let unit = match form {
                Form::EverySite => f64::from(n * n),
                _ => f64::from(*n),
            };
            text += &format!(" {count} | {:.1} |", count / unit);
        }
        text += "\n";
    }
    text
}

fn lines(rows: &[Row]) -> Vec<Line> {
    let of = |column: usize| {
        let points = rows.iter();
        points.map(move |(n, counts)| (f64::from(*n), counts[column]))
    };
    let columns = COLUMNS.iter().enumerate();
    columns
        .map(|(column, (name, ..))| Line {
            name: (*name).to_owned(),
            points: of(column).collect(),
        })
        .collect()
}
