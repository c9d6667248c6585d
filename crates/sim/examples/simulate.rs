//! Runs recipes on simulated machines, from the command line.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is the command"
)]

use std::collections::BTreeSet;
use std::fmt;
use std::num::ParseIntError;
use std::ops::ControlFlow;
use std::process::{Command, ExitCode};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use bellwether_sim::mistakes::{self, Mistake, Workspace};
use bellwether_sim::recipes::{self, Runner};
use bellwether_sim::{Ms, Part, Plan, shrink};
use clap::{Parser, ValueEnum};
use nix::time::{ClockId, clock_gettime};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs recipes on simulated machines, one run for each seed, and prints violations.
///
/// Example: simulate --recipe lock --seeds 1000
#[derive(Debug, Parser)]
struct Args {
    /// The recipe; all of them unless named, or the one that shows the mistake.
    #[arg(long)]
    recipe: Option<String>,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Runs further seeds until this many seconds of virtual time have passed, for each recipe. To continue an interrupted run, start
    /// with the seed after the last line that it printed.
    #[arg(long)]
    virtual_seconds: Option<u64>,
    /// Number of concurrent runs; the number of cores by default.
    #[arg(long)]
    jobs: Option<usize>,
    /// Ten workers that are mostly idle, session timeouts of 30 s and an hour of faults for each seed.
    #[arg(long)]
    long: bool,
    /// Connections break all the time, and writes arrive behind their retries.
    #[arg(long, conflicts_with_all = ["long", "server"])]
    torn: bool,
    /// An operator deletes directories now and then.
    #[arg(long, conflicts_with_all = ["long", "server", "torn"])]
    wiped: bool,
    /// What serves the workers: the model of an ensemble, or the embedded server with its disk.
    #[arg(long, value_enum)]
    server: Option<Server>,
    /// Only this many workers. With --duration and --faults, repeats the small run that was printed after a failure.
    #[arg(long)]
    workers: Option<usize>,
    /// For how many milliseconds faults happen.
    #[arg(long)]
    duration: Option<Ms>,
    /// Only these faults of the run, by their places in its list; or `none`.
    #[arg(long)]
    faults: Option<Places>,
    /// A deliberate mistake in the recipes, the client or the server, on the servers and with the faults that show it.
    #[arg(long, value_parser = mistake_of)]
    mistake: Option<&'static Mistake>,
    /// Prints the first seed that shows each deliberate mistake, or the one of that name.
    #[arg(long)]
    table: bool,
    /// Runs each seed twice, and compares the two event by event.
    #[arg(long)]
    twice: bool,
    /// Prints every event.
    #[arg(long)]
    trace: bool,
    /// Prints a checksum of each run, seed by seed, in a stable order, for each kind of plan. Two versions of the code that print the same
    /// sums have sent the same requests at the same moments.
    #[arg(long)]
    sums: bool,
    /// Prints a failing run as it is, without shrinking it.
    #[arg(long)]
    no_shrink: bool,
}

/// A kind of server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Server {
    Ensemble,
    Embedded,
}

/// Places in a list, such as `0,3,4`, or `none`.
#[derive(Debug, Clone)]
struct Places(Vec<usize>);

impl FromStr for Places {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<Self, ParseIntError> {
        match text {
            "none" => Ok(Self(Vec::new())),
            _ => text
                .split(',')
                .map(str::parse)
                .collect::<Result<_, _>>()
                .map(Self),
        }
    }
}

impl fmt::Display for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places: Vec<String> = self.0.iter().map(usize::to_string).collect();
        match places.is_empty() {
            true => f.write_str("none"),
            false => f.write_str(&places.join(",")),
        }
    }
}

fn mistake_of(name: &str) -> Result<&'static Mistake, String> {
    Mistake::find(name).ok_or_else(|| {
        let names: Vec<_> = mistakes::ALL.iter().map(|mistake| mistake.name).collect();
        format!("no such mistake; there are {}", names.join(", "))
    })
}

impl Args {
    /// The plan of a seed.
    fn plan(&self, seed: u64) -> Plan {
        let plan = match (self.server, self.long) {
            _ if self.torn => Plan::torn(seed),
            _ if self.wiped => Plan::wiped(seed),
            (Some(Server::Embedded), false) => Plan::embedded(seed),
            (Some(Server::Embedded), true) => Plan::long_embedded(seed),
            (_, true) => Plan::long(seed),
            (None, false) if let Some(mistake) = self.mistake => mistake.plan(seed),
            (_, false) => Plan::of(seed),
        };
        match self.mistake {
            Some(mistake) => mistake.make(plan),
            None => plan,
        }
    }

    /// The part of a plan that was asked for.
    fn part(&self, plan: &Plan) -> Part {
        let all = Part::all(plan);
        Part {
            workers: self.workers.unwrap_or(all.workers),
            duration: self.duration.unwrap_or(all.duration),
            faults: self.faults.clone().map_or(all.faults, |places| places.0),
        }
    }

