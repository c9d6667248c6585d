//! One thing that happened, as a value and as a line of text.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::time::{ClockId, clock_gettime};

/// A moment on the machine's clock that never goes back and counts while the machine sleeps. All processes share it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    /// Later than every other.
    pub const NEVER: Self = Self(u64::MAX);

    /// This moment.
    pub fn now() -> Self {
        let time = clock_gettime(ClockId::Boottime);
        let since_boot =
            Duration::try_from(time).expect("the clock counts from the start of the machine");
        Self::after_boot(since_boot)
    }

    /// The moment so long after the machine was started.
    pub fn after_boot(since_boot: Duration) -> Self {
        Self(u64::try_from(since_boot.as_nanos()).unwrap_or(u64::MAX))
    }

    /// The moment so much later.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        Self(self.0.saturating_add(Self::after_boot(time).0))
    }

    /// How long after another moment this is; nothing if it is before.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// What happened, when, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// When.
    pub at: Moment,
    /// The number of the contender.
    pub who: usize,
    /// What.
    pub what: What,
}

/// What a contender does, and what is done to it.
///
/// A hold must look no longer than it was: note its grant after the call has returned, its release before the call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Asks for a hold.
    Asked,
    /// Has a hold: so many parts of what there is to hold; see [`Terms`](super::Terms).
    #[expect(missing_docs, reason = "said above")]
    Granted { token: i64, weight: u32 },
    /// Was told that the hold is lost.
    #[expect(missing_docs, reason = "said above")]
    Lost { token: i64 },
    /// Is about to give the hold back.
    #[expect(missing_docs, reason = "said above")]
    Releasing { token: i64 },
    /// Was told that the hold has been given back in order.
    #[expect(missing_docs, reason = "said above")]
    Released { token: i64 },
    /// Is about to drop the hold, without a release.
    #[expect(missing_docs, reason = "said above")]
    Dropping { token: i64 },
    /// Was told how the hold before this one ended: in order, or by the crash of a holder with that token.
    #[expect(missing_docs, reason = "said above")]
    Found { token: i64, crashed: Option<i64> },
    /// Wrote to a fenced store, which took it or not.
    #[expect(missing_docs, reason = "said above")]
    Wrote { token: i64, accepted: bool },
    /// Was told of a failure, and goes on.
    Failed(String),
    /// Is about to be stopped by a signal.
    Paused,
    /// Goes on after a pause.
    Resumed,
    /// Finds that it did not run since then, by whatever cause.
    #[expect(missing_docs, reason = "said above")]
    Stalled { since: Moment },
    /// Its session is about to be ended by another hand.
    Expired,
    /// Another fault, in words. It excuses nothing.
    Fault(String),
}

impl What {
    /// Whether it was done to the contender rather than by it.
    pub fn is_fault(&self) -> bool {
        matches!(
            self,
            Self::Paused | Self::Resumed | Self::Stalled { .. } | Self::Expired | Self::Fault(_)
        )
    }
}

impl Event {
    /// What happens now.
    pub fn now(who: usize, what: What) -> Self {
        let at = Moment::now();
        Self { at, who, what }
    }

    pub(super) fn is_grant(&self) -> bool {
        matches!(self.what, What::Granted { .. })
    }

    /// For people: the time in seconds since `start`.
    pub(super) fn line_after(&self, start: Moment) -> String {
        let seconds = self.at.since(start).as_secs_f64();
        format!("  {seconds:>11.6} s  contender {} {}", self.who, self.what)
    }
}

/// A line for [`Event::from_str`].
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.at.0, self.who, self.what)
    }
}

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
            // A line each, whatever an error has to say.
            Self::Failed(text) => write!(f, "failed {}", text.replace('\n', " ")),
            Self::Paused => f.write_str("paused"),
            Self::Resumed => f.write_str("resumed"),
            Self::Stalled { since } => write!(f, "stalled {}", since.0),
            Self::Expired => f.write_str("expired"),
            Self::Fault(text) => write!(f, "fault {}", text.replace('\n', " ")),
        }
    }
}

impl FromStr for Event {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let parse = || -> Result<Self> {
            let mut parts = line.splitn(3, ' ');
            let mut part = || parts.next().context("too short");
            Ok(Self {
                at: Moment(part()?.parse()?),
                who: part()?.parse()?,
                what: part()?.parse()?,
            })
        };
        parse().with_context(|| format!("not an event: {line:?}"))
    }
}

impl FromStr for What {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
        let two = || rest.split_once(' ').context("two values expected");
        Ok(match name {
            "asked" => Self::Asked,
            "granted" => Self::Granted {
                token: two()?.0.parse()?,
                weight: two()?.1.parse()?,
            },
            "lost" => Self::Lost {
                token: rest.parse()?,
            },
            "releasing" => Self::Releasing {
                token: rest.parse()?,
            },
            "released" => Self::Released {
                token: rest.parse()?,
            },
            "dropping" => Self::Dropping {
                token: rest.parse()?,
            },
            "found" => Self::Found {
                token: two()?.0.parse()?,
                crashed: match two()?.1 {
                    "clean" => None,
                    token => Some(token.parse()?),
                },
            },
            "wrote" => Self::Wrote {
                token: two()?.0.parse()?,
                accepted: two()?.1.parse()?,
            },
            "failed" => Self::Failed(rest.to_owned()),
            "paused" => Self::Paused,
            "resumed" => Self::Resumed,
            "stalled" => Self::Stalled {
                since: Moment(rest.parse()?),
            },
            "expired" => Self::Expired,
            "fault" => Self::Fault(rest.to_owned()),
            _ => bail!("unknown event {name:?}"),
        })
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
            What::Failed("connection lost: by peer".into()),
            What::Paused,
            What::Resumed,
            What::Stalled {
                since: Moment::now(),
            },
            What::Expired,
            What::Fault("held".into()),
        ] {
            let event = Event::now(4, what);
            assert_eq!(event.to_string().parse::<Event>().unwrap(), event);
        }
    }

    #[test]
    fn other_lines_are_refused_by_name() {
        for line in ["", "running 1 test", "1 2 slept", "1 2 granted 3"] {
            let error = line.parse::<Event>().unwrap_err();
            assert!(error.to_string().contains(line), "{error}");
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
