//! Contenders in processes of their own, each behind a fault proxy of its own, under random faults.
//!
//! `BELLWETHER_HISTORIES_SECONDS` makes each test go on for so long, round after round, each with the next seed;
//! `BELLWETHER_HISTORIES_SEED` is the first one.

mod broken;
mod contender;
mod recipe;

use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use bellwether::connect;
use bellwether_testkit::history::{
    Event, Moment, check_crash_marks, check_fencing, check_holds, check_order, check_progress,
};
use bellwether_testkit::{
    Climate, Engine, FaultProxy, Forecast, History, Recorder, Target, Terms, Weather,
};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::place::soon;
use crate::weather_settings;
use contender::{Orders, SESSION_TIMEOUT};
use recipe::{Ask, Recipe};

/// How many compete.
const CONTENDERS: usize = 4;

/// How long faults go on in one round.
const ROUND: Duration = Duration::from_secs(5);

/// How long it may take until everybody has got through when the faults have ended.
const RECOVERY_MAX: Duration = Duration::from_secs(15);

const CLIMATE: Climate = Climate {
    contenders: CONTENDERS,
    session_timeout: SESSION_TIMEOUT,
    calm_max: Duration::from_millis(300),
};

/// How long a contender that was stopped may believe in its hold when it goes on.
const GRACE: Duration = Duration::from_millis(250);

/// Makes two tests of each recipe: on the embedded server, and on Apache's.
macro_rules! under_faults {
    ($($name:ident: $recipe:expr,)*) => {
        mod embedded {
            use super::{Engine, Recipe, rounds};

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                rounds($recipe, Engine::embedded().await.unwrap()).await;
            })*
        }

        mod apache {
            use super::{Engine, Recipe, rounds};

            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                rounds($recipe, Engine::apache().await.unwrap()).await;
            })*
        }
    };
}

under_faults! {
    lock_is_right_under_faults: Recipe::Lock,
    marked_lock_is_right_under_faults: Recipe::MarkedLock,
    simple_lock_is_right_under_faults: Recipe::SimpleLock,
    rwlock_is_right_under_faults: Recipe::RwLock,
    semaphore_is_right_under_faults: Recipe::Semaphore,
    multi_lock_is_right_under_faults: Recipe::MultiLock,
    election_is_right_under_faults: Recipe::Election,
}

/// What a hold is worth is reckoned otherwise there, and the same for all recipes.
#[tokio::test(flavor = "multi_thread")]
async fn lock_is_right_under_faults_of_an_ensemble() {
    rounds(Recipe::Lock, Engine::ensemble().await.unwrap()).await;
}

async fn rounds(recipe: Recipe, mut engine: Engine) {
    weather_settings::rounds(async |seed| {
        let history = round(recipe, &mut engine, seed).await;
        eprintln!("{} grants", history.grants());
    })
    .await;
}

/// One seed, from an idle server to an idle server.
async fn round(recipe: Recipe, engine: &mut Engine, seed: u64) -> History {
    hold_once(recipe, engine).await;
    let before = engine.census().await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let recorder = Recorder::new(seed);
    let mut crew = Crew::default();
    for who in 0..CONTENDERS {
        let servers = engine.addresses();
        let proxy = FaultProxy::start(servers[who % servers.len()])
            .await
            .unwrap();
        let orders = Orders {
            who,
            recipe,
            seed: seed.wrapping_add(who as u64),
            address: proxy.connect_string(),
            store: folder.path().join("store"),
        };
        crew.add(&orders, proxy, &recorder);
    }

    let mut weather = Weather {
        targets: &crew.targets,
        engine,
        recorder: &recorder,
    };
    let forecast = Forecast::new(seed, CLIMATE);
    weather.pass(forecast, ROUND).await.unwrap();

    let calm = Moment::now();
    if crew.everybody_got_through(&recorder, calm).await {
        crew.stop().await;
    }
    let history = recorder.history();
    check(&history, recipe);
    if let Err(violation) = check_progress(&history, calm, 0..CONTENDERS) {
        panic!("{violation}");
    }
    hold_once(recipe, engine).await;
    if let Err(left) = engine.back_at(&before, RECOVERY_MAX).await {
        panic!("{left:#} (seed {seed})");
    }
    history
}

fn check(history: &History, recipe: Recipe) {
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

/// Takes the lock and gives it back in order: its directory is there then, and no mark of a crash.
async fn hold_once(recipe: Recipe, engine: &Engine) {
    let client = connect(engine.connect_string()).await.unwrap();
    let acquired = soon(recipe.acquire(&client, Ask::Wait, 1)).await;
    let guard = acquired.unwrap().expect("it waits for as long as it takes");
    guard.release().await.unwrap();
    soon(client.close()).await;
}

/// The contenders of a round. Dropping it kills them.
#[derive(Default)]
struct Crew {
    targets: Vec<Arc<Target>>,
    members: Vec<Member>,
}

struct Member {
    process: Child,
    /// Takes down what it says, to the end.
    listening: JoinHandle<()>,
}

impl Crew {
    fn add(&mut self, orders: &Orders, proxy: FaultProxy, recorder: &Recorder) {
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
        self.targets.push(Arc::new(Target {
            proxy,
            process: process.id(),
        }));
        self.members.push(Member {
            process,
            listening: tokio::spawn(listen(said, recorder.clone())),
        });
    }

    /// Waits until each one has been granted something since then; false if that takes too long.
    async fn everybody_got_through(&self, recorder: &Recorder, since: Moment) -> bool {
        let mut turns = tokio::time::interval(Duration::from_millis(50));
        let through = async {
            while check_progress(&recorder.history(), since, 0..self.members.len()).is_err() {
                turns.tick().await;
            }
        };
        timeout(RECOVERY_MAX, through).await.is_ok()
    }

    /// Tells them to end, and waits until they have.
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

/// Adds what a contender says to the history; what is no event is shown.
async fn listen(said: ChildStderr, recorder: Recorder) {
    let mut lines = BufReader::new(said).lines();
    while let Some(line) = lines.next_line().await.unwrap() {
        match line.parse::<Event>() {
            Ok(event) => recorder.add(event),
            Err(_) => eprintln!("a contender says: {line}"),
        }
    }
}
