//! Proof that the servers still keep the session, and until when that can be relied on.
//!
//! A server expires a session no earlier than its timeout T after it last heard from it. So each answered request proves
//! that the session lives until T after that request was *sent*, and a hold is good until then, less a margin.
//!
//! A single server answers and expires by one clock, and any answer is proof. In an ensemble only the leader expires, and
//! it hears of a session through the server that the session is connected to, which goes on answering reads for
//! a while after it was cut off from the others. There only an answered write counts, because a quorum has seen it.
//!
//! An answered write says that the leader had not expired the session when the write passed it, and no more: it does not renew the
//! session. What renews it is *activity*: any request, which the follower reports when the leader asks, every half tick. So before the
//! write the leader last heard of the session at most an activity interval and half a tick earlier, and expires it T after that.
//! docs/ensembles.md has the table.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bellwether_client as zk;

use crate::client::{Client, WeakClient};
use crate::clock::Moment;
use crate::connect::Connect;
use crate::error::{Outcome, outcome};
use crate::home::Home;
use crate::sabotage::Sabotage;

/// What stands behind the address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    Single,
    Ensemble,
}

impl Engine {
    /// Asks the server. What cannot be found out is taken for an ensemble, where less counts as proof.
    pub(crate) async fn detect(zk: &zk::Client) -> Result<Self, zk::Error> {
        loop {
            match zk.config().await {
                Ok((config, _)) if config.windows(7).any(|key| key == b"server.") => {
                    return Ok(Self::Ensemble);
                }
                // Servers before 3.5 have no such node, and do not tell.
                Err(zk::Error::NO_NODE | zk::Error::NO_AUTH) => return Ok(Self::Ensemble),
                Ok(_) => return Ok(Self::Single),
                Err(error) if outcome(&error) == Outcome::Unknown => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// The proof of life of one session, and how long it lasts.
#[derive(Debug)]
pub(crate) struct Heart {
    engine: Engine,
    zk: zk::Client,
    users: Mutex<Users>,
    mistakes: Mistakes,
}

/// Mistakes on purpose.
#[derive(Debug)]
pub(crate) struct Mistakes {
    /// What a connection alone would prove.
    trusted: AtomicU64,
    timeout_once: Option<Duration>,
}

impl Mistakes {
    pub(crate) fn of(options: &Connect, zk: &zk::Client) -> Self {
        let timeout_once = options.is_sabotaged(Sabotage::TimeoutOnce);
        Self {
            trusted: AtomicU64::new(0),
            timeout_once: timeout_once.then(|| zk.session_timeout()),
        }
    }

    /// What the mistakes make of the proof that there is.
    fn distort(&self, mut life: zk::Life) -> zk::Life {
        let trusted = Moment::from_nanos(self.trusted.load(Ordering::Relaxed));
        life.any = life.any.max(trusted);
        life.write = life.write.max(trusted);
        life.timeout = self.timeout_once.unwrap_or(life.timeout);
        life
    }
}

/// What needs the heartbeat: holds and contenders. An idle session has the client's own pings.
#[derive(Debug)]
struct Users {
    count: usize,
    /// When the first of them came.
    since: Moment,
}

/// How often in a session timeout a server hears of an idle session.
const IDLE_ACTIVITY: u32 = 6;
/// How often it does in an ensemble while something is held.
const ACTIVITY: u32 = 20;
/// How often a quorum does in an ensemble while something is held.
const PROOFS: u32 = 12;
/// How often in a session timeout the leader asks its followers which sessions were active: every half tick, and a session timeout has
/// two ticks at least (`Leader.lead`, `minSessionTimeout`).
const REPORTS: u32 = 4;
/// What is left for delays and clocks, as a part of the session timeout.
const MARGIN: u32 = 10;

impl Heart {
    pub(crate) fn new(engine: Engine, zk: zk::Client, mistakes: Mistakes) -> Self {
        Self {
            engine,
            zk,
            users: Mutex::new(Users {
                count: 0,
                since: Moment::now(),
            }),
            mistakes,
        }
    }

    /// Until when a hold can be relied on, as far as is known now.
    pub(crate) fn deadline(&self) -> Moment {
        let life = self.mistakes.distort(self.zk.life());
        let t = life.timeout;
        let (proven, good_for) = match self.engine {
            Engine::Single => (life.any, t - t / MARGIN),
            Engine::Ensemble => {
                // A write right behind an idle time: what the leader last heard may be as old as idle sessions let it get.
                let is_warm = life.write - self.users().since >= t / REPORTS + t / ACTIVITY;
                let activity = if is_warm { ACTIVITY } else { IDLE_ACTIVITY };
                (life.write, t - t / activity - t / REPORTS - t / MARGIN)
            }
        };
        proven + good_for
    }

    pub(crate) fn is_alive(&self) -> bool {
        Moment::now() < self.deadline()
    }

    /// Waits until the session is known to be alive: a hold that began would else be over already.
    pub(crate) async fn prove(&self) -> Result<(), zk::Error> {
        while !self.is_alive() {
            match self.beat().await {
                Err(error) if outcome(&error) != Outcome::Unknown => return Err(error),
                Err(_) | Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Sends one request that counts and waits for its answer. On failure the session may be over, or only the connection.
    pub(crate) async fn beat(&self) -> Result<(), zk::Error> {
        let answer = match self.engine {
            Engine::Single => self.zk.exists("/").await.map(drop),
            // A multi goes through the quorum even if nothing but a check is in it.
            Engine::Ensemble => {
                let mut multi = self.zk.new_multi();
                multi.check("/", None);
                multi.commit().await.map(drop).map_err(zk::Error::from)
            }
        };
        match answer {
            // A refusal went the same way as a success.
            Err(error) if outcome(&error) != Outcome::Refused => Err(error),
            _ => Ok(()),
        }
    }

    /// A hold or contender begins to rely on the session.
    fn begin(&self) {
        let mut users = self.users();
        users.count += 1;
        if users.count == 1 {
            users.since = Moment::now();
            self.set_activity(ACTIVITY);
        }
    }

    /// A hold or contender is over.
    fn end(&self) {
        let mut users = self.users();
        users.count -= 1;
        if users.count == 0 {
            self.set_activity(IDLE_ACTIVITY);
        }
    }

    /// Called with the users locked, so that the last call is that of the last change.
    fn set_activity(&self, pings_per_timeout: u32) {
        if self.engine == Engine::Ensemble {
            self.zk.set_pings_per_timeout(pings_per_timeout);
        }
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().expect("nothing panics under this lock")
    }

    pub(crate) fn engine(&self) -> Engine {
        self.engine
    }

    /// How long the servers may stand still without the loss of a hold that was proven regularly before.
    pub(crate) fn outage_max(&self) -> Duration {
        let t = self.zk.session_timeout();
        match self.engine {
            Engine::Single => t - t / IDLE_ACTIVITY - t / MARGIN,
            Engine::Ensemble => t - t / ACTIVITY - t / REPORTS - t / MARGIN - t / PROOFS,
        }
    }

    /// The longest time between two proofs while the servers answer.
    fn proof_interval(&self) -> Duration {
        self.zk.session_timeout() / PROOFS
    }

    /// How long to wait until the next look. What proved nothing is tried again soon, but not at once.
    fn pause(&self) -> Duration {
        let shortest = self.proof_interval() / 20;
        self.until_due().max(shortest).max(Duration::from_millis(1))
    }

    /// How long it is until the next write is needed.
    fn until_due(&self) -> Duration {
        let interval = self.proof_interval();
        match self.users().count {
            0 => interval,
            _ => (self.zk.life().write + interval).left(),
        }
    }
}

/// Somebody relies on the session of a client.
#[derive(Debug)]
pub(crate) struct Pulse(Client);

impl Pulse {
    /// Keeps the heart of a session beating as long as the result lives.
    pub(crate) fn new(client: &Client) -> Self {
        client.heart().begin();
        Self(client.clone())
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.0.heart().end();
    }
}

/// The heartbeat of a session. It does not keep the session open, and ends with it.
///
/// A single server needs none: the client's own pings are answered by the clock that expires sessions. In an ensemble only
/// writes count, and this makes them while something is held.
pub(crate) async fn beat_on(client: WeakClient, home: Home) {
    loop {
        let Some(pause) = client.upgrade().map(|client| client.heart().pause()) else {
            return;
        };
        home.sleep(pause).await;
        if let Some(client) = client.upgrade()
            && client.is_sabotaged(Sabotage::TrustConnection)
            && client.zk().state() == zk::SessionState::Connected
        {
            let now = Moment::now().as_nanos();
            let trusted = &client.heart().mistakes.trusted;
            trusted.store(now, Ordering::Relaxed);
        }
        if let Some(client) = client.upgrade()
            && client.heart().engine == Engine::Ensemble
            && client.heart().until_due().is_zero()
            && let Err(error) = client.heart().beat().await
            && outcome(&error) == Outcome::SessionEnded
        {
            return;
        }
        if client.upgrade().is_none_or(|client| client.is_ended()) {
            return;
        }
    }
}
