//! Sessions that come and go for a long time, while their connections fail: nothing may grow.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bellwether::{
    Barrier, Client, Counter, Error, ErrorKind, Group, Lock, Queue, Semaphore, connect,
};
use bellwether_bench::measure::machine::machine;
use bellwether_bench::server_process::{Kind, ServerProcess, resident_kib};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Climate, FaultProxy, Forecast, Forewarning, Scope, Target};
use clap::Parser;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

/// Lets sessions come and go for a long time, while their connections fail, and looks for what grows.
#[derive(Debug, Parser)]
struct Args {
    /// The `bellwether` whose server is used.
    #[arg(long)]
    server: PathBuf,
    /// How long it takes, in minutes.
    #[arg(long, default_value_t = 60.0)]
    minutes: f64,
    /// Programs that open one session after another.
    #[arg(long, default_value_t = 30)]
    clients: usize,
    /// Determines what the clients do, and which faults happen when.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The file for the result.
    #[arg(long, default_value = "crates/bench/results/soak.md")]
    result: PathBuf,
}

const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// No step of a client takes longer; faults are shorter.
const STEP_MAX: Duration = Duration::from_secs(10);

/// Looks at server and clients in a run.
const SAMPLES: u32 = 20;

/// How long the last sessions may take to expire.
const END_MAX: Duration = Duration::from_secs(60);

/// So small that logs and snapshots are made and purged all the time.
const SETTINGS: &str = "tickTime=500\n4lw.commands.whitelist=mntr\nsnapCount=2000\npreAllocSize=1024\n\
    autopurge.purgeInterval=1\nautopurge.snapRetainCount=3\nznode.container.checkIntervalMs=5000\n";

