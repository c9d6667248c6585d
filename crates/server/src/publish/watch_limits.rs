//! Limits on watches.

use crate::config::Config;
use crate::stats::WatchUse;

/// Limits per session and in total, in watches and in bytes of their paths.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WatchLimits {
    per_session: WatchUse,
    in_all: WatchUse,
}

impl WatchLimits {
    pub(crate) fn of(config: &Config) -> Self {
        Self {
            per_session: WatchUse {
                watches: config.watches_per_session_max,
                bytes: config.watch_bytes_per_session_max,
            },
            in_all: WatchUse {
                watches: config.watches_max,
                bytes: config.watch_bytes_max,
            },
        }
    }

    /// Whether `more` fits within the limits of the session and of all sessions.
    pub(super) fn allow(&self, more: WatchUse, session: WatchUse, all: WatchUse) -> bool {
        let fits = |used: WatchUse, limit: WatchUse| {
            used.watches + more.watches <= limit.watches && used.bytes + more.bytes <= limit.bytes
        };
        fits(session, self.per_session) && fits(all, self.in_all)
    }
}
