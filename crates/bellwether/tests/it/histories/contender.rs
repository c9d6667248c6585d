//! A process that takes a hold again and again, and tells on stderr what it does.
//!
//! It is this test binary, started anew for one test.

use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use bellwether::{AcquireError, Client, Previous, connect};
use bellwether_testkit::FencedStore;
use bellwether_testkit::history::{Event, Pulse, What};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;
use tokio::time::timeout;

use super::recipe::{Ask, Guard, Recipe};

pub(super) const SESSION_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest work under a hold, and the longest wait for one that is given up.
const MOMENT_MAX: Duration = Duration::from_millis(30);

/// What a contender is to do.
pub(super) struct Orders {
    pub(super) who: usize,
    pub(super) recipe: Recipe,
    pub(super) seed: u64,
    pub(super) address: String,
    pub(super) store: PathBuf,
}

impl Orders {
    /// As environment variables.
    pub(super) fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("CONTENDER", self.who.to_string()),
            ("CONTENDER_RECIPE", format!("{:?}", self.recipe)),
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
            recipe: Recipe::parse(&variable("CONTENDER_RECIPE")?)?,
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
        recipe: orders.recipe,
        random: StdRng::seed_from_u64(orders.seed),
        store: FencedStore::open(&orders.store).unwrap(),
        stopped,
    };
    contender.run(&orders.address).await;
}

struct Contender {
    who: usize,
    recipe: Recipe,
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
        while !self.is_stopped() {
            self.note(What::Asked);
            let mut stopped = self.stopped.clone();
            let acquired = tokio::select! {
                acquired = self.acquire(&client) => acquired,
                _ = stopped.wait_for(|stopped| *stopped) => break,
            };
            match acquired {
                Ok(Some(guard)) => self.hold(&client, guard).await,
                Ok(None) => {}
                Err(error) => {
                    self.note(What::Failed(error.to_string()));
                    if matches!(error, AcquireError::SessionEnded { .. }) {
                        return;
                    }
                }
            }
        }
        client.close().await;
    }

    /// One of the ways to ask for a hold.
    async fn acquire(&mut self, client: &Client) -> Result<Option<Guard>, AcquireError> {
        let recipe = self.recipe;
        let weight = recipe.some_weight(&mut self.random);
        match self.random.random_range(0..10) {
            0 => recipe.acquire(client, Ask::AtOnce, weight).await,
            1 => {
                recipe
                    .acquire(client, Ask::Within(self.moment()), weight)
                    .await
            }
            // Gives up wherever it happens to be.
            2 => match timeout(self.moment(), recipe.acquire(client, Ask::Wait, weight)).await {
                Ok(acquired) => acquired,
                Err(_) => Ok(None),
            },
            _ => recipe.acquire(client, Ask::Wait, weight).await,
        }
    }

    /// Works under the hold until the work is done or the hold is lost.
    async fn hold(&mut self, client: &Client, guard: Guard) {
        let token = guard.token();
        let weight = guard.weight();
        self.note(What::Granted { token, weight });
        let crashed = match guard.previous() {
            Previous::Crashed(crash) => crash.token,
            _ => None,
        };
        if self.recipe == Recipe::MarkedLock {
            self.note(What::Found { token, crashed });
        }
        let is_alone = weight == self.recipe.capacity();
        self.write_if(is_alone, token);
        let work = self.work(client);
        let lost = tokio::select! {
            () = work => false,
            () = guard.lost() => true,
        };
        if lost {
            self.note(What::Lost { token });
            // A careless one. If somebody has written since, this is refused.
            return self.write_if(is_alone, token);
        }
        self.write_if(is_alone, token);
        if self.random.random_ratio(1, 4) {
            self.note(What::Dropping { token });
            return drop(guard);
        }
        self.note(What::Releasing { token });
        if let Guard::Write(guard) = guard {
            if self.random.random_ratio(1, 2) {
                return self.release(token, Guard::Write(guard)).await;
            }
            // It goes on as a reader, at its place.
            return match guard.downgrade().await {
                Ok(guard) => {
                    self.note(What::Granted { token, weight: 1 });
                    tokio::select! {
                        () = self.work(client) => {}
                        () = guard.lost() => return self.note(What::Lost { token }),
                    }
                    self.note(What::Releasing { token });
                    self.release(token, Guard::Read(guard)).await;
                }
                Err(error) => self.note(What::Failed(error.to_string())),
            };
        }
        self.release(token, guard).await;
    }

    async fn release(&self, token: i64, guard: Guard) {
        match guard.release().await {
            Ok(()) => self.note(What::Released { token }),
            Err(error) => self.note(What::Failed(error.to_string())),
        }
    }

    /// Takes some time, and now and then an answer of the server: who cannot reach it is held up with the lock in hand.
    #[expect(clippy::disallowed_methods, reason = "stands for work")]
    async fn work(&mut self, client: &Client) {
        tokio::time::sleep(self.moment()).await;
        if self.random.random_ratio(1, 2) {
            while client.raw().exists("/").await.is_err() {
                tokio::task::yield_now().await;
            }
        }
    }

    /// Only one who holds alone can be told from others by its token.
    fn write_if(&mut self, is_alone: bool, token: i64) {
        if !is_alone {
            return;
        }
        tell(&self.store.write(self.who, token).unwrap());
    }

    fn note(&self, what: What) {
        tell(&Event::now(self.who, what));
    }

    fn moment(&mut self) -> Duration {
        MOMENT_MAX.mul_f64(self.random.random())
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