    /// Options that repeat a run.
    fn again(&self, seed: u64, part: &Part, plan: &Plan) -> String {
        let mut text = format!("--seed {seed}");
        if self.long {
            text += " --long";
        }
        if self.torn {
            text += " --torn";
        }
        if self.wiped {
            text += " --wiped";
        }
        text += match self.server {
            Some(Server::Ensemble) => " --server ensemble",
            Some(Server::Embedded) => " --server embedded",
            None => "",
        };
        if let Some(mistake) = self.mistake {
            text += &format!(" --mistake {}", mistake.name);
        }
        if *part != Part::all(plan) {
            text += &format!(
                " --workers {} --duration {} --faults {}",
                part.workers,
                part.duration,
                Places(part.faults.clone())
            );
        }
        text
    }
}

/// Totals over the runs of a recipe, or of all.
#[derive(Default, Clone, Copy)]
struct Tally {
    runs: u64,
    wrong: u64,
    events: u64,
    rounds: u64,
    simulated: Duration,
    worker_seconds: f64,
    /// CPU time of the threads that ran them, shrinking included.
    cpu: Duration,
}

/// A recipe, and what its runs have shown so far.
struct Subject {
    name: &'static str,
    run: Runner,
    progress: Mutex<Progress>,
}

#[derive(Default)]
struct Progress {
    /// Number of seeds that were handed out, and those whose runs are not over.
    seeds: u64,
    running: BTreeSet<u64>,
    tally: Tally,
    /// Tenths of the virtual time for which a line was printed.
    tenths: u64,
}

