//! Compares the session timeout with the latency of answers and with pauses of this machine.

use std::time::{Duration, Instant};

use bellwether::Client;
use tokio::time::{MissedTickBehavior, interval};

use super::finding::{Finding, Severity};
use crate::args::ConnectArgs;
use crate::connect::asked_timeout;

/// The number of answers that are timed.
const ANSWERS: usize = 20;

/// How long the machine is checked for pauses, and how often.
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
    let what = format!("the session timeout is {granted:?}");
    if asked == granted {
        return Finding::fine("session", what);
    }
    Finding::warning("session", format!("{what}, not {asked:?} as requested"))
        .advice("the servers limit it by minSessionTimeout and maxSessionTimeout")
}

async fn answers(client: &Client, session_timeout: Duration) -> Finding {
    let zk = client.raw();
    let mut times = Vec::new();
    for _ in 0..ANSWERS {
        let begin = Instant::now();
        // A sync goes to the leader, as a write does.
        match zk.sync("/").await {
            Ok(()) => times.push(begin.elapsed()),
            Err(error) => {
                return Finding::critical(
                    "latency",
                    format!("the server stopped answering: {error}"),
                )
                .advice("check its log");
            }
        }
    }
    times.sort_unstable();
    let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
    let what = format!("answers take {median:.1?}, the slowest of {ANSWERS} took {longest:.1?}");
    against("latency", what, longest, session_timeout)
        .advice_if_bad("use servers with lower latency, or a longer --session-timeout")
}

/// Measures how late timers fire: while this process or the machine is paused, no heartbeat is sent.
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
    let what = format!("the longest pause of this machine was {longest:.1?}, in {WATCHED:?}");
    against("pauses", what, longest, session_timeout)
        .advice_if_bad("find the cause of the pauses, or use a longer --session-timeout")
}

/// Judges a time by the session timeout. A session expires after about three missed heartbeats.
fn against(
    check: &'static str,
    what: String,
    time: Duration,
    session_timeout: Duration,
) -> Finding {
    if time > session_timeout / 3 {
        Finding::critical(
            check,
            format!("{what}; the session timeout is {session_timeout:?}"),
        )
    } else if time > session_timeout / 10 {
        Finding::warning(
            check,
            format!("{what}; the session timeout is {session_timeout:?}"),
        )
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
