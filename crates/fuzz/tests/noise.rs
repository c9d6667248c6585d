//! All targets, with whatever could stand there: good examples with flips, cuts, repeats and extreme numbers. None may panic, hang, or
//! take memory for what is not there.
//!
//! An ordinary run takes a second for each target. More, with other seeds:
//!
//!     BELLWETHER_NOISE_SECONDS=3600 BELLWETHER_NOISE_SEED=7 cargo nextest run -p bellwether-fuzz
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(
    clippy::print_stdout,
    reason = "the seed, and what a long run has done"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fs};

use bellwether_fuzz::{TARGETS, target};
use bellwether_server::{Config, Server, WordList};
use bellwether_testkit::certificates::Authority;
use bellwether_testkit::{RawClient, Request};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// No input of a few kilobytes takes a reader this long.
const LIMIT: Duration = Duration::from_secs(10);

/// The examples of one reader.
fn corpus(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(name);
    let files = fs::read_dir(&folder).unwrap();
    let examples: Vec<_> = files
        .map(|file| fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(!examples.is_empty(), "no examples in {}", folder.display());
    examples
}

/// Duration and first seed.
fn effort() -> (Duration, u64) {
    let number = |name: &str| env::var(name).ok().map(|text| text.parse().unwrap());
    let seconds = number("BELLWETHER_NOISE_SECONDS").unwrap_or(1);
    (
        Duration::from_secs(seconds),
        number("BELLWETHER_NOISE_SEED").unwrap_or(1),
    )
}

/// Mutates an example a little, or a lot.
fn spoil(rng: &mut StdRng, examples: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = examples[rng.random_range(0..examples.len())].clone();
    for _ in 0..rng.random_range(1..6) {
        if bytes.is_empty() {
            bytes.push(rng.random());
        }
        let at = rng.random_range(0..bytes.len());
        match rng.random_range(0..7) {
            0 => bytes[at] ^= 1 << rng.random_range(0..8),
            1 => bytes[at] = rng.random(),
            2 => bytes.truncate(at),
            3 => {
                let number = [0, 1, -1, i32::MAX, i32::MIN, 1 << 20][rng.random_range(0..6)];
                let end = bytes.len().min(at + 4);
                bytes[at..end].copy_from_slice(&number.to_be_bytes()[..end - at]);
            }
            4 => {
                let end = bytes.len().min(at + rng.random_range(1..64));
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            5 => {
                let end = bytes.len().min(at + rng.random_range(1..16));
                bytes.drain(at..end);
            }
            _ => {
                let other = &examples[rng.random_range(0..examples.len())];
                let from = rng.random_range(0..=other.len());
                bytes.splice(at.., other[from..].iter().copied());
            }
        }
    }
    bytes
}

/// Gives spoiled examples to a target until the time is over. A panic tells the seed and the number of the case.
fn run(name: &str, examples: &[Vec<u8>]) {
    let read = target(name).unwrap().read;
    let (time, seed) = effort();
    println!("seed {seed}");
    for example in examples {
        read(example);
    }
    let (start, mut cases) = (Instant::now(), 0u64);
    while start.elapsed() < time {
        let mut rng = StdRng::seed_from_u64(seed.wrapping_mul(1 << 32).wrapping_add(cases));
        let bytes = spoil(&mut rng, examples);
        let case = Case {
            name,
            bytes: &bytes,
            cases,
        };
        let began = Instant::now();
        read(&bytes);
        assert!(
            began.elapsed() < LIMIT,
            "{name}: case {cases} took {:?}",
            began.elapsed()
        );
        std::mem::forget(case);
        cases += 1;
    }
    println!("{name}: {cases} cases");
    assert!(cases > 10, "{name}: only {cases} cases");
}

/// Saves an input that makes a reader panic, for the corpus.
struct Case<'a> {
    name: &'a str,
    bytes: &'a [u8],
    cases: u64,
}

impl Drop for Case<'_> {
    fn drop(&mut self) {
        let file: PathBuf = env::temp_dir().join(format!("noise-{}-{}", self.name, self.cases));
        let kept = fs::write(&file, self.bytes);
        println!(
            "{}: case {} is kept in {} ({kept:?})",
            self.name,
            self.cases,
            file.display()
        );
    }
}

/// Files written by a server, besides those of the corpus.
async fn with_files(name: &str) -> Vec<Vec<u8>> {
    let mut examples = corpus(name);
    let folder = tempfile::tempdir().unwrap();
    let server = Server::builder().data(folder.path()).start().await.unwrap();
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    for request in [
        Request::create("/a", "data"),
        Request::create_ephemeral("/a/b"),
        Request::Multi(vec![Request::set_data("/a", "x"), Request::delete("/a/b")]),
        Request::delete("/none"),
    ] {
        client.call(request).await.unwrap();
    }
    client.call(Request::CloseSession).await.unwrap();
    server
        .backup(folder.path().join("version-2/snapshot.copy"))
        .await
        .unwrap();
    server.shutdown().await;
    for file in fs::read_dir(folder.path().join("version-2")).unwrap() {
        let path = file.unwrap().path();
        let is_wanted = path
            .file_name()
            .unwrap()
            .to_string_lossy()
            .starts_with(&format!("{name}."));
        if is_wanted {
            examples.push(fs::read(path).unwrap());
        }
    }
    assert!(examples.len() > 1, "the server has written no {name}");
    examples
}

/// A test for each target.
macro_rules! targets {
    ($($name:ident)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), &corpus(stringify!($name)));
        })*

        #[test]
        fn every_target_has_its_test() {
            let mut tested = [$(stringify!($name)),*].to_vec();
            tested.extend(["log", "snapshot", "tls_files"]);
            tested.sort_unstable();
            let mut names = TARGETS.map(|target| target.name);
            names.sort_unstable();
            assert_eq!(tested, names);
        }
    };
}

targets! {
    certificate
    client
    frames
    nodes
    replies
    requests
    sasl
    words
    zoo_cfg
}

#[tokio::test]
async fn snapshot() {
    run("snapshot", &with_files("snapshot").await);
}

/// With a key, which has no place in a repository.
#[test]
fn tls_files() {
    let mut examples = corpus("tls_files");
    let issued = Authority::new("authority").issue("server", &["127.0.0.1"]);
    examples.push(issued.store().into());
    run("tls_files", &examples);
}

#[tokio::test]
async fn log() {
    run("log", &with_files("log").await);
}

/// First bytes of a stranger: a session, a word, or noise. The server answers or closes, and keeps serving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn first_bytes() {
    let config = Config {
        words: WordList::all(),
        connections_per_address_max: 0,
        handshake_timeout: Duration::from_millis(200),
        ..Config::default()
    };
    let server = Server::start(config).await.unwrap();
    let address = server.addresses()[0];
    let examples = [corpus("frames"), corpus("words")].concat();
    let (time, seed) = effort();
    println!("seed {seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut witness = RawClient::connect(address).await.unwrap();
    let start = Instant::now();
    let mut cases = 0;
    while start.elapsed() < time {
        let bytes = spoil(&mut rng, &examples);
        let mut stranger = TcpStream::connect(address).await.unwrap();
        // The server may close before everything is sent.
        let _ = stranger.write_all(&bytes).await;
        let _ = stranger.shutdown().await;
        let mut answer = Vec::new();
        let _ = timeout(LIMIT, stranger.read_to_end(&mut answer))
            .await
            .unwrap();
        witness.call(Request::Ping).await.unwrap();
        cases += 1;
    }
    println!("first_bytes: {cases} cases");
    assert!(cases > 3, "only {cases} cases");
    server.shutdown().await;
}
