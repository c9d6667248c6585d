//! Both servers, and their first difference.

use std::time::Duration;

use anyhow::{Context, Result};
use bellwether_server::Config;
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Apache, TestServer};
use tokio::time::{interval, timeout};

use super::plan::Plan;
use super::side::{Moment, SUPER_DIGEST, Seen, Side};

/// Number of smaller plans tried before one is shown.
const SHRINKING_MAX: usize = 1000;

/// Number of replies shown, starting at the first difference.
const SHOWN_MAX: usize = 4;

/// How long sessions may remain from the start of a server.
const STRAY_SESSIONS_MAX: Duration = Duration::from_secs(30);

/// Settings that tests vary.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Settings {
    pub(super) extended_types: bool,
    pub(super) enforce_quota: bool,
}

impl Settings {
    pub(super) const EXTENDED: Self = Self {
        extended_types: true,
        enforce_quota: false,
    };
    pub(super) const QUOTAS: Self = Self {
        extended_types: false,
        enforce_quota: true,
    };
}

/// Both servers, with the same settings.
#[derive(Debug)]
pub(super) struct Pair {
    embedded: Side,
    apache: Side,
    servers: (TestServer, Apache),
    settings: Settings,
}

impl Pair {
    pub(super) async fn start(settings: Settings) -> Result<Self> {
        // No node may be deleted at a time that a server chooses.
        let never = Duration::from_secs(24 * 60 * 60);
        let mut builder = Apache::builder().super_digest(SUPER_DIGEST).property(
            "znode.container.checkIntervalMs",
            never.as_millis().to_string(),
        );
        if settings.extended_types {
            builder = builder.extended_types();
        }
        if settings.enforce_quota {
            builder = builder.enforce_quota();
        }
        let apache = builder.start().await?;
        let embedded = TestServer::with(Config {
            extended_types: settings.extended_types,
            enforce_quota: settings.enforce_quota,
            super_digest: Some(SUPER_DIGEST.into()),
            container_check_interval: never,
            ..TestServer::config()
        })
        .await?;
        timeout(STRAY_SESSIONS_MAX, no_sessions(&apache))
            .await
            .context("a session from the start is still there")??;
        Ok(Self {
            embedded: Side::new(embedded.address()).await?,
            apache: Side::new(apache.address()).await?,
            servers: (embedded, apache),
            settings,
        })
    }

    /// Runs a plan on both, and returns the first difference.
    pub(super) async fn difference(&mut self, plan: &Plan) -> Result<Option<String>> {
        self.level().await?;
        let (embedded, apache) = tokio::join!(self.embedded.run(plan), self.apache.run(plan));
        let embedded = embedded.context("the embedded server")?;
        let apache = apache.with_context(|| {
            // Some requests stop its process.
            let log = self.servers.1.data_dir().join("log");
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<_> = log.lines().collect();
            let end = lines[lines.len().saturating_sub(20)..].join("\n");
            format!("Apache's server; its log ends: {end}")
        })?;
        Ok(first_difference(&embedded, &apache))
    }

    /// Brings both to the same zxid.
    async fn level(&mut self) -> Result<()> {
        let (embedded, apache) = (self.embedded.zxid().await?, self.apache.zxid().await?);
        let distance = usize::try_from(embedded.abs_diff(apache))?;
        if embedded < apache {
            self.embedded.burn_zxids(distance).await
        } else {
            self.apache.burn_zxids(distance).await
        }
    }

    /// Removes whatever is not needed for a difference, and returns the rest.
    ///
    /// A difference leaves traces in the built-in nodes, so each attempt has new servers.
    pub(super) async fn shrink(&self, mut plan: Plan) -> Result<(Plan, Option<String>)> {
        let settings = self.settings;
        let mut pair = Self::start(settings).await?;
        let mut difference = pair.difference(&plan).await?;
        if difference.is_none() {
            return Ok((plan, None));
        }
        let mut tries = 0;
        'smaller: loop {
            pair = Self::start(settings).await?;
            for candidate in plan.smaller() {
                tries += 1;
                if tries > SHRINKING_MAX {
                    break 'smaller;
                }
                let found = pair.difference(&candidate).await?;
                if found.is_some() {
                    (plan, difference) = (candidate, found);
                    continue 'smaller;
                }
            }
            break;
        }
        Ok((plan, difference))
    }
}

/// Waits until all sessions that probed the server are gone: their end takes a zxid.
async fn no_sessions(apache: &Apache) -> Result<()> {
    let mut turns = interval(Duration::from_millis(20));
    loop {
        turns.tick().await;
        let facts = four_letter_word(apache.address(), "mntr").await?;
        if facts.lines().any(|line| line == "zk_global_sessions\t0") {
            return Ok(());
        }
    }
}

fn first_difference(embedded: &[Moment], apache: &[Moment]) -> Option<String> {
    let mut pairs = embedded.iter().zip(apache);
    let differing = |(ours, theirs): &(&Moment, &Moment)| {
        ours != theirs || ours.seen.iter().any(Seen::is_failure)
    };
    let Some((ours, theirs)) = pairs.find(differing) else {
        return (embedded.len() != apache.len()).then(|| "one of them broke off".into());
    };
    let pairs = ours.seen.iter().zip(&theirs.seen);
    let same = pairs.take_while(|(ours, theirs)| ours == theirs).count();
    let show = |moment: &Moment| {
        let rest = moment.seen.iter().skip(same).take(SHOWN_MAX);
        let lines: Vec<_> = rest.map(|seen| format!("       {seen:?}")).collect();
        lines.join("\n")
    };
    Some(format!(
        "after {same} equal answers\n  embedded, {}:\n{}\n  Apache, {}:\n{}",
        ours.label,
        show(ours),
        theirs.label,
        show(theirs)
    ))
}
