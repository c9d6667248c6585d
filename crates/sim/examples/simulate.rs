//! Runs recipes on simulated machines, from the command line.

#![expect(clippy::print_stdout, reason = "this is the command")]

use std::ops::ControlFlow;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use bellwether_sim::mistakes::{self, Mistake};
use bellwether_sim::recipes::{self, Runner};
use bellwether_sim::{Plan, shrink};
use clap::{Parser, ValueEnum};

/// Runs recipes on simulated machines, one run for each seed, and prints violations.
///
/// Example: simulate --recipe lock --seeds 1000
#[derive(Debug, Parser)]
struct Args {
    /// The recipe; all of them unless named.
    #[arg(long)]
    recipe: Option<String>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Runs further seeds until this many seconds of virtual time have passed, for each recipe.
    #[arg(long)]
    virtual_seconds: Option<u64>,
    /// Number of concurrent runs; the number of cores by default.
    #[arg(long)]
    jobs: Option<usize>,
    /// Ten workers, session timeouts of 30 s and an hour of faults for each seed.
    #[arg(long)]
    long: bool,
    /// What serves the workers: the model of an ensemble, or the embedded server with its disk.
    #[arg(long, value_enum, default_value_t)]
    server: Server,
    /// A deliberate mistake to enable in the recipes or in the server.
    #[arg(long)]
    mistake: Option<String>,
    /// Prints the first seed that shows each deliberate mistake.
    #[arg(long)]
    table: bool,
    /// Runs each seed twice, and compares the two event by event.
    #[arg(long)]
    twice: bool,
    /// Prints every event.
    #[arg(long)]
    trace: bool,
    /// Prints a failing run as it is, without shrinking it.
    #[arg(long)]
    no_shrink: bool,
}

/// A kind of server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
enum Server {
    #[default]
    Ensemble,
    Embedded,
}

/// Totals over all runs.
#[derive(Default)]
struct Tally {
    runs: u64,
    wrong: u64,
    events: u64,
    rounds: u64,
    simulated: Duration,
    worker_seconds: f64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let jobs = args.jobs.unwrap_or_else(|| {
        let processors = thread::available_parallelism();
        processors.map_or(1, usize::from)
    });
    if args.table {
        return print_table(args.seeds.max(200), jobs);
    }
    let is_wanted = |name: &str| args.recipe.as_ref().is_none_or(|wanted| wanted == name);
    let subjects: Vec<Subject> = recipes::ALL
        .iter()
        .filter(|(name, _)| is_wanted(name))
        .map(|(name, run)| Subject {
            name,
            run: *run,
            passed_ms: AtomicU64::new(0),
        })
        .collect();
    if subjects.is_empty() {
        println!("no such recipe");
        return ExitCode::from(2);
    }
    let tally = Mutex::new(Tally::default());
    let started = Instant::now();
    in_parallel(jobs, |number| {
        let count = subjects.len() as u64;
        let subject = &subjects[usize::try_from(number % count).unwrap_or(0)];
        let seed = number / count;
        let is_over = |subject: &Subject| match args.virtual_seconds {
            Some(seconds) => subject.passed_ms.load(Ordering::Relaxed) >= 1_000 * seconds,
            None => seed >= args.seeds,
        };
        if subjects.iter().all(is_over) {
            return ControlFlow::Break(());
        }
        if !is_over(subject) {
            run_seed(&args, subject, args.seed + seed, &tally);
        }
        ControlFlow::Continue(())
    });
    let seconds = started.elapsed().as_secs_f64();
    let tally = locked(&tally);
    println!(
        "{} runs, {} wrong: {:.0} s of virtual time in {seconds:.1} s, {} rounds, {} events; {:.0} s of ten workers per second",
        tally.runs,
        tally.wrong,
        tally.simulated.as_secs_f64(),
        tally.rounds,
        tally.events,
        tally.worker_seconds / 10.0 / seconds,
    );
    match tally.wrong {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

/// A recipe, and how much virtual time its runs have taken.
struct Subject {
    name: &'static str,
    run: Runner,
    passed_ms: AtomicU64,
}

/// Calls `act` with 0, 1, 2 and so on, from `jobs` threads, until it breaks off.
fn in_parallel(jobs: usize, act: impl Fn(u64) -> ControlFlow<()> + Sync) {
    let next = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| while act(next.fetch_add(1, Ordering::Relaxed)).is_continue() {});
        }
    });
}