fn main() -> ExitCode {
    let args = Args::parse();
    let jobs = args.jobs.unwrap_or_else(|| {
        let processors = thread::available_parallelism();
        processors.map_or(1, usize::from)
    });
    if (args.table || args.mistake.is_some()) && !mistakes::ARE_HERE {
        return run_in_the_copy();
    }
    if args.table {
        return print_table(&args, jobs);
    }
    let of_mistake = args.mistake.map(|mistake| mistake.recipe.to_owned());
    let wanted = args.recipe.clone().or(of_mistake);
    let is_wanted = |name: &str| match &wanted {
        Some(wanted) => wanted == name,
        None => recipes::ALL.iter().any(|(known, _)| *known == name),
    };
    let subjects: Vec<Subject> = recipes::every()
        .filter(|(name, _)| is_wanted(name))
        .map(|(name, run)| Subject {
            name,
            run: *run,
            progress: Mutex::default(),
        })
        .collect();
    if subjects.is_empty() {
        let names: Vec<_> = recipes::every().map(|(name, _)| *name).collect();
        eprintln!("no such recipe; there are {}", names.join(", "));
        return ExitCode::from(2);
    }
    if args.sums {
        print_sums(&args, &subjects, jobs);
        return ExitCode::SUCCESS;
    }
    in_parallel(jobs, |_| {
        // One recipe after the other, so that each has its line as soon as possible.
        let next = subjects
            .iter()
            .find_map(|subject| Some((subject, subject.next_seed(&args)?)));
        match next {
            Some((subject, seed)) => {
                subject.run_seed(&args, seed);
                ControlFlow::Continue(())
            }
            None => ControlFlow::Break(()),
        }
    });
    let mut total = Tally::default();
    for subject in &subjects {
        total.add(&locked(&subject.progress).tally);
    }
    if subjects.len() > 1 {
        println!("all: {total}");
    }
    match total.wrong {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

impl Subject {
    /// The next seed to run, unless there are enough.
    fn next_seed(&self, args: &Args) -> Option<u64> {
        let mut progress = locked(&self.progress);
        if progress.is_enough(args) {
            return None;
        }
        let seed = args.seed + progress.seeds;
        progress.seeds += 1;
        progress.running.insert(seed);
        Some(seed)
    }

    fn run_seed(&self, args: &Args, seed: u64) {
        let Self { name, run, .. } = *self;
        let whole = args.plan(seed);
        let mut plan = args.part(&whole).of(&whole);
        plan.with_trace = args.trace;
        let before = cpu_time();
        let verdict = run(&plan);
        let differs = args.twice && run(&plan).sum != verdict.sum;
        let mut report: String = verdict.trace.iter().flat_map(|line| [line, "\n"]).collect();
        if differs {
            report += &format!("{name}, seed {seed}: two runs differ\n");
        }
        let is_wrong = verdict.violation.is_some();
        if let Some(violation) = verdict.violation {
            report += &describe(args, name, run, &whole, violation);
        }
        if !report.is_empty() {
            println!("{}", report.trim_end());
        }
        let tally = Tally {
            runs: 1,
            wrong: u64::from(differs) + u64::from(is_wrong),
            events: verdict.events,
            rounds: verdict.rounds,
            simulated: verdict.simulated,
            worker_seconds: verdict.simulated.as_secs_f64() * plan.workers as f64,
            cpu: cpu_time() - before,
        };
        self.add(args, seed, &tally);
    }

    /// Adds a run. Prints a line after the last one, and after each tenth of a long run.
    fn add(&self, args: &Args, seed: u64, run: &Tally) {
        let mut progress = locked(&self.progress);
        progress.tally.add(run);
        progress.running.remove(&seed);
        let is_over = progress.is_enough(args) && progress.running.is_empty();
        let tenths = args.virtual_seconds.map_or(0, |seconds| {
            10 * progress.tally.simulated.as_secs() / seconds.max(1)
        });
        if is_over || tenths > progress.tenths {
            progress.tenths = tenths;
            // All seeds before this one are done.
            let open = progress.running.first().copied();
            let open = open.unwrap_or(args.seed + progress.seeds);
            println!(
                "{}: seeds {} to {}: {}",
                self.name,
                args.seed,
                open.saturating_sub(1),
                progress.tally
            );
        }
    }
}

impl Progress {
    fn is_enough(&self, args: &Args) -> bool {
        match args.virtual_seconds {
            Some(seconds) => self.tally.simulated.as_secs() >= seconds,
            None => self.seeds >= args.seeds,
        }
    }
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.wrong += other.wrong;
        self.events += other.events;
        self.rounds += other.rounds;
        self.simulated += other.simulated;
        self.worker_seconds += other.worker_seconds;
        self.cpu += other.cpu;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = self.cpu.as_secs_f64();
        write!(
            f,
            "{} runs, {} violations, {:.0} virtual seconds, {cpu:.1} CPU seconds, {} rounds, {} events; {:.0} virtual seconds of ten workers per CPU second",
            self.runs,
            self.wrong,
            self.simulated.as_secs_f64(),
            self.rounds,
            self.events,
            self.worker_seconds / 10.0 / cpu,
        )
    }
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map(Duration::from).unwrap_or_default()
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

/// Describes the violation, in the smallest run that shows it, and how to repeat that run.
fn describe(args: &Args, name: &str, run: Runner, whole: &Plan, violation: String) -> String {
    let is_part = args.part(whole) != Part::all(whole);
    let (part, violation) = match args.no_shrink || is_part {
        true => (args.part(whole), violation),
        false => shrink(run, whole),
    };
    let plan = part.of(whole);
    let mut text = format!(
        "{name}, seed {}: {violation}\n  {} workers, {} servers, session timeout {} ms, tick {} ms; faults:\n",
        plan.seed, plan.workers, plan.servers.members, plan.session_timeout, plan.servers.tick
    );
    for (at, fault) in &plan.faults {
        text += &format!("  {:>10.3} {fault}\n", *at as f64 / 1_000.0);
    }
    text + &format!(
        "  again: cargo run --profile sim -p bellwether-sim --example simulate -- --recipe {name} {}\n",
        args.again(plan.seed, &part, whole)
    )
}

/// Plans whose runs have checksums.
type NamedPlan = (&'static str, fn(u64) -> Plan);
const PLANS: [NamedPlan; 6] = [
    ("ensemble", Plan::of),
    ("torn", Plan::torn),
    ("wiped", Plan::wiped),
    ("embedded", Plan::embedded),
    ("starved", Plan::starved),
    ("failing-disk", Plan::failing_disk),
];

/// Prints a checksum of each run: recipe, plan, seed, sum.
fn print_sums(args: &Args, subjects: &[Subject], jobs: usize) {
    let seeds = args.seed..args.seed + args.seeds;
    let mut runs = Vec::new();
    for subject in subjects {
        for (plan, make) in PLANS {
            runs.extend((seeds.clone()).map(|seed| (subject, plan, make, seed)));
        }
    }
    let sums = Mutex::new(vec![0; runs.len()]);
    in_parallel(jobs, |number| {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some((subject, _, make, seed)) = runs.get(number) else {
            return ControlFlow::Break(());
        };
        let sum = (subject.run)(&make(*seed)).sum;
        locked(&sums)[number] = sum;
        ControlFlow::Continue(())
    });
    for ((subject, plan, _, seed), sum) in runs.iter().zip(&*locked(&sums)) {
        println!("{} {plan} {seed} {sum:016x}", subject.name);
    }
}

/// Runs the program of the patched copy, which it builds first, with the same arguments.
fn run_in_the_copy() -> ExitCode {
    let status = Workspace::default().build().and_then(|programs| {
        let arguments = std::env::args_os().skip(1);
        Ok(Command::new(programs.simulate).args(arguments).status()?)
    });
    match status {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints after how many seeds each deliberate mistake is found.
fn print_table(args: &Args, jobs: usize) -> ExitCode {
    let seeds = args.seeds.max(200);
    let mistakes: Vec<&Mistake> = match args.mistake {
        Some(mistake) => vec![mistake],
        None => mistakes::ALL.iter().collect(),
    };
    let is_complete = Mutex::new(true);
    in_parallel(jobs, |number| {
        let number = usize::try_from(number).unwrap_or(usize::MAX);
        let Some(mistake) = mistakes.get(number) else {
            return ControlFlow::Break(());
        };
        let found = match mistake.first_seed(seeds) {
            Ok(Some((seed, _))) => format!("{}", seed + 1),
            other => {
                *locked(&is_complete) = false;
                other.err().unwrap_or_else(|| "not found".to_owned())
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
