//! Either server, for tests that are to hold on both.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use bellwether_server::Config;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::apache::Apache;
use crate::raw::four_letter_word;
use crate::server::TestServer;

/// Sessions end within a tick after their time: who notices too late that its own has ended is not spared for long.
const TICK: Duration = Duration::from_millis(50);

/// A server of the test's own, which can be restarted.
#[derive(Debug)]
#[expect(missing_docs, reason = "the names say it")]
pub enum Engine {
    Embedded(Box<TestServer>),
    Apache(Apache),
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        match self {
            Self::Embedded(server) => server.address(),
            Self::Apache(server) => server.address(),
        }
    }

    /// Ends the server and starts it again with the same address, tree and sessions.
    pub async fn restart(&mut self) -> Result<()> {
        match self {
            Self::Embedded(server) => server.restart().await,
            Self::Apache(server) => server.restart().await,
        }
    }

    /// What there is now.
    pub async fn census(&self) -> Result<Census> {
        let answer = four_letter_word(self.address(), "mntr").await?;
        let count = |name: &str| {
            let values = answer.lines().filter_map(|line| line.split_once('\t'));
            let mut values = values.filter(|(key, _)| *key == name);
            let (_, value) = values.next().with_context(|| format!("no {name}"))?;
            Ok::<_, anyhow::Error>(value.parse()?)
        };
        Ok(Census {
            nodes: count("zk_znode_count")?,
            ephemerals: count("zk_ephemerals_count")?,
            watches: count("zk_watch_count")?,
            sessions: count("zk_global_sessions")?,
        })
    }

    /// Waits until nothing is left of what came after `before`.
    pub async fn back_at(&self, before: &Census, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + limit;
        let mut turns = interval(Duration::from_millis(20));
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            turns.tick().await;
            let now = self.census().await?;
            if now.is_no_more_than(before) {
                return Ok(());
            }
            ensure!(
                Instant::now() < deadline,
                "something is left after {limit:?}: {now:?} instead of {before:?}"
            );
        }
    }
}

/// How much there is on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct Census {
    pub nodes: u64,
    pub ephemerals: u64,
    pub watches: u64,
    pub sessions: u64,
}

impl Census {
    /// Less is fine: servers remove empty containers when they come to it.
    fn is_no_more_than(&self, before: &Self) -> bool {
        self.nodes <= before.nodes
            && self.ephemerals <= before.ephemerals
            && self.watches <= before.watches
            && self.sessions <= before.sessions
    }
}
