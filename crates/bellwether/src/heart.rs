//! Proof that the servers still keep the session, and until when that can be relied on.
//!
//! A server expires a session no earlier than its timeout T after it last heard from it. So each answered request proves
//! that the session lives until T after that request was *sent*, and a hold is good until then, less a margin.
//!
//! A single server answers and expires by one clock, and any answer is proof. In an ensemble only the leader expires, and
//! it hears of a session through the server that the session is connected to, which goes on answering reads for
//! a while after it was cut off from the others. There only an answered write counts, because a quorum has seen it.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bellwether_client as zk;

use crate::client::{Client, WeakClient};
use crate::clock::Moment;
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
    /// How many need the heartbeat. An idle session has the client's own pings.
    users: AtomicUsize,
    /// A mistake on purpose: what a connection alone would prove.
    trusted: AtomicU64,
}

/// While something is held in an ensemble, its server hears of the session this often, as a part of the session timeout.
const ACTIVITY_PART: u32 = 20;
/// And a quorum does twice as often as this.
const PROOF_PART: u32 = 12;

impl Heart {
    pub(crate) fn new(engine: Engine, zk: zk::Client) -> Self {
        Self {
            engine,
            zk,
            users: AtomicUsize::new(0),
            trusted: AtomicU64::new(0),
        }
    }

    /// Until when a hold can be relied on, as far as is known now. The timeout is the one that was negotiated last.
    pub(crate) fn deadline(&self) -> Moment {
        let life = self.zk.life();
        let t = life.timeout;
        let margin = t / 10;
        let (proven, good_for) = match self.engine {
            Engine::Single => (life.any, t - margin),
            // What a server may keep to itself: the client's word until it has been passed on (the activity interval), and the
            // leader's question for it, asked every half tick of a T that has two at least (T/4).
            Engine::Ensemble => (life.write, t - t / ACTIVITY_PART - t / 4 - margin),
        };
        let trusted = Moment::from_nanos(self.trusted.load(Ordering::Relaxed));
        proven.max(trusted) + good_for
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

    /// Somebody begins or ceases to rely on the session. In an ensemble the server hears of it more often meanwhile.
    fn count(&self, more: bool) {
        let before = match more {
            true => self.users.fetch_add(1, Ordering::Relaxed),
            false => self.users.fetch_sub(1, Ordering::Relaxed) - 1,
        };
        if before == 0 && self.engine == Engine::Ensemble {
            let interval = more.then(|| self.zk.session_timeout() / ACTIVITY_PART);
            self.zk.ping_at_least_every(interval);
        }
    }

    /// How often to look whether proof is due: no proof is then older than two of these while the servers answer.
    fn interval(&self) -> Duration {
        self.zk.session_timeout() / (2 * PROOF_PART)
    }

    fn is_due(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
            && Moment::now() - self.zk.life().write >= self.interval()
    }
}

/// Somebody relies on the session of a client.
#[derive(Debug)]
pub(crate) struct Pulse(Client);

impl Pulse {
    /// Keeps the heart of a session beating as long as the result lives.
    pub(crate) fn new(client: &Client) -> Self {
        client.heart().count(true);
        Self(client.clone())
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.0.heart().count(false);
    }
}

/// The heartbeat of a session. It does not keep the session open, and ends with it.
///
/// A single server needs none: the client's own pings are answered by the clock that expires sessions. In an ensemble only
/// writes count, and this makes them while something is held.
pub(crate) async fn beat_on(client: WeakClient, home: Home) {
    loop {
        let Some(interval) = client.upgrade().map(|client| client.heart().interval()) else {
            return;
        };
        home.sleep(interval).await;
        if let Some(client) = client.upgrade()
            && client.is_sabotaged(Sabotage::TrustConnection)
            && client.zk().state() == zk::SessionState::Connected
        {
            let now = Moment::now().as_nanos();
            client.heart().trusted.store(now, Ordering::Relaxed);
        }
        while let Some(client) = client.upgrade()
            && client.heart().engine == Engine::Ensemble
            && client.heart().is_due()
        {
            match client.heart().beat().await {
                Err(error) if outcome(&error) == Outcome::SessionEnded => return,
                // While there is no connection, the next request waits in the client: this does not spin.
                Err(_) | Ok(()) => {}
            }
        }
        if client.upgrade().is_none_or(|client| client.is_ended()) {
            return;
        }
    }
}
