//! Times: how long answers take, how long this machine stands still, and whether sessions outlive both.

use std::time::{Duration, Instant};

use bellwether::Client;
use tokio::time::{MissedTickBehavior, interval};

use super::finding::{Finding, Severity};
use crate::args::ConnectArgs;
use crate::connect::asked_timeout;

/// How many answers are timed.
const ANSWERS: usize = 20;

/// How long the machine is watched for pauses, and how often.
const WATCHED: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_millis(10);

pub(super) async fn look(client: &Client, args: &ConnectArgs) -> Vec<Finding> {
    let granted = client.session_timeout();
    let asked = asked_timeout(args).unwrap_or(granted);
    let mut findings = vec![session(asked, granted)];
    findings.push(answers(client, granted).await);
    findings.push(pauses(granted).await);
    findings
}

fn session(asked: Duration, granted: Duration) -> Finding {
    let what = format!("sessions live {granted:?} without a word from their client");
    if asked == granted {
        return Finding::fine("session", what);
    }
    Finding::warning("session", format!("{what}, not {asked:?} as asked for"))
        .advice("minSessionTimeout and maxSessionTimeout of the servers say what can be had")
}

async fn answers(client: &Client, session_timeout: Duration) -> Finding {
    let zk = client.raw();
    let mut times = Vec::new();
    for _ in 0..ANSWERS {
        let begin = Instant::now();
        // A sync goes to the leader, as a write would.
        match zk.sync("/").await {
            Ok(()) => times.push(begin.elapsed()),
            Err(error) => {
                return Finding::critical(
                    "latency",
                    format!("a server stopped answering: {error}"),
                )
                .advice("look at its log");
            }
        }
    }
    times.sort_unstable();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    let what = format!("answers take {median:.1?}, the longest of {ANSWERS} {longest:.1?}");
    against("latency", what, longest, session_timeout)
        .advice_if_bad("use servers that are nearer, or a longer --session-timeout")
}

/// Watches how late timers come: when this process, or the whole machine, does not run, no heartbeat is sent.
async fn pauses(session_timeout: Duration) -> Finding {
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks.tick().await;
    let begin = Instant::now();
    let (mut last, mut longest) = (begin, Duration::ZERO);
    while begin.elapsed() < WATCHED {
        ticks.tick().await;
        longest = longest.max(last.elapsed().saturating_sub(EVERY));
        last = Instant::now();
    }
    let what = format!("this machine stood still for {longest:.1?} at most, in {WATCHED:?}");
    against("pauses", what, longest, session_timeout)
        .advice_if_bad("find what keeps it from running, or use a longer --session-timeout")
}

/// A third of the session timeout is the time between two heartbeats that are missed, and the end.
fn against(
    check: &'static str,
    what: String,
    time: Duration,
    session_timeout: Duration,
) -> Finding {
    if time > session_timeout / 3 {
        Finding::critical(check, format!("{what}; sessions live {session_timeout:?}"))
    } else if time > session_timeout / 10 {
        Finding::warning(check, format!("{what}; sessions live {session_timeout:?}"))
    } else {
        Finding::fine(check, what)
    }
}

impl Finding {
    fn advice_if_bad(self, advice: &str) -> Self {
        match self.severity {
            Severity::Fine => self,
            _ => self.advice(advice),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_bad_where_sessions_are_short() {
        let severity = |ms| {
            let time = Duration::from_millis(ms);
            against("x", String::new(), time, Duration::from_secs(3)).severity
        };
        assert_eq!(severity(300), Severity::Fine);
        assert_eq!(severity(301), Severity::Warning);
        assert_eq!(severity(1001), Severity::Critical);
    }
}
