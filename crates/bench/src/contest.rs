//! Compares recipes of several libraries, in turn, in one run, and writes a page with the results.

#![allow(clippy::print_stdout, reason = "a comparison reports as it goes")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::comparison::Bound;
use crate::measure::figures::Figures;
use crate::measure::machine::machine;
use crate::measure::packets::Packets;
use crate::peer::{Peer, PeerOutcome, Task};
use crate::server_process::{Kind, ServerProcess};

/// The time to open sessions and enter the line: counting begins when all contenders are there.
const QUEUE_UP: Duration = Duration::from_millis(5);

/// Arguments of every comparison.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The `bellwether` to compare.
    #[arg(long)]
    pub server: PathBuf,
    /// The example `rust_peer`.
    #[arg(long)]
    pub rust_peer: String,
    /// The command of Curator's peer.
    #[arg(long)]
    pub curator_peer: String,
    /// The command of kazoo's peer.
    #[arg(long)]
    pub kazoo_peer: String,
    /// Rounds for each participant.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Seconds in which turns are counted.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// A single round, whose result is not kept.
    #[arg(long)]
    pub quick: bool,
    /// The folder for the result.
    #[arg(long, default_value = "crates/bench/results")]
    pub results: PathBuf,
}

impl Args {
    /// The number of counted rounds, after one warm-up round.
    pub fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds }
    }

    /// Prints a page, and writes it to a file unless this is a trial.
    pub fn keep(&self, name: &str, page: &str) -> Result<()> {
        println!("\n{page}");
        if !self.quick {
            let file = self.results.join(format!("{name}.md"));
            std::fs::create_dir_all(&self.results)?;
            std::fs::write(&file, page)?;
            println!("kept in {}", file.display());
        }
        Ok(())
    }
}

/// A participant: a library, on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the columns say it")]
pub enum Candidate {
    Ours,
    OnRuntime,
    CurrentThread,
    Plain,
    ByHand,
    Embedded,
    CurrentThreadEmbedded,
    ByHandEmbedded,
    Curator,
    Kazoo,
    ZookeeperClient,
}

impl Candidate {
    /// The heading of its column.
    pub fn column(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OnRuntime => "ours, on the user's runtime",
            Self::CurrentThread => "ours, current-thread runtime",
            Self::Plain => "plain form",
            Self::ByHand => "by hand",
            Self::Embedded => "ours, embedded server",
            Self::CurrentThreadEmbedded => "ours, current-thread runtime, embedded server",
            Self::ByHandEmbedded => "by hand, embedded server",
            Self::Curator => "Curator",
            Self::Kazoo => "kazoo",
            Self::ZookeeperClient => "zookeeper-client",
        }
    }

    /// Whether it is another project's library.
    pub fn is_peer(self) -> bool {
        matches!(self, Self::Curator | Self::Kazoo | Self::ZookeeperClient)
    }

    /// Whether it runs on the embedded server; the others run on Apache's.
    fn is_on_embedded(self) -> bool {
        matches!(
            self,
            Self::Embedded | Self::CurrentThreadEmbedded | Self::ByHandEmbedded
        )
    }

    /// Starts its process.
    pub fn start(self, args: &Args) -> Result<Peer> {
        let rust = |library| format!("{} {library}", args.rust_peer);
        Peer::of_command(&match self {
            Self::Ours | Self::Embedded => rust("bellwether"),
            Self::OnRuntime => rust("bellwether-on-runtime"),
            Self::CurrentThread | Self::CurrentThreadEmbedded => rust("bellwether-current-thread"),
            Self::Plain => rust("plain"),
            Self::ByHand | Self::ByHandEmbedded => rust("by-hand"),
            Self::ZookeeperClient => rust("zookeeper-client"),
            Self::Curator => args.curator_peer.clone(),
            Self::Kazoo => args.kazoo_peer.clone(),
        })
    }
}

