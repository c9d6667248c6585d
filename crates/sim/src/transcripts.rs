//! What each verb of the recipes sends, without faults: recorded in `docs/requests`, one file a recipe, and compared.
//!
//! The servers are those of the simulation, a single one and an ensemble of three, and nothing is left to chance: a message takes a
//! millisecond, servers answer at once, and a task that can run does so before anything else happens. So the requests of one packet are
//! those that leave before an answer to any of them arrives. Heartbeats are left out, and so is the end of the sessions.

mod names;
mod scenarios;
mod tape;

use std::cell::RefCell;
use std::fmt::{Debug, Write as _};
use std::path::PathBuf;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use bellwether::{Client, connect};
use bellwether_client::environment;
use rand::SeedableRng as _;
use rand::rngs::StdRng;

use crate::plan::Plan;
use crate::run::{play, runtime};
use crate::servers::{AnyServers, Ensemble, EnsembleSettings};
use crate::stage::Stage;
use crate::world::{Core, Executor, Net, OBSERVER, SimDial, Trace};

use tape::{Tap, Tape, TapeStep};

/// Rewrites the files instead of comparing them.
const REWRITE: &str = "BELLWETHER_REWRITE_REQUESTS";

/// Longer than anything takes that does not wait for another client.
const SETTLED: Duration = Duration::from_millis(40);

/// So long that no heartbeat is due, and no session ends.
const SESSION_TIMEOUT: Duration = Duration::from_secs(60);

type Scene = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The script of one scenario: its clients, and what they do.
#[derive(Clone, Debug)]
struct Script {
    dial: SimDial,
    servers: String,
    tape: Tape,
    clients: Arc<AtomicU8>,
}

impl Script {
    /// The next client, in a session of its own: A, B and so on.
    async fn client(&self) -> Client {
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        let tap = Tap {
            dial: self.dial.clone(),
            tape: self.tape.clone(),
            who: char::from(b'A' + number),
        };
        let connect = connect(self.servers.clone()).session_timeout(SESSION_TIMEOUT);
        let client = connect.dial(tap).process(1).on_current_runtime().await;
        client.unwrap()
    }

    /// One step: what a future sends, and all that follows from it.
    async fn step<T>(&self, title: &str, act: impl Future<Output = T>) -> T {
        settle().await;
        self.tape.begin(title);
        let value = act.await;
        self.tape.returned();
        settle().await;
        self.tape.end();
        value
    }

    /// One verb.
    async fn verb<T, E: Debug>(&self, title: &str, verb: impl Future<Output = Result<T, E>>) -> T {
        self.step(title, verb).await.unwrap()
    }

    /// A verb that waits for another client.
    async fn waits<T>(&self, title: &str, verb: impl Future<Output = T> + Unpin) {
        settle().await;
        self.tape.begin(title);
        tokio::select! {
            biased;
            _ = verb => panic!("does not wait: {title}"),
            () = settle() => {}
        }
        self.tape.end();
    }
}

/// Waits until nothing more happens by itself.
async fn settle() {
    pass(SETTLED).await;
}

#[expect(clippy::disallowed_methods, reason = "in virtual time")]
async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Plays a scenario on this many servers.
fn play_on(members: usize, scenario: fn(Script) -> Scene) -> Vec<TapeStep> {
    let runtime = runtime();
    let guard = runtime.enter();
    let net = Net::new(StdRng::seed_from_u64(0), 1..2);
    let core = Core::new(0, net, Trace::new(false));
    let settings = EnsembleSettings {
        members,
        tick: 2_000,
        sync_limit: 5,
        link_delay: 0..1,
        lag_max: 0,
        lag_changes: 0,
        stalls: 0,
        pace_max: 0,
        // Long after the end of a scenario.
        reap_every: 3_600_000,
        timeout_max: 60_000,
        to_laggard: 0,
        ..Plan::of(0).servers
    };
    let servers = AnyServers::ensemble(Ensemble::new(settings, 0));
    let servers = Rc::new(RefCell::new(servers));
    Stage {
        core: core.clone(),
        servers: servers.clone(),
    }
    .enter();
    let entered = environment::enter(core.clone());
    let executor = Executor::new(core.clone(), servers, 0).in_order();
    drop(guard);
    let tape = Tape::default();
    let names: Vec<String> = (1..=members).map(|id| format!("server{id}:2181")).collect();
    let script = Script {
        dial: SimDial {
            shared: core.shared.clone(),
            process: OBSERVER,
        },
        servers: names.join(","),
        tape: tape.clone(),
        clients: Arc::default(),
    };
    let steps = async move {
        scenario(script).await;
        tape.take()
    };
    let steps = play(runtime, executor, steps);
    drop(entered);
    steps.unwrap()
}

