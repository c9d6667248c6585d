//! Recipes of several libraries, alternately, in one run, and the page that tells how they did.

#![allow(clippy::print_stdout, reason = "a comparison reports as it goes")]

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::comparison::Bound;
use crate::figures::Figures;
use crate::machine::machine;
use crate::packets::Packets;
use crate::peer::{Outcome, Peer, Task};
use crate::server_process::{Kind, ServerProcess};

/// How long each may take to open its session and queue up: counting begins when all of them are there.
const QUEUE_UP: Duration = Duration::from_millis(5);

/// What every comparison wants to know.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The `bellwether` to compare.
    #[arg(long)]
    pub server: PathBuf,
    /// The example `rust_peer`.
    #[arg(long)]
    pub rust_peer: String,
    /// How Curator's peer is started.
    #[arg(long)]
    pub curator_peer: String,
    /// How kazoo's peer is started.
    #[arg(long)]
    pub kazoo_peer: String,
    /// How often each is measured.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// For how long turns are counted each time.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// A single round, whose result is not kept.
    #[arg(long)]
    pub quick: bool,
    /// Where the result is kept.
    #[arg(long, default_value = "crates/bench/results")]
    pub results: PathBuf,
}

impl Args {
    /// In how many rounds figures are taken, behind one that is thrown away.
    pub fn rounds(&self) -> usize {
        if self.quick { 1 } else { self.rounds }
    }

    /// Shows a page, and keeps it unless it was only a trial.
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

/// Who is measured: a library, on a server.
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
    /// What stands above its figures.
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

    /// Whether it is the work of others.
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

/// What is done over and over, and counted.
#[derive(Debug)]
pub struct Workload {
    /// What stands before its figures.
    pub row: String,
    /// The recipe as the peers know it.
    pub recipe: &'static str,
    /// How many take part.
    pub contenders: usize,
    /// What is counted.
    pub count: fn(&Outcome) -> u64,
    /// Who takes part.
    pub candidates: &'static [Candidate],
    /// In how many rounds at most: some take long.
    pub rounds_max: usize,
    /// How many times the best peer's figure is aimed at.
    pub goals: Vec<(Candidate, Bound)>,
}

impl Workload {
    /// On how many sessions: one for each who takes part, but a cache is one, however many nodes it has.
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
    /// What stands at the head of the page.
    pub title: &'static str,
    /// What a reader has to know to read the figures.
    pub about: &'static str,
    /// Who takes part in any of the workloads.
    pub candidates: &'static [Candidate],
    /// What is measured.
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

    /// Where they listen.
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
    /// Measures everybody in turn, round by round; `beside` adds what else belongs into a round.
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
        // Nobody is measured cold: the first round is thrown away.
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
                    // The others go on, and the page tells.
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

    /// The tables, behind them what `more` says, and the raw figures.
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

    /// Shows the page, and keeps it unless it was only a trial.
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
