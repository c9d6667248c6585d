//! The log level of a server, which can change while it runs.

use std::sync::OnceLock;

use anyhow::Context as _;
use tracing_subscriber::EnvFilter;

/// What a server logs by default: warnings, and what users do through the dashboard.
pub(super) const DEFAULT: &str = "warn,bellwether_client=error,bellwether_dashboard=info";

/// The key in the configuration file.
const KEY: &str = "bellwether.log";

/// Replaces the filter of the subscriber.
type Replace = Box<dyn Fn(EnvFilter) -> anyhow::Result<()> + Send + Sync>;

static REPLACE: OnceLock<Replace> = OnceLock::new();

/// Keeps what replaces the filter of the subscriber that was installed.
pub(super) fn replace_with(replace: Replace) {
    // There is one subscriber in a process.
    let _ = REPLACE.set(replace);
}

/// What the configuration file says is logged. RUST_LOG has precedence.
#[derive(Debug, Default)]
pub(crate) struct LogLevel(Option<EnvFilter>);

impl LogLevel {
    pub(crate) fn parse(text: &str) -> anyhow::Result<Self> {
        let filter = EnvFilter::try_new(text);
        let filter =
            filter.with_context(|| format!("{KEY} is {text:?}, expected a level such as info"))?;
        Ok(Self(Some(filter)))
    }

    pub(crate) fn apply(self) -> anyhow::Result<()> {
        let Some(replace) = REPLACE.get() else {
            return Ok(());
        };
        if std::env::var_os("RUST_LOG").is_some() {
            if self.0.is_some() {
                tracing::warn!("{KEY} is ignored, because RUST_LOG is set");
            }
            return Ok(());
        }
        replace(self.0.unwrap_or_else(|| EnvFilter::new(DEFAULT)))
    }
}