/// The file of a scenario, as it should be.
fn transcript(title: &str, scenario: fn(Script) -> Scene) -> String {
    let (single, ensemble) = (play_on(1, scenario), play_on(3, scenario));
    assert_eq!(single.len(), ensemble.len());
    let mut text =
        format!("# {title}: what is sent\n\nHow to read it: README.md in this folder.\n");
    for (step, of_three) in single.iter().zip(&ensemble) {
        write!(text, "\n## {}\n\n{}", step.title, step.text()).unwrap();
        if step.text() != of_three.text() {
            write!(text, "\nOn an ensemble:\n\n{}", of_three.text()).unwrap();
        }
    }
    text
}

fn is_rewritten() -> bool {
    std::env::var_os(REWRITE).is_some()
}

/// Compares a scenario with its file, or writes the file.
fn check(name: &str, title: &str, scenario: fn(Script) -> Scene) {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/requests");
    let file = PathBuf::from(folder).join(format!("{name}.txt"));
    let now = transcript(title, scenario);
    if is_rewritten() {
        return std::fs::write(file, now).unwrap();
    }
    let recorded = std::fs::read_to_string(file).unwrap_or_default();
    assert!(
        recorded == now,
        "docs/requests/{name}.txt says otherwise (- recorded, + sent now). If that is intended, {REWRITE}=1 rewrites it.\n{}",
        difference(&recorded, &now)
    );
}

/// The lines that differ, each difference below the title of its step.
fn difference(old: &str, new: &str) -> String {
    let (old, new): (Vec<&str>, Vec<&str>) = (old.lines().collect(), new.lines().collect());
    // Length of the longest common part of what begins at each pair of lines.
    let mut common = vec![vec![0; new.len() + 1]; old.len() + 1];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i][j] = match old[i] == new[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut text, mut title) = (0, 0, String::new(), None);
    while i < old.len() || j < new.len() {
        if old.get(i) == new.get(j) {
            title = Some(new[j])
                .filter(|line| line.starts_with("## "))
                .or(title);
            (i, j) = (i + 1, j + 1);
            continue;
        }
        let is_gone = j == new.len() || i < old.len() && common[i + 1][j] >= common[i][j + 1];
        let (sign, line) = if is_gone {
            ("-", old[i])
        } else {
            ("+", new[j])
        };
        (i, j) = if is_gone { (i + 1, j) } else { (i, j + 1) };
        if let Some(title) = title.take() {
            writeln!(text, "\n {title}").unwrap();
        }
        writeln!(text, "{sign}{line}").unwrap();
    }
    text
}

/// Each scenario is a test, and a file of the same name.
macro_rules! scenarios {
    ($($name:ident: $title:literal,)*) => {
        $(
            #[test]
            fn $name() {
                check(stringify!($name), $title, |script| Box::pin(scenarios::$name(script)));
            }
        )*

        #[test]
        fn each_file_has_a_scenario() {
            if is_rewritten() {
                return;
            }
            let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/requests");
            let files = std::fs::read_dir(folder).unwrap();
            let files = files.map(|file| file.unwrap().file_name().into_string().unwrap());
            let mut files: Vec<String> = files.filter(|name| name != "README.md").collect();
            let mut known = [$(concat!(stringify!($name), ".txt")),*];
            files.sort_unstable();
            known.sort_unstable();
            assert_eq!(files, known);
        }
    };
}

scenarios! {
    session: "Sessions",
    lock: "Lock",
    crash_mark: "Lock with a crash mark",
    hold: "Hold",
    foreign_layouts: "Locks in the layouts of Curator and kazoo",
    rwlock: "RwLock",
    semaphore: "Semaphore",
    simple_lock: "SimpleLock",
    multi_lock: "MultiLock",
    reentrant: "ReentrantLock",
    election: "Election",
    barrier: "Barrier",
    double_barrier: "DoubleBarrier",
    queue: "Queue",
    queue_orders: "PriorityQueue and DelayQueue",
    tasks: "Tasks",
    two_phase: "TwoPhase",
    two_phase_every_site: "TwoPhase, every site counting",
    counter: "Counter",
    config: "Config and ConfigFolder",
    group: "Group",
    names: "Names",
    cache: "Cache",
    inspect: "Contention and Survey",
}

#[test]
fn difference_shows_the_lines_that_differ_and_their_step() {
    let old = "# file\n## one\na\nb\n## two\nc\n";
    let new = "# file\n## one\na\nb\n## two\nd\nc\n";
    assert_eq!(difference(old, new), "\n ## two\n+d\n");
    assert_eq!(difference(new, old), "\n ## two\n-d\n");
    assert_eq!(difference(new, new), "");
}