/// A repeated and counted operation.
#[derive(Debug)]
pub struct Workload {
    /// The name of its row.
    pub row: String,
    /// The recipe as the peers know it.
    pub recipe: &'static str,
    /// The number of contenders.
    pub contenders: usize,
    /// The counted unit.
    pub count: fn(&PeerOutcome) -> u64,
    /// The participants.
    pub candidates: &'static [Candidate],
    /// The most rounds: some workloads take long.
    pub rounds_max: usize,
    /// The goal, in units of the best peer's figure.
    pub goals: Vec<(Candidate, Bound)>,
}

impl Workload {
    /// The number of sessions: one for each contender, but one for a cache of any size.
    fn sessions(&self) -> usize {
        match self.recipe {
            "cache" | "cache-changes" => 1,
            _ => self.contenders,
        }
    }
}

/// A comparison.
#[derive(Debug)]
pub struct Contest {
    /// Its name, and that of its page.
    pub name: &'static str,
    /// The title of the page.
    pub title: &'static str,
    /// Notes that a reader needs to understand the figures.
    pub about: &'static str,
    /// All participants of the workloads.
    pub candidates: &'static [Candidate],
    /// The workloads.
    pub workloads: Vec<Workload>,
}

/// The servers of a comparison.
#[derive(Debug)]
pub struct Servers {
    /// Apache's.
    pub apache: ServerProcess,
    embedded: ServerProcess,
    _folders: [TempDir; 2],
}

impl Servers {
    /// Starts both, with syncs on.
    pub fn start(args: &Args) -> Result<Self> {
        let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
        let config = "4lw.commands.whitelist=mntr\n";
        let ours = Kind::Ours(args.server.clone());
        Ok(Self {
            apache: ServerProcess::start(&Kind::Apache, folders[0].path(), config)?,
            embedded: ServerProcess::start(&ours, folders[1].path(), config)?,
            _folders: folders,
        })
    }

    /// Their addresses.
    pub fn addresses(&self) -> [&str; 2] {
        [&self.apache.address, &self.embedded.address]
    }

    fn of(&self, candidate: Candidate) -> &str {
        match candidate.is_on_embedded() {
            true => &self.embedded.address,
            false => &self.apache.address,
        }
    }
}

impl Contest {
    /// Measures all participants in turn, round by round; `beside` adds further measurements to a round.
    pub fn run(
        &self,
        args: &Args,
        servers: &Servers,
        mut beside: impl FnMut(&mut Figures) -> Result<()>,
    ) -> Result<Figures> {
        let mut peers = Vec::new();
        for &candidate in self.candidates {
            peers.push((candidate, candidate.start(args)?));
        }
        // The first round is a warm-up and is discarded.
        self.round(args, servers, 0, &mut peers, &mut Figures::default())?;
        let mut figures = Figures::default();
        for round in 1..=args.rounds() {
            self.round(args, servers, round, &mut peers, &mut figures)?;
            beside(&mut figures)?;
        }
        Ok(figures)
    }

    fn round(
        &self,
        args: &Args,
        servers: &Servers,
        round: usize,
        peers: &mut [(Candidate, Peer)],
        figures: &mut Figures,
    ) -> Result<()> {
        let duration = Duration::from_secs_f64(args.seconds);
        for (number, workload) in self.workloads.iter().enumerate() {
            let is_warm_up = round == 0;
            if round > workload.rounds_max || is_warm_up && workload.rounds_max < args.rounds {
                continue;
            }
            for (candidate, peer) in &mut *peers {
                if !workload.candidates.contains(candidate) {
                    continue;
                }
                let address = servers.of(*candidate);
                let column = candidate.column();
                let task = Task {
                    recipe: workload.recipe.to_owned(),
                    address: address.to_owned(),
                    path: format!("/{candidate:?}-{number}-{round}"),
                    contenders: workload.contenders,
                    sessions: workload.sessions(),
                    warm_up: duration / 2 + QUEUE_UP * u32::try_from(workload.sessions())?,
                    duration,
                };
                let before = Packets::of(address)?;
                let outcome = match peer.run(&task) {
                    // The others continue, and the page reports it.
                    Err(error) if candidate.is_peer() => {
                        println!("{}", figures.fail(&workload.row, column, &error));
                        *peer = candidate.start(args)?;
                        continue;
                    }
                    outcome => outcome.with_context(|| format!("{column}, {task}"))?,
                };
                let (requests, events) = Packets::of(address)?.since(&before);
                #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
                let (count, all_turns) =
                    ((workload.count)(&outcome) as f64, outcome.all_turns as f64);
                let row = &workload.row;
                println!(
                    "{}",
                    figures.add(row, "/s", column, count / outcome.seconds)
                );
                figures.add(&requests_row(row), "", column, requests / all_turns);
                if outcome.resident_kib > 0 {
                    #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
                    let mib = outcome.resident_kib as f64 / 1024.0;
                    println!("{}", figures.add(&memory_row(row), "MiB", column, mib));
                }
                // The embedded server does not count events among what it has sent.
                if !candidate.is_on_embedded() {
                    figures.add(&events_row(row), "", column, events / all_turns);
                }
            }
        }
        Ok(())
    }

