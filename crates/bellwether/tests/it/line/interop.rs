//! One line with contenders of other libraries: Java's Curator and Python's kazoo.

use std::path::Path;
use std::process::{Output, Stdio};
use std::time::Duration;

use bellwether::line::Layout;
use bellwether::{Hold, Lock, RwLock, zk};
use rustix::time::{ClockId, clock_gettime};
use tempfile::TempDir;
use tokio::process::Command;
use tokio::time::timeout;

use crate::support::place::{Place, soon};

on_both_engines! {
    lock_line_of_rust_java_and_python_is_one_line,
    shared_line_of_rust_java_and_python_is_one_line,
    lock_line_with_kazoo_alone_is_one_line,
    shared_line_with_kazoo_alone_is_one_line,
    node_that_curator_puts_at_a_writers_place_is_waited_for,
}

/// Holds of each contender.
const ROUNDS: usize = 400;

/// For all holds of all contenders, including compiling, on a busy machine.
const LIMIT: Duration = Duration::from_secs(150);

const PATH: &str = "/one/line";

/// Debian's folder of jars; each jar names its dependencies in its manifest.
const JARS: &str = "/usr/share/java";

async fn lock_line_of_rust_java_and_python_is_one_line(place: Place) {
    keep_directory(&place).await;
    let curator = Curator::build().await;
    let peers = [
        curator.contender(&place, "lock"),
        kazoo(&place, "lock", "curator"),
    ];
    check(run(&place, "lock", Layout::Curator, peers).await, 3);
}

async fn shared_line_of_rust_java_and_python_is_one_line(place: Place) {
    keep_directory(&place).await;
    let curator = Curator::build().await;
    let peers = [
        curator.contender(&place, "shared"),
        kazoo(&place, "shared", "curator"),
    ];
    check(run(&place, "shared", Layout::Curator, peers).await, 3);
}

async fn lock_line_with_kazoo_alone_is_one_line(place: Place) {
    let peers = [kazoo(&place, "lock", "kazoo")];
    check(run(&place, "lock", Layout::Kazoo, peers).await, 2);
}

async fn shared_line_with_kazoo_alone_is_one_line(place: Place) {
    let peers = [kazoo(&place, "shared", "kazoo")];
    check(run(&place, "shared", Layout::Kazoo, peers).await, 2);
}

async fn node_that_curator_puts_at_a_writers_place_is_waited_for(place: Place) {
    let client = place.client().await;
    let lock = RwLock::new(&client, PATH).layout(Layout::Curator);
    lock.read().await.unwrap().release().await.unwrap();
    let outside = place.outside();
    let sequential = zk::CreateMode::EphemeralSequential;
    let uuid = "3f0c5d1e-7a43-4f55-9b6e-0d4f8a1b2c3d";
    let prefix = format!("{PATH}/_c_{uuid}-__WRIT__");
    let created = outside.create(&prefix, b"", sequential).await.unwrap();
    let writing = created.path;
    let sequence = writing.strip_prefix(&prefix).unwrap();
    let waiting = tokio::spawn(async move { lock.write().await });
    place.until_children(PATH, 2).await;
    // Its writer becomes a reader.
    let reading = format!("{PATH}/_c_{uuid}-__READ__{sequence}");
    let ephemeral = zk::CreateMode::Ephemeral;
    outside.create(&reading, b"", ephemeral).await.unwrap();
    outside.delete(&writing, None).await.unwrap();
    place
        .until_waits_for(&[&reading], client.session_id(), &waiting)
        .await;
    outside.delete(&reading, None).await.unwrap();
    soon(waiting)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

/// One hold of one contender.
#[derive(Clone, Debug)]
struct Interval {
    shares: bool,
    sequence: i32,
    entered_ns: u64,
    left_ns: u64,
}

impl Interval {
    /// Parses `<kind> <sequence> <entered> <left>`.
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split(' ');
        Some(Self {
            shares: words.next()? == "read",
            sequence: words.next()?.parse().ok()?,
            entered_ns: words.next()?.parse().ok()?,
            left_ns: words.next()?.parse().ok()?,
        })
    }
}

/// Creates the directory of the line as a persistent node: kazoo fails if a container, which Curator would create, was deleted.
async fn keep_directory(place: &Place) {
    let lock = Lock::new(&place.client().await, PATH).layout(Layout::Kazoo);
    lock.acquire().await.unwrap().release().await.unwrap();
}

/// Runs contenders of other libraries together with one of ours; returns all their holds.
async fn run<const N: usize>(
    place: &Place,
    what: &str,
    layout: Layout,
    peers: [Command; N],
) -> Vec<Interval> {
    let peers = peers.map(|mut peer| {
        let peer = peer.stdout(Stdio::piped()).stderr(Stdio::piped());
        peer.kill_on_drop(true).spawn().unwrap()
    });
    let client = place.client().await;
    let lock = Lock::new(&client, PATH).layout(layout);
    let rwlock = RwLock::new(&client, PATH).layout(layout);
    let all = async {
        let mut holds = Vec::new();
        for round in 0..ROUNDS {
            if what == "lock" {
                let guard = lock.acquire().await.unwrap();
                holds.push(work(&guard, false).await);
                guard.release().await.unwrap();
            } else if round % 3 == 2 {
                let guard = rwlock.write().await.unwrap();
                holds.push(work(&guard, false).await);
                guard.release().await.unwrap();
            } else {
                let guard = rwlock.read().await.unwrap();
                holds.push(work(&guard, true).await);
                guard.release().await.unwrap();
            }
        }
        for peer in peers {
            let output = succeeded(peer.wait_with_output().await.unwrap());
            let said = String::from_utf8(output.stdout).unwrap();
            let lines = said.strip_suffix("ok\n").expect("it ends with its ok");
            let parse = |line| Interval::parse(line).unwrap_or_else(|| panic!("{line:?}"));
            holds.extend(lines.lines().map(parse));
        }
        holds
    };
    timeout(LIMIT, all)
        .await
        .expect("a contender waits for ever")
}

