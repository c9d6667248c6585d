//! One event of a history. Processes pass events to each other as lines of JSON.

use std::fmt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A moment on the machine's monotonic clock, which also runs while the machine sleeps. All processes share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Moment(u64);

impl Moment {
    /// Later than every other moment.
    pub const NEVER: Self = Self(u64::MAX);

    /// The present moment.
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let since_boot =
            Duration::try_from(time).expect("the clock counts from the start of the machine");
        Self::after_boot(since_boot)
    }

    /// The moment `since_boot` after the machine was started.
    pub fn after_boot(since_boot: Duration) -> Self {
        Self(u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The moment `time` later.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(Self::after_boot(time).0))
    }

    /// The time since another moment; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// The number under which faults of servers are recorded.
pub const SERVERS: usize = usize::MAX;

/// What happened, when, and to whom.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// The time.
    pub at: Moment,
    /// The number of the contender, or [`SERVERS`].
    pub who: usize,
    /// The event.
    pub what: What,
}

/// What a contender does, and what is done to it.
///
/// A hold must not look longer than it was: record its grant after the call has returned, and its release before the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum What {
    /// Asks for a hold.
    Asked,
    /// Has a hold of this weight; see [`Terms`](super::Terms).
    #[expect(missing_docs, reason = "said above")]
    Granted { token: i64, weight: u32 },
    /// Learned that the hold is lost.
    #[expect(missing_docs, reason = "said above")]
    Lost { token: i64 },
    /// Is about to release the hold.
    #[expect(missing_docs, reason = "said above")]
    Releasing { token: i64 },
    /// The release was acknowledged.
    #[expect(missing_docs, reason = "said above")]
    Released { token: i64 },
    /// Is about to drop the hold, without a release.
    #[expect(missing_docs, reason = "said above")]
    Dropping { token: i64 },
    /// Learned how the previous hold ended: released, or by the crash of a holder with that token.
    #[expect(missing_docs, reason = "said above")]
    Found { token: i64, crashed: Option<i64> },
    /// Wrote to a fenced store, which accepted or refused it.
    #[expect(missing_docs, reason = "said above")]
    Wrote { token: i64, accepted: bool },
    /// An operator is about to delete the node of a hold or of a waiter. The holder can only learn of it afterwards.
    #[expect(missing_docs, reason = "said above")]
    Deleting { token: i64 },
    /// A call failed; the contender continues.
    Failed(String),
    /// Is about to be stopped by a signal.
    Paused,
    /// Continues after a pause.
    Resumed,
    /// Notices that it did not run since that moment.
    #[expect(missing_docs, reason = "said above")]
    Stalled { since: Moment },
    /// The test is about to end its session.
    Expired,
    /// Another fault, as text. It excuses nothing.
    Fault(String),
}

impl What {
    /// Whether it is a fault, rather than an action of the contender.
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Paused | Self::Resumed | Self::Stalled { .. } | Self::Expired | Self::Fault(_)
        )
    }
}

impl Event {
    /// An event at the present moment.
    pub fn now(who: usize, what: What) -> Self {
        let at = Moment::now();
        Self { at, who, what }
    }

    pub(super) fn is_grant(&self) -> bool {
        matches!(self.what, What::Granted { .. })
    }

    /// For readers: the time in seconds since `start`.
    pub(super) fn line_after(&self, start: Moment) -> String {
        let seconds = self.at.since(start).as_secs_f64();
        match self.who {
            SERVERS => format!("  {seconds:>11.6} s  servers {}", self.what),
            who => format!("  {seconds:>11.6} s  contender {who} {}", self.what),
        }
    }
}

/// For readers.
impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Asked => f.write_str("asked"),
            Self::Granted { token, weight } => write!(f, "granted {token} {weight}"),
            Self::Lost { token } => write!(f, "lost {token}"),
            Self::Releasing { token } => write!(f, "releasing {token}"),
            Self::Released { token } => write!(f, "released {token}"),
            Self::Dropping { token } => write!(f, "dropping {token}"),
            Self::Found { token, crashed } => match crashed {
                Some(crashed) => write!(f, "found {token} {crashed}"),
                None => write!(f, "found {token} clean"),
            },
            Self::Wrote { token, accepted } => write!(f, "wrote {token} {accepted}"),
            Self::Deleting { token } => write!(f, "deleting {token}"),
            // One line each, also for errors of several lines.
            Self::Failed(text) => write!(f, "failed {}", text.replace('\n', " ")),
            Self::Paused => f.write_str("paused"),
            Self::Resumed => f.write_str("resumed"),
            Self::Stalled { since } => write!(f, "stalled {}", since.0),
            Self::Expired => f.write_str("expired"),
            Self::Fault(text) => write!(f, "fault {}", text.replace('\n', " ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_survives_as_a_line() {
        let token = -7;
        for what in [
            What::Asked,
            What::Granted { token, weight: 3 },
            What::Lost { token },
            What::Releasing { token },
            What::Released { token },
            What::Dropping { token },
            What::Deleting { token },
            What::Found {
                token,
                crashed: Some(-8),
            },
            What::Found {
                token,
                crashed: None,
            },
            What::Wrote {
                token,
                accepted: false,
            },
            What::Failed("connection lost:\nby peer".into()),
            What::Paused,
            What::Resumed,
            What::Stalled {
                since: Moment::now(),
            },
            What::Expired,
            What::Fault("held".into()),
        ] {
            let event = Event::now(4, what);
            let line = serde_json::to_string(&event).unwrap();
            assert!(!line.contains('\n'), "{line}");
            assert_eq!(serde_json::from_str::<Event>(&line).unwrap(), event);
        }
    }

    #[test]
    fn the_clock_does_not_go_back() {
        let earlier = Moment::now();
        let later = Moment::now();
        assert!(earlier <= later);
        assert_eq!(
            earlier.since(later.plus(Duration::from_secs(1))),
            Duration::ZERO
        );
    }
}