    /// The tables, the text of `more`, and the raw figures.
    pub fn page(&self, args: &Args, figures: &Figures, more: &str) -> Result<String> {
        let mut page = format!(
            "# {}\n\n{}\n\n`crates/bench/compare/recipes {} --rounds {} --seconds {}`, syncs on; medians, with the range of \
             the rounds. Apache ZooKeeper 3.8 unless the embedded server is named; a session for each who takes part, all of a \
             library in one process. Requests and events are those that the server counted, opening of sessions and pings \
             included. {}\n\n",
            self.title,
            machine()?,
            self.name,
            args.rounds,
            args.seconds,
            self.about
        );
        let columns: Vec<_> = self.candidates.iter().map(|who| who.column()).collect();
        writeln!(page, "| what | {} |", columns.join(" | "))?;
        writeln!(page, "|---{}|", "|---".repeat(columns.len()))?;
        for Workload { row, .. } in &self.workloads {
            for (row, unit) in [
                (row, "/s"),
                (&requests_row(row), ""),
                (&events_row(row), ""),
                (&memory_row(row), "MiB"),
            ] {
                if columns
                    .iter()
                    .all(|column| figures.spread(row, column).is_none())
                {
                    continue;
                }
                write!(page, "| {row} ")?;
                for column in &columns {
                    let spread = figures.spread(row, column);
                    let cell = spread.map(|spread| spread.with_range(unit));
                    write!(page, "| {} ", cell.unwrap_or_default())?;
                }
                writeln!(page, "|")?;
            }
        }
        page += "\n## In units of the best peer\n\n| what | ratio | goal |\n|---|---|---|\n";
        for workload in &self.workloads {
            let peers: Vec<_> = workload
                .candidates
                .iter()
                .filter(|candidate| candidate.is_peer())
                .map(|candidate| candidate.column())
                .collect();
            for candidate in workload.candidates.iter().filter(|who| !who.is_peer()) {
                let column = candidate.column();
                let ratio = figures.to_best(&workload.row, column, &peers)?;
                let goal = workload.goals.iter().find(|(who, _)| who == candidate);
                let verdict = goal.map(|(_, bound)| bound.verdict(ratio));
                writeln!(
                    page,
                    "| {}, {column} | {ratio:.2} | {} |",
                    workload.row,
                    verdict.unwrap_or_default()
                )?;
            }
        }
        writeln!(page, "{more}\n## Raw\n\n```\n{}```", figures.raw())?;
        Ok(page)
    }

    /// Prints the page, and writes it to a file unless this is a trial.
    pub fn keep(&self, args: &Args, page: &str) -> Result<()> {
        args.keep(self.name, page)
    }
}

fn memory_row(row: &str) -> String {
    format!("{row}: memory of the process")
}

fn requests_row(row: &str) -> String {
    format!("{row}: requests a turn")
}

fn events_row(row: &str) -> String {
    format!("{row}: events a turn")
}
