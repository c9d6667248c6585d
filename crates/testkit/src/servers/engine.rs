//! Any server, for tests that run on all of them.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use bellwether_server::Config;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::raw::four_letter_word;
use crate::servers::apache::{Apache, Ensemble};
use crate::servers::embedded::TestServer;

/// A short tick. Sessions expire within a tick after their timeout, or a few ticks if the server itself was paused. So a client that
/// notices its expiry too late fails the test soon.
const TICK: Duration = Duration::from_millis(50);

const ENSEMBLE_SIZE: usize = 3;

/// Time limit until an ensemble is idle.
const START_MAX: Duration = Duration::from_secs(10);

/// A server for one test, which can be restarted.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Engine {
    Embedded(Box<TestServer>),
    Apache(Apache),
    Ensemble(Ensemble),
}

impl Engine {
    /// Starts the embedded server.
    pub async fn embedded() -> Result<Self> {
        let config = Config {
            tick: TICK,
            ..TestServer::config()
        };
        Ok(Self::Embedded(Box::new(TestServer::with(config).await?)))
    }

    /// Starts Apache's server.
    pub async fn apache() -> Result<Self> {
        Ok(Self::Apache(Apache::builder().tick(TICK).start().await?))
    }

    /// Starts three of Apache's servers as an ensemble.
    pub async fn ensemble() -> Result<Self> {
        let builder = Apache::builder().tick(TICK);
        let engine = Self::Ensemble(builder.ensemble(ENSEMBLE_SIZE).await?);
        // The sessions that probed the members have ended, and not all members may know it yet.
        engine
            .until(START_MAX, |census| census.sessions == 0)
            .await?;
        Ok(engine)
    }

    /// The addresses of its servers.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Embedded(server) => vec![server.address()],
            Self::Apache(server) => vec![server.address()],
            Self::Ensemble(ensemble) => (0..ensemble.size())
                .map(|at| ensemble.address(at))
                .collect(),
        }
    }

    /// The connect string for clients.
    pub fn connect_string(&self) -> String {
        let addresses: Vec<_> = self.addresses().iter().map(SocketAddr::to_string).collect();
        addresses.join(",")
    }

    /// Stops the server (the leader of an ensemble) and starts it again with the same address, tree and sessions.
    pub async fn restart(&mut self) -> Result<()> {
        match self {
            Self::Embedded(server) => server.restart().await,
            Self::Apache(server) => server.restart().await,
            Self::Ensemble(ensemble) => {
                let leader = ensemble.leader().await?;
                ensemble.restart(leader).await?;
                ensemble.ready().await
            }
        }
    }

    /// Counts nodes, sessions and watches.
    pub async fn census(&self) -> Result<Census> {
        let mut all = Census::default();
        for address in self.addresses() {
            let answer = four_letter_word(address, "mntr").await?;
            let count = |name: &str| {
                let mut lines = answer.lines().filter_map(|line| line.split_once('\t'));
                let found = lines.find(|(key, _)| *key == name);
                let (_, value) = found.with_context(|| format!("no {name} in {answer:?}"))?;
                Ok::<u64, anyhow::Error>(value.parse()?)
            };
            // Every server has the whole tree and all sessions, but only the watches of its own clients.
            all.nodes = all.nodes.max(count("zk_znode_count")?);
            all.ephemerals = all.ephemerals.max(count("zk_ephemerals_count")?);
            all.watches += count("zk_watch_count")?;
            all.sessions = all.sessions.max(count("zk_global_sessions")?);
        }
        Ok(all)
    }

    /// Waits until everything added after `before` is gone.
    pub async fn back_at(&self, before: &Census, limit: Duration) -> Result<()> {
        let back = self.until(limit, |now| now.is_no_more_than(before)).await;
        back.with_context(|| format!("something is left of what was not there before: {before:?}"))
    }

    async fn until(&self, limit: Duration, is_right: impl Fn(&Census) -> bool) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut turns = interval(Duration::from_millis(20));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            // A member that elects a leader does not answer yet.
            let census = self.census().await;
            if census.as_ref().is_ok_and(&is_right) {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("after {limit:?} there is still {:?}", census?);
            }
        }
    }
}

/// Number of nodes, sessions and watches on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Census {
    pub nodes: u64,
    pub ephemerals: u64,
    pub watches: u64,
    pub sessions: u64,
}

impl Census {
    /// Fewer nodes are fine: servers delete empty containers some time later.
    fn is_no_more_than(&self, before: &Self) -> bool {
        self.nodes <= before.nodes
            && self.ephemerals <= before.ephemerals
            && self.watches <= before.watches
            && self.sessions <= before.sessions
    }
}