fn locked<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_seed(args: &Args, subject: &Subject, seed: u64, tally: &Mutex<Tally>) {
    let Subject { name, run, .. } = *subject;
    let mut plan = match (args.server, args.long) {
        (Server::Embedded, _) => Plan::embedded(seed),
        (_, true) => Plan::long(seed),
        (_, false) => Plan::of(seed),
    };
    let mistake = args.mistake.as_ref().and_then(|name| Mistake::find(name));
    if let Some(mistake) = mistake {
        plan = mistake.make(plan);
    }
    plan.with_trace = args.trace;
    let verdict = run(&plan);
    let passed_ms = u64::try_from(verdict.simulated.as_millis()).unwrap_or(u64::MAX);
    subject.passed_ms.fetch_add(passed_ms, Ordering::Relaxed);
    let differs = args.twice && run(&plan).sum != verdict.sum;
    let mut report = verdict.trace.join("\n");
    if differs {
        report += &format!("{name}, seed {seed}: two runs differ\n");
    }
    let is_wrong = verdict.violation.is_some();
    if let Some(violation) = verdict.violation {
        plan.with_trace = false;
        report += &describe(args, name, run, &plan, violation);
    }
    let mut tally = locked(tally);
    tally.runs += 1;
    tally.wrong += u64::from(differs) + u64::from(is_wrong);
    tally.events += verdict.events;
    tally.rounds += verdict.rounds;
    tally.simulated += verdict.simulated;
    tally.worker_seconds += verdict.simulated.as_secs_f64() * plan.workers as f64;
    if !report.is_empty() {
        println!("{}", report.trim_end());
    }
}

/// Describes the violation, in the smallest run that shows it, and how to repeat that run.
fn describe(args: &Args, name: &str, run: Runner, plan: &Plan, violation: String) -> String {
    let (plan, violation) = match args.no_shrink {
        true => (plan.clone(), violation),
        false => shrink(run, plan),
    };
    let mut text = format!(
        "{name}, seed {}: {violation}\n  {} workers, {} servers, session timeout {} ms, tick {} ms; faults:\n",
        plan.seed, plan.workers, plan.servers.members, plan.session_timeout, plan.servers.tick
    );
    for (at, fault) in &plan.faults {
        text += &format!("  {:>10.3} {fault}\n", *at as f64 / 1_000.0);
    }
    let mut more = match args.long {
        true => " --long".to_owned(),
        false => String::new(),
    };
    if args.server == Server::Embedded {
        more += " --server embedded";
    }
    if let Some(mistake) = &args.mistake {
        more += &format!(" --mistake {mistake}");
    }
    text + &format!(
        "  again: cargo run --profile sim -p bellwether-sim --example simulate -- --recipe {name} --seed {}{more}\n",
        plan.seed
    )
}

/// Prints after how many seeds each deliberate mistake is found.
fn print_table(seeds: u64, jobs: usize) -> ExitCode {
    let is_complete = Mutex::new(true);
    in_parallel(jobs, |number| {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(mistake) = mistakes::ALL.get(number) else {
            return ControlFlow::Break(());
        };
        let found = match mistake.first_seed(seeds) {
            Some((seed, _)) => format!("{}", seed + 1),
            None => {
                *locked(&is_complete) = false;
                "not found".to_owned()
            }
        };
        println!("| {} | {} | {found} |", mistake.name, mistake.recipe);
        ControlFlow::Continue(())
    });
    match *locked(&is_complete) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
