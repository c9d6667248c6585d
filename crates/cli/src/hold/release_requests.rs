//! Requests to release a hold, as its holder receives them.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bellwether::Hold;
use bellwether::hold::Revocation;
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use crate::hold::job_runner::ENDING_LIMIT;
use crate::hold::notice_printer::NoticePrinter;
use crate::output::people::{plain, who_json, who_text};
use crate::output::{self, Output};
use crate::value::duration;

/// The part of a grace that the job does not get: the request and the release need time on the network.
const ON_THE_WAY: u32 = 5;

/// The longest text of another user in a notice, in characters.
const CHARS_MAX: usize = 300;

/// A request as a notice.
pub(crate) fn notice(path: &str, asked: &Revocation) -> String {
    let mut text = format!("asked to release {path}");
    if let Some(by) = &asked.by {
        text += &format!(" by {}", cut(who_text(by)));
    }
    if let Some(grace) = asked.grace() {
        text += &format!(" within {}", duration::text(grace));
    }
    if let Some(message) = &asked.message {
        text += &format!(": {}", cut(plain(message)));
    }
    text
}

fn cut(mut text: String) -> String {
    if let Some((end, _)) = text.char_indices().nth(CHARS_MAX) {
        text.truncate(end);
        text.push('…');
    }
    text
}

/// A request as JSON.
fn object(asked: &Revocation) -> Value {
    json!({
        "by": asked.by.as_ref().map(who_json),
        "message": asked.message,
        "grace_ms": asked.grace_ms,
    })
}

/// Prints every request to release as a line on stdout, for a script, which decides what to do.
pub(crate) async fn pass_on(
    hold: &Hold,
    json: bool,
    notices: &NoticePrinter,
    output: Output,
) -> Infallible {
    let (path, mut requests) = (hold.path(), hold.revocations());
    // Separate from stderr, which must not wait for a script that does not read.
    let lines = NoticePrinter::start();
    while let Some(asked) = requests.next().await {
        let text = notice(path, &asked);
        let line = match json {
            true => json!({"path": path, "asked": object(&asked)}).to_string(),
            false => text.clone(),
        };
        // The hold continues even if the script cannot be reached.
        lines.print(move || drop(output::answer_line(line)));
        notices.print(move || output.notice(text));
    }
    pending().await
}

/// Records who breaks a hold, for the next holder and in the node. Gives up after a limit: the hold is deleted by force soon.
pub(crate) async fn record_break(hold: &Hold, asked: Option<&Revocation>) {
    let Some(asked) = asked else {
        return;
    };
    let how = broken(asked);
    let recorded = async { tokio::join!(hold.record_break(asked), hold.tell_ending(&how)) };
    if let Ok((Err(error), _)) = timeout(ENDING_LIMIT, recorded).await {
        tracing::debug!(%error, "the break is not recorded");
    }
}

/// A break, as the next holder sees it.
fn broken(asked: &Revocation) -> String {
    let mut text = "broken".to_owned();
    if let Some(by) = &asked.by {
        text += &format!(" by {}", cut(who_text(by)));
    }
    if let Some(message) = &asked.message {
        text += &format!(": {}", cut(plain(message)));
    }
    text
}

/// The deadlines for the job of a hold that will be broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Deadlines {
    /// When the keeper kills the job.
    pub(crate) job: Instant,
    /// When the front kills the job and the keeper, if the keeper has not done so. Later, because a killed keeper cannot release the hold.
    pub(crate) front: Instant,
}

impl Deadlines {
    /// The deadlines of a grace that begins now. `None` if the grace is too long for the clock.
    fn of(grace: Duration) -> Option<Self> {
        let (now, on_the_way) = (Instant::now(), grace / ON_THE_WAY);
        Some(Self {
            job: now.checked_add(grace - on_the_way)?,
            front: now.checked_add(grace - on_the_way / 2)?,
        })
    }
}

/// When a hold will be broken, by the requests that its holder received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaking {
    /// The deadlines of the earliest announcement.
    by: Option<Deadlines>,
    /// The request that announced it.
    request: Option<Revocation>,
}

impl Breaking {
    /// Takes a request into account, and returns whether it is now the one that counts. The earliest deadline counts: a later request
    /// does not extend it. A grace of zero is ignored: the holder could not react in time.
    pub(crate) fn announced(&mut self, asked: &Revocation) -> bool {
        let grace = asked.grace().filter(|grace| !grace.is_zero());
        let by = grace.and_then(Deadlines::of);
        if let Some(by) = by.filter(|by| self.by.is_none_or(|earlier| by.job < earlier.job)) {
            self.by = Some(by);
            self.request = Some(asked.clone());
            return true;
        }
        false
    }

    /// The request by which the hold will be broken.
    pub(crate) fn request(&self) -> Option<&Revocation> {
        self.request.as_ref()
    }

    /// Resolves `ahead` of the deadline of the job. Cancel safe.
    pub(crate) async fn near(&self, ahead: Duration) -> Deadlines {
        let Some(by) = self.by else {
            return pending().await;
        };
        if let Some(start) = by.job.checked_sub(ahead) {
            sleep_until(start).await;
        }
        by
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: Value) -> Revocation {
        serde_json::from_value(request).unwrap()
    }

    #[test]
    fn request_is_told_with_all_that_is_known_of_it() {
        assert_eq!(
            notice("/x", &Revocation::default()),
            "asked to release /x",
            "other libraries send no details"
        );
        let who = json!({"version": 1, "host": "db7", "pid": 4711, "user": "me"});
        let request = json!({"by": who, "message": "ple\u{1b}ase", "grace_ms": 5000});
        assert_eq!(
            notice("/x", &asked(request)),
            "asked to release /x by me@db7 pid 4711 within 5s: please"
        );
    }

    #[test]
    fn long_words_are_cut() {
        let text = notice("/x", &asked(json!({"message": "ä".repeat(70_000)})));
        assert_eq!(
            text,
            format!("asked to release /x: {}…", "ä".repeat(CHARS_MAX))
        );
    }

    #[test]
    fn earliest_announcement_counts() {
        let mut breaking = Breaking::default();
        let mut by = |grace_ms: Value| {
            breaking.announced(&asked(json!({"grace_ms": grace_ms})));
            breaking.by.map(|by| by.job)
        };
        assert_eq!(by(Value::Null), None);
        assert_eq!(by(json!(0)), None);
        let first = by(json!(10_000));
        assert!(first > Some(Instant::now() + Duration::from_secs(5)));
        assert_eq!(by(json!(60_000)), first);
        assert_eq!(by(Value::Null), first);
        assert!(by(json!(1000)) < first);
    }

    #[test]
    fn front_leaves_a_late_keeper_time_to_let_go() {
        let by = Deadlines::of(Duration::from_secs(10)).unwrap();
        assert_eq!(by.front - by.job, Duration::from_secs(1));
        assert!(by.front < Instant::now() + Duration::from_secs(10));
    }
}
