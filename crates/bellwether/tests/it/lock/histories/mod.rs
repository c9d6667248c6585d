//! Contenders in separate processes under random faults.

mod contender;
mod scenes;

use std::process::Stdio;
use std::time::Duration;

use bellwether::connect;
use bellwether_testkit::history::{
    Event, Moment, check_crash_marks, check_fencing, check_holds, check_order, check_progress,
};
use bellwether_testkit::{Engine, History, Recorder, Terms};
use bellwether_torture::workload::held::{Ask, Held};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::place::soon;
use crate::support::storm::{SESSION_TIMEOUT, Storm};
use contender::Orders;

/// Number of contenders.
const CONTENDERS: usize = 4;

/// Time limit for every contender to acquire after the faults have ended.
const RECOVERY_MAX: Duration = Duration::from_secs(15);

/// How long a contender that was stopped may still believe in its hold after it continues.
const GRACE: Duration = Duration::from_millis(250);

under_faults! {
    lock_is_right_under_faults: async |storm| round(Held::Lock, storm).await,
    marked_lock_is_right_under_faults: async |storm| round(Held::MarkedLock, storm).await,
    simple_lock_is_right_under_faults: async |storm| round(Held::SimpleLock, storm).await,
    rwlock_is_right_under_faults: async |storm| round(Held::RwLock, storm).await,
    semaphore_is_right_under_faults: async |storm| round(Held::Semaphore, storm).await,
    multi_lock_is_right_under_faults: async |storm| round(Held::MultiLock, storm).await,
    election_is_right_under_faults: async |storm| round(Held::Election, storm).await,
}

/// One seed, from an idle server to an idle server.
async fn round(recipe: Held, mut storm: Storm<'_>) {
    hold_once(recipe, storm.engine).await;
    let before = storm.engine.census().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (seed, recorder) = (storm.seed, storm.recorder.clone());
    let mut crew = Crew::default();
    for who in 0..CONTENDERS {
        let proxy = storm.proxy().await;
        let orders = Orders {
            who,
            recipe,
            seed: seed.wrapping_add(who as u64),
            address: proxy.connect_string(),
            store: folder.path().join("store"),
        };
        let process = crew.add(&orders, &recorder);
        storm.expose(proxy, process);
    }
    storm.pass().await;

    let calm = Moment::now();
    if crew.everybody_got_through(&recorder, calm).await {
        crew.stop().await;
    }
    let history = recorder.history();
    check(&history, recipe);
    if let Err(violation) = check_progress(&history, calm, 0..CONTENDERS) {
        panic!("{violation}");
    }
    hold_once(recipe, storm.engine).await;
    if let Err(left) = storm.engine.back_at(&before, RECOVERY_MAX).await {
        panic!("{left:#} (seed {seed})");
    }
    eprintln!("{} grants", history.grants());
}

fn check(history: &History, recipe: Held) {
    let terms = Terms {
        capacity: recipe.capacity(),
        session_timeout: SESSION_TIMEOUT,
        grace: GRACE,
    };
    for verdict in [
        check_holds(history, &terms),
        check_order(history, &terms),
        check_fencing(history, &terms),
        check_crash_marks(history),
    ] {
        if let Err(violation) = verdict {
            panic!("{violation}");
        }
    }
}

/// Acquires and releases the lock normally: then its directory exists, without a crash mark.
async fn hold_once(recipe: Held, engine: &Engine) {
    let client = connect(engine.connect_string()).await.unwrap();
    let acquired = soon(recipe.acquire(&client, &contender::path(recipe), Ask::Wait, 1)).await;
    let guard = acquired.unwrap().expect("it waits for as long as it takes");
    guard.release().await.unwrap();
    soon(client.close()).await;
}

/// The contenders of a round. Dropping it kills them.
#[derive(Default)]
struct Crew {
    members: Vec<Member>,
}

struct Member {
    process: Child,
    /// Reads its output, to the end.
    listening: JoinHandle<()>,
}

impl Crew {
    /// Starts a contender, and returns its process id.
    fn add(&mut self, orders: &Orders, recorder: &Recorder) -> Option<u32> {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(contender::arguments())
            .envs(orders.variables())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let said = process.stderr.take().unwrap();
        let id = process.id();
        self.members.push(Member {
            process,
            listening: tokio::spawn(listen(said, recorder.clone())),
        });
        id
    }

    /// Waits until each contender has been granted a hold since then; false if that takes too long.
    async fn everybody_got_through(&self, recorder: &Recorder, since: Moment) -> bool {
        let mut turns = tokio::time::interval(Duration::from_millis(50));
        let through = async {
            while check_progress(&recorder.history(), since, 0..self.members.len()).is_err() {
                turns.tick().await;
            }
        };
        timeout(RECOVERY_MAX, through).await.is_ok()
    }

    /// Tells the contenders to end, and waits for them.
    async fn stop(&mut self) {
        for member in &mut self.members {
            drop(member.process.stdin.take());
        }
        for member in self.members.drain(..) {
            let Member {
                mut process,
                listening,
            } = member;
            let ended = soon(process.wait()).await.unwrap();
            soon(listening).await.unwrap();
            assert!(ended.success(), "a contender failed: {ended}");
        }
    }
}

/// Adds the output of a contender to the history; prints lines that are no events.
async fn listen(said: ChildStderr, recorder: Recorder) {
    let mut lines = BufReader::new(said).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        match serde_json::from_str::<Event>(&line) {
            Ok(event) => recorder.add(event),
            Err(_) => eprintln!("a contender says: {line}"),
        }
    }
}