#[tokio::main]
async fn main() -> Result<()> {
    let args = Args::parse();
    let folder = tempfile::tempdir()?;
    let kind = Kind::Ours(args.server.clone());
    let server = ServerProcess::start(&kind, folder.path(), SETTINGS)?;
    let scene = Scene {
        address: server.address.clone(),
        server: server.id().to_string(),
        files: folder.path().join("data/version-2"),
        counts: Arc::default(),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let mut targets = Vec::new();
    let mut clients = JoinSet::new();
    for number in 0..args.clients {
        let proxy = FaultProxy::start(&server.address).await?;
        let address = proxy.connect_string();
        targets.push(Arc::new(Target {
            proxy,
            process: None,
        }));
        let random = StdRng::seed_from_u64(args.seed + number as u64);
        clients.spawn(live(address, random, scene.counts.clone(), stop.clone()));
    }
    let faults = tokio::spawn(disturb(targets, args.seed, scene.counts.clone()));

    println!("{TITLES}");
    let begin = Instant::now();
    let whole = Duration::from_secs_f64(args.minutes * 60.0);
    let mut samples = Vec::new();
    for number in 1..=SAMPLES {
        sleep_until(begin + whole * number / SAMPLES).await;
        let sample = scene.look(begin).await?;
        println!("{}", sample.row());
        samples.push(sample);
    }
    stop.store(true, Relaxed);
    faults.abort();
    while clients.join_next().await.is_some() {}
    let end = scene.end(begin).await?;
    println!("{}", end.row());

    let report = report(&args, &scene, &samples, &end)?;
    fs::write(&args.result, report)?;
    println!("kept in {}", args.result.display());
    let growing = growing(&samples);
    ensure!(growing.is_empty(), "these grow: {growing:?}");
    Ok(())
}

/// What has happened.
#[derive(Debug, Default)]
struct Counts {
    sessions: AtomicU64,
    steps: AtomicU64,
    failed_steps: AtomicU64,
    faults: AtomicU64,
}

/// Faults of all connections, until it is aborted.
async fn disturb(targets: Vec<Arc<Target>>, seed: u64, counts: Arc<Counts>) {
    let climate = Climate {
        contenders: targets.len(),
        session_timeout: SESSION_TIMEOUT,
        calm_max: Duration::from_millis(200),
        scope: Scope {
            links: true,
            pauses: false,
            kills: false,
            restarts: false,
        },
    };
    let mut lasting = JoinSet::new();
    for Forewarning {
        after, who, spell, ..
    } in Forecast::new(seed, climate)
    {
        sleep_until(Instant::now() + after).await;
        let target = targets[who].clone();
        counts.faults.fetch_add(1, Relaxed);
        lasting.spawn(async move { target.befall(spell, |_| {}).await });
        while lasting.try_join_next().is_some() {}
    }
}

/// One session after another, until `stop`.
async fn live(address: String, mut random: StdRng, counts: Arc<Counts>, stop: Arc<AtomicBool>) {
    while !stop.load(Relaxed) {
        let connecting = connect(&address).session_timeout(SESSION_TIMEOUT);
        let Ok(Ok(client)) = timeout(STEP_MAX, connecting.into_future()).await else {
            continue;
        };
        counts.sessions.fetch_add(1, Relaxed);
        for _ in 0..random.random_range(1..10) {
            let step = timeout(STEP_MAX, step(&client, &mut random)).await;
            counts.steps.fetch_add(1, Relaxed);
            // Faults make steps fail; a later one succeeds.
            if !matches!(step, Ok(Ok(()))) {
                counts.failed_steps.fetch_add(1, Relaxed);
            }
        }
        // Otherwise it is closed in the background, when it is dropped.
        if random.random() {
            let _ = timeout(STEP_MAX, client.close()).await;
        }
    }
}

/// One use of a recipe, which ends by a release or by a drop.
async fn step(client: &Client, random: &mut StdRng) -> Result<()> {
    const WAIT: Duration = Duration::from_secs(1);
    let is_released: bool = random.random();
    let few = random.random_range(0..5);
    match random.random_range(0..7) {
        0 => {
            let lock = Lock::new(client, format!("/soak/lock-{few}"));
            let guard = lock.acquire_timeout(WAIT).await?;
            if is_released {
                guard.release().await?;
            }
        }
        1 => {
            let semaphore = Semaphore::new(client, "/soak/semaphore", 5);
            let permit = semaphore.acquire_timeout(WAIT).await?;
            if is_released {
                permit.release().await?;
            }
        }
        2 => {
            let queue = Queue::<String>::new(client, "/soak/queue").depth_max(50);
            queue.put(&"item".to_owned()).await?;
        }
        3 => {
            let queue = Queue::<String>::new(client, "/soak/queue").attempts_max(u32::MAX);
            match queue.take_timeout(WAIT).await {
                Ok(claim) if is_released => claim.ack().await?,
                Ok(_)
                | Err(Error {
                    kind: ErrorKind::TimedOut { .. },
                    ..
                }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        4 => drop(Counter::new(client, "/soak/counter").add(1).await?),
        5 => {
            let group = Group::new(client, "/soak/group");
            let membership = group.join("member").await?;
            drop(group.members().await?);
            if is_released {
                membership.leave().await;
            }
        }
        _ => {
            let barrier = Barrier::new(client, format!("/soak/barrier-{few}"));
            match is_released {
                true => drop(barrier.set().await?),
                false => drop(barrier.lift().await?),
            }
            // Arms a watch, and leaves it to the drop.
            let _ = barrier.wait_timeout(Duration::from_millis(100)).await;
        }
    }
    Ok(())
}

/// What is looked at.
struct Scene {
    address: String,
    server: String,
    files: PathBuf,
    counts: Arc<Counts>,
}

const TITLES: &str = "\
| minute | sessions so far | server MiB | descriptors | files | files MiB | connections | sessions | watches | nodes | ephemerals | clients MiB | descriptors of clients |
|---|---|---|---|---|---|---|---|---|---|---|---|---|";

/// One look. The numbers are in the order of the titles, from the third on.
struct Sample {
    minute: f64,
    opened: u64,
    numbers: [u64; 11],
}

/// The names of the numbers, and how much each may grow by chance.
const NUMBERS: [(&str, u64); 11] = [
    ("server MiB", 10),
    ("descriptors", 20),
    ("files", 3),
    ("files MiB", 10),
    ("connections", 20),
    ("sessions", 20),
    ("watches", 100),
    ("nodes", 200),
    ("ephemerals", 100),
    ("clients MiB", 15),
    ("descriptors of clients", 50),
];

impl Scene {
    async fn look(&self, begin: Instant) -> Result<Sample> {
        let monitor = four_letter_word(&self.address, "mntr").await?;
        let of = |key: &str| -> Result<u64> {
            let line = monitor.lines().find_map(|line| line.strip_prefix(key));
            let value = line.with_context(|| format!("no {key}"))?.trim();
            value.parse().with_context(|| format!("{key}: {value}"))
        };
        let (files, bytes) = files_in(&self.files)?;
        Ok(Sample {
            minute: begin.elapsed().as_secs_f64() / 60.0,
            opened: self.counts.sessions.load(Relaxed),
            numbers: [
                resident_kib(&self.server)? >> 10,
                descriptors(&self.server)?,
                files,
                bytes >> 20,
                of("zk_num_alive_connections\t")?,
                of("zk_global_sessions\t")?,
                of("zk_watch_count\t")?,
                of("zk_znode_count\t")?,
                of("zk_ephemerals_count\t")?,
                resident_kib("self")? >> 10,
                descriptors("self")?,
            ],
        })
    }

    /// A look when the last session has expired.
    async fn end(&self, begin: Instant) -> Result<Sample> {
        let limit = Instant::now() + END_MAX;
        loop {
            let sample = self.look(begin).await?;
            let [_, _, _, _, _, sessions, watches, _, ephemerals, ..] = sample.numbers;
            if sessions + watches + ephemerals == 0 {
                return Ok(sample);
            }
            ensure!(Instant::now() < limit, "left behind: {}", sample.row());
            sleep_until(Instant::now() + Duration::from_millis(200)).await;
        }
    }
}

impl Sample {
    fn row(&self) -> String {
        let numbers = self.numbers.map(|number| number.to_string()).join(" | ");
        format!("| {:.1} | {} | {numbers} |", self.minute, self.opened)
    }
}

fn descriptors(process: &str) -> Result<u64> {
    Ok(fs::read_dir(format!("/proc/{process}/fd"))?.count() as u64)
}

/// How many files there are, and how many bytes they take.
fn files_in(folder: &Path) -> Result<(u64, u64)> {
    let mut sum = (0, 0);
    for entry in fs::read_dir(folder)? {
        // Files are purged meanwhile.
        if let Ok(metadata) = entry?.metadata() {
            sum = (sum.0 + 1, sum.1 + metadata.len());
        }
    }
    Ok(sum)
}

/// The numbers whose median of the last quarter is more than that of the second, by more than a quarter and by more than chance.
fn growing(samples: &[Sample]) -> Vec<String> {
    let quarter = samples.len() / 4;
    let median = |samples: &[Sample], index: usize| {
        let mut values: Vec<_> = samples.iter().map(|sample| sample.numbers[index]).collect();
        values.sort_unstable();
        values[values.len() / 2]
    };
    let mut growing = Vec::new();
    for (index, (name, chance)) in NUMBERS.into_iter().enumerate() {
        let early = median(&samples[quarter..2 * quarter], index);
        let late = median(&samples[samples.len() - quarter..], index);
        if late > early + chance && late * 4 > early * 5 {
            growing.push(format!("{name}: {early}, then {late}"));
        }
    }
    growing
}

fn report(args: &Args, scene: &Scene, samples: &[Sample], end: &Sample) -> Result<String> {
    let counts = &scene.counts;
    let mut text = format!("# Sessions that come and go\n\n{}\n\n", machine()?);
    writeln!(
        text,
        "{} clients for {} minutes, seed {}: each opens one session after another through a fault proxy of its own, uses locks, semaphores, queues, counters, groups and \
         barriers, and closes the session or drops it. {} sessions, {} steps of which {} failed, {} faults of connections: cut, refused, held back, \
         delayed, replies and requests lost, sessions expired. A log and a snapshot for every 2,000 writes, three snapshots kept.\n",
        args.clients,
        args.minutes,
        args.seed,
        counts.sessions.load(Relaxed),
        counts.steps.load(Relaxed),
        counts.failed_steps.load(Relaxed),
        counts.faults.load(Relaxed),
    )?;
    writeln!(text, "{TITLES}")?;
    for sample in samples {
        writeln!(text, "{}", sample.row())?;
    }
    let growing = growing(samples);
    let verdict = match growing.is_empty() {
        true => "Nothing grows".to_owned(),
        false => format!("**These grow: {}**", growing.join("; ")),
    };
    writeln!(
        text,
        "\n{verdict}: medians of the second and of the last quarter. After the last session had expired:\n\n{TITLES}\n{}",
        end.row()
    )?;
    Ok(text)
}
