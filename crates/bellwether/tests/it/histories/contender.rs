//! A process that takes a lock again and again, and tells on stderr what it does.
//!
//! It is this test binary, started anew for one test.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use bellwether::{AcquireError, Client, Lock, LockGuard, connect};
use bellwether_testkit::FencedStore;
use bellwether_testkit::history::{Event, Pulse, What};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::timeout;

/// What they compete for.
pub(super) const PATH: &str = "/histories/lock";

pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest hold.
const HOLD_MAX: Duration = Duration::from_millis(30);

/// What a contender is to do.
pub(super) struct Orders {
    pub(super) who: usize,
    pub(super) seed: u64,
    pub(super) address: String,
    pub(super) store: PathBuf,
}

impl Orders {
    /// As environment variables.
    pub(super) fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("CONTENDER", self.who.to_string()),
            ("CONTENDER_SEED", self.seed.to_string()),
            ("CONTENDER_ADDRESS", self.address.clone()),
            ("CONTENDER_STORE", self.store.display().to_string()),
        ]
    }

    /// Those of this process, if it is a contender.
    fn own() -> Option<Self> {
        let variable = |name: &str| std::env::var(name).ok();
        Some(Self {
            who: variable("CONTENDER")?.parse().ok()?,
            seed: variable("CONTENDER_SEED")?.parse().ok()?,
            address: variable("CONTENDER_ADDRESS")?,
            store: variable("CONTENDER_STORE")?.into(),
        })
    }
}

/// What makes this binary a contender.
pub(super) fn arguments() -> [String; 4] {
    let (_, module) = module_path!().split_once("::").unwrap();
    [
        format!("{module}::contend"),
        "--exact".into(),
        "--ignored".into(),
        "--nocapture".into(),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "this is no test, but the process that the others start"]
async fn contend() {
    let Some(orders) = Orders::own() else {
        return;
    };
    let who = orders.who;
    let _pulse = Pulse::start(move |since| tell(&Event::now(who, What::Stalled { since })));
    let (told, stopped) = watch::channel(false);
    std::thread::spawn(move || {
        // Ends with the one who gives orders, whatever became of it.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        told.send_replace(true);
    });
    let contender = Contender {
        who,
        random: StdRng::seed_from_u64(orders.seed),
        store: FencedStore::open(&orders.store).unwrap(),
        stopped,
    };
    contender.run(&orders.address).await;
}

struct Contender {
    who: usize,
    random: StdRng,
    store: FencedStore,
    stopped: watch::Receiver<bool>,
}

impl Contender {
    /// One session after the other.
    async fn run(mut self, address: &str) {
        while !self.is_stopped() {
            let session = connect(address).session_timeout(SESSION_TIMEOUT);
            match session.await {
                Ok(client) => self.use_session(client).await,
                Err(error) => self.note(What::Failed(error.to_string())),
            }
        }
    }

    /// Takes the lock until the session has ended, or it is told to stop.
    async fn use_session(&mut self, client: Client) {
        let lock = Lock::new(&client, PATH);
        while !self.is_stopped() {
            self.note(What::Asked);
            let mut stopped = self.stopped.clone();
            let acquired = tokio::select! {
                acquired = self.acquire(&lock) => acquired,
                _ = stopped.wait_for(|stopped| *stopped) => break,
            };
            match acquired {
                Ok(Some(guard)) => self.hold(guard).await,
                Ok(None) => {}
                Err(error) => {
                    self.note(What::Failed(error.to_string()));
                    if matches!(error, AcquireError::SessionEnded { .. }) {
                        return;
                    }
                }
            }
        }
        drop(lock);
        client.close().await;
    }

    /// One of the ways to ask for the lock.
    async fn acquire(&mut self, lock: &Lock) -> Result<Option<LockGuard>, AcquireError> {
        match self.random.random_range(0..10) {
            0 => lock.try_acquire().await,
            1 => match lock.acquire_timeout(self.moment()).await {
                Err(AcquireError::TimedOut { .. }) => Ok(None),
                acquired => acquired.map(Some),
            },
            // Gives up wherever it happens to be.
            2 => match timeout(self.moment(), lock.acquire()).await {
                Ok(acquired) => acquired.map(Some),
                Err(_) => Ok(None),
            },
            _ => lock.acquire().await.map(Some),
        }
    }

    /// Works under the lock until the work is done or the hold is lost.
    async fn hold(&mut self, guard: LockGuard) {
        let token = guard.token();
        self.note(What::Granted { token, weight: 1 });
        self.write(token);
        let work = self.moment();
        // The work is to take so long, or as long as the hold is good.
        let lost = timeout(work, guard.lost()).await.is_ok();
        if lost {
            self.note(What::Lost { token });
            return;
        }
        self.write(token);
        self.note(What::Releasing { token });
        if self.random.random_ratio(1, 4) {
            drop(guard);
        } else if let Err(error) = guard.release().await {
            self.note(What::Failed(error.to_string()));
        }
    }

    fn write(&mut self, token: i64) {
        tell(&self.store.write(self.who, token).unwrap());
    }

    fn note(&self, what: What) {
        tell(&Event::now(self.who, what));
    }

    fn moment(&mut self) -> Duration {
        HOLD_MAX.mul_f64(self.random.random())
    }

    fn is_stopped(&self) -> bool {
        *self.stopped.borrow()
    }
}

/// A line at once, from whatever thread.
fn tell(event: &Event) {
    let line = format!("{event}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}