/// Takes a moment, so that overlaps are seen.
async fn work(hold: &Hold, shares: bool) -> Interval {
    let entered_ns = now_ns();
    while now_ns() < entered_ns + 100_000 {
        tokio::task::yield_now().await;
    }
    let node = hold.node();
    Interval {
        shares,
        sequence: node[node.len() - 10..].parse().unwrap(),
        entered_ns,
        left_ns: now_ns(),
    }
}

/// The clock that Java and Python use, too.
fn now_ns() -> u64 {
    let now = Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap();
    u64::try_from(now.as_nanos()).unwrap()
}

/// Checks that all `contenders` contenders finished, one after the other in their order, except that readers may overlap.
fn check(mut holds: Vec<Interval>, contenders: usize) {
    assert!(holds.len() >= contenders * ROUNDS, "{} holds", holds.len());
    holds.sort_by_key(|hold| hold.sequence);
    if let Some((before, after)) = out_of_order(&holds) {
        panic!("{after:?} did not wait for {before:?}");
    }
}

/// The first two holds of a line where the later one did not wait for the earlier one, though one of them was exclusive.
fn out_of_order(line: &[Interval]) -> Option<(Interval, Interval)> {
    let (mut last, mut last_alone) = (None::<&Interval>, None::<&Interval>);
    for hold in line {
        let waits_for = if hold.shares { last_alone } else { last };
        if let Some(before) = waits_for
            && hold.entered_ns < before.left_ns
        {
            return Some((before.clone(), hold.clone()));
        }
        let is_last = |before: &Interval| before.left_ns < hold.left_ns;
        if last.is_none_or(is_last) {
            last = Some(hold);
        }
        if !hold.shares && last_alone.is_none_or(is_last) {
            last_alone = Some(hold);
        }
    }
    None
}

#[test]
fn two_at_once_and_overtaking_are_seen() {
    let line =
        |holds: &[&str]| Vec::from_iter(holds.iter().filter_map(|hold| Interval::parse(hold)));
    let right = line(&[
        "lock 1 10 20",
        "read 2 21 40",
        "read 3 22 30",
        "write 4 40 50",
    ]);
    assert!(out_of_order(&right).is_none());
    let two_at_once = line(&["lock 1 10 20", "lock 2 19 30"]);
    assert!(out_of_order(&two_at_once).is_some());
    let overtaken = line(&["lock 1 30 40", "lock 2 10 20"]);
    assert!(out_of_order(&overtaken).is_some());
    let beside_a_reader = line(&["read 1 10 50", "read 2 11 20", "write 3 21 30"]);
    assert!(out_of_order(&beside_a_reader).is_some());
    let past_a_writer = line(&["write 1 30 40", "read 2 10 20"]);
    assert!(out_of_order(&past_a_writer).is_some());
}

/// A compiled contender that uses Curator.
struct Curator {
    build: TempDir,
}

impl Curator {
    async fn build() -> Self {
        let build = tempfile::tempdir().unwrap();
        let mut javac = Command::new("javac");
        javac.args(["-classpath", &format!("{JARS}/curator-recipes.jar"), "-d"]);
        javac.arg(build.path()).arg(source("CuratorContender.java"));
        succeeded(timeout(LIMIT, javac.output()).await.unwrap().unwrap());
        Self { build }
    }

    fn contender(&self, place: &Place, what: &str) -> Command {
        let build = self.build.path().display();
        let jars = format!("{build}:{JARS}/curator-recipes.jar:{JARS}/slf4j-nop.jar");
        let mut java = Command::new("java");
        java.args(["-Xmx128m", "-classpath", &jars, "CuratorContender"]);
        java.args(arguments(place, what));
        java
    }
}

/// A contender that uses kazoo, from the virtual environment that `./test` creates.
fn kazoo(place: &Place, what: &str, layout: &str) -> Command {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut python = Command::new(workspace.join(".venv/bin/python"));
    python.arg(source("kazoo_contender.py"));
    python.args(arguments(place, what)).arg(layout);
    python
}

fn arguments(place: &Place, what: &str) -> [String; 4] {
    let path = format!("{}{PATH}", place.chroot());
    [place.server(), path, what.to_owned(), ROUNDS.to_string()]
}

fn source(name: &str) -> std::path::PathBuf {
    let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients");
    clients.join(name)
}

fn succeeded(output: Output) -> Output {
    assert!(
        output.status.success(),
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    output
}
