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

use zookeeper_client as zk;

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
            match zk.get_data("/zookeeper/config").await {
                Ok((config, _)) if config.windows(7).any(|key| key == b"server.") => {
                    return Ok(Self::Ensemble);
                }
                // Servers before 3.5 have no such node, and do not tell.
                Err(zk::Error::NoNode | zk::Error::NoAuth) => return Ok(Self::Ensemble),
                Ok(_) => return Ok(Self::Single),
                Err(error) if outcome(&error) == Outcome::Unknown => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What kind of request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    Read,
    Write,
}

/// The proof of life of one session.
#[derive(Debug)]
pub(crate) struct Heart {
    engine: Engine,
    session_timeout: Duration,
    /// When the latest request that counts was sent.
    proven: AtomicU64,
    /// How many need the heartbeat. An idle session has the client's own pings.
    users: AtomicUsize,
}

impl Heart {
    /// The session was alive when it was opened or later; `opened` is from before that.
    pub(crate) fn new(engine: Engine, session_timeout: Duration, opened: Moment) -> Self {
        Self {
            engine,
            session_timeout,
            proven: AtomicU64::new(opened.as_nanos()),
            users: AtomicUsize::new(0),
        }
    }

    /// Notes that a request which was sent at that moment has been answered.
    pub(crate) fn answered(&self, sent: Moment, what: Answered) {
        if self.engine == Engine::Single || what == Answered::Write {
            self.proven.fetch_max(sent.as_nanos(), Ordering::Relaxed);
        }
    }

    /// Until when a hold can be relied on, as far as is known now.
    pub(crate) fn deadline(&self) -> Moment {
        let t = self.session_timeout;
        let margin = t / 10;
        let good_for = match self.engine {
            Engine::Single => t - margin,
            // What a server may keep to itself: the client's word until it has been passed on (T/6, the heartbeat), and the
            // leader's question for it, asked every half tick of a T that has two at least (T/4).
            Engine::Ensemble => t - t / 6 - t / 4 - margin,
        };
        self.proven() + good_for
    }

    pub(crate) fn is_alive(&self) -> bool {
        Moment::now() < self.deadline()
    }

    /// Waits until the session is known to be alive: a hold that began would else be over already.
    pub(crate) async fn prove(&self, zk: &zk::Client) -> Result<(), zk::Error> {
        while !self.is_alive() {
            match self.beat(zk).await {
                Err(error) if outcome(&error) != Outcome::Unknown => return Err(error),
                Err(_) | Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Sends one request that counts and waits for its answer. On failure the session may be over, or only the connection.
    pub(crate) async fn beat(&self, zk: &zk::Client) -> Result<(), zk::Error> {
        let sent = Moment::now();
        let (answer, what) = match self.engine {
            Engine::Single => (zk.check_stat("/").await.map(drop), Answered::Read),
            // A multi goes through the quorum even if nothing but a check is in it.
            Engine::Ensemble => {
                let check = zk.new_check_writer("/", None)?.commit().await;
                (check.map(drop).map_err(zk::Error::from), Answered::Write)
            }
        };
        match answer {
            // A refusal went the same way as a success.
            Err(error) if outcome(&error) != Outcome::Refused => Err(error),
            _ => {
                self.answered(sent, what);
                Ok(())
            }
        }
    }

    /// How far apart heartbeats are.
    fn interval(&self) -> Duration {
        self.session_timeout / 6
    }

    fn proven(&self) -> Moment {
        Moment::from_nanos(self.proven.load(Ordering::Relaxed))
    }

    /// Whether somebody relies on the session and the last proof is from the last interval but one. Looked at once an
    /// interval, no proof is older than one and a half of them while the servers answer.
    fn is_due(&self) -> bool {
        self.users.load(Ordering::Relaxed) > 0
            && Moment::now() - self.proven() >= self.interval() / 2
    }
}

/// Somebody relies on the session of a client.
#[derive(Debug)]
pub(crate) struct Pulse(Client);

impl Pulse {
    /// Keeps the heart of a session beating as long as the result lives.
    pub(crate) fn new(client: &Client) -> Self {
        client.heart().users.fetch_add(1, Ordering::Relaxed);
        Self(client.clone())
    }
}

impl Drop for Pulse {
    fn drop(&mut self) {
        self.0.heart().users.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The heartbeat of a session. It does not keep the session open, and ends with it.
pub(crate) async fn beat_on(client: WeakClient, home: Home, interval: Duration) {
    loop {
        home.sleep(interval).await;
        if let Some(client) = client.upgrade()
            && client.is_sabotaged(Sabotage::TrustConnection)
            && client.zk().state() == zk::SessionState::SyncConnected
        {
            client.heart().answered(Moment::now(), Answered::Write);
        }
        while let Some(client) = client.upgrade()
            && client.heart().is_due()
        {
            match client.heart().beat(client.zk()).await {
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
