//! Requests to let go, as whoever holds something hears them.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use bellwether::{Hold, Revocation};
use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep_until, timeout};

use crate::aside::Aside;
use crate::duration;
use crate::output::{self, Output};
use crate::people::{plain, who_json, who_text};
use crate::workplace::ENDING_LIMIT;

/// The part of a grace that is not the job's: in it the request is on its way here, and the release on its way back.
const ON_THE_WAY: u32 = 5;

/// As much of somebody else's words as goes on a line.
const CHARS_MAX: usize = 300;

/// A request in words.
pub(crate) fn told(path: &str, asked: &Revocation) -> String {
    let mut text = format!("asked to let go of {path}");
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

/// The same for programs.
fn object(asked: &Revocation) -> Value {
    json!({
        "by": asked.by.as_ref().map(who_json),
        "message": asked.message,
        "grace_ms": asked.grace_ms,
    })
}

/// Tells a script of every request to let go, by a line on stdout; whether it does, and whether it reads the line, is up to the
/// script.
pub(crate) async fn pass_on(hold: &Hold, json: bool, aside: &Aside, output: Output) -> Infallible {
    let (path, mut requests) = (hold.path(), hold.revocations());
    // Apart from what goes to stderr: that is said though the script does not read.
    let lines = Aside::start();
    while let Some(asked) = requests.next().await {
        let told = told(path, &asked);
        let line = match json {
            true => json!({"path": path, "asked": object(&asked)}).to_string(),
            false => told.clone(),
        };
        // A script that cannot be told still holds it.
        lines.say(move || drop(output::answer_line(line)));
        aside.say(move || output.notice(told));
    }
    pending().await
}

/// Records who breaks a hold whose job is stopped, in the line and for the next holder. A record that takes too long is not
/// waited for: whoever breaks the hold removes it by force soon.
pub(crate) async fn record_break(hold: &Hold, asked: &Revocation) {
    let how = broken(asked);
    let recorded = async { tokio::join!(hold.record_break(asked), hold.tell_ending(&how)) };
    if let Ok((Err(error), _)) = timeout(ENDING_LIMIT, recorded).await {
        tracing::debug!(%error, "the break is not recorded");
    }
}

/// A break as the next holder is told of it.
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

/// When a hold will be taken away, as far as its holder was told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaking {
    /// Until then the holder can let go of it and be known to have done so.
    by: Option<Instant>,
    /// The request that said so.
    request: Option<Revocation>,
}

impl Breaking {
    /// The earliest time counts: one who only asks takes back nothing that another has announced. No grace at all is none that
    /// could be used; the hold is lost then before anything can be done.
    pub(crate) fn announced(&mut self, asked: &Revocation) {
        let grace = asked.grace().filter(|grace| !grace.is_zero());
        let by = grace.and_then(|grace| Instant::now().checked_add(grace - grace / ON_THE_WAY));
        if let Some(by) = by.filter(|by| self.by.is_none_or(|earlier| *by < earlier)) {
            self.by = Some(by);
            self.request = Some(asked.clone());
        }
    }

    /// The request by which the hold will be taken away.
    pub(crate) fn request(&self) -> Option<&Revocation> {
        self.request.as_ref()
    }

    /// Resolves so much before the hold has to be let go of, with that time. Cancel safe.
    pub(crate) async fn near(&self, ahead: Duration) -> Instant {
        let Some(by) = self.by else {
            return pending().await;
        };
        if let Some(start) = by.checked_sub(ahead) {
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
            told("/x", &Revocation::default()),
            "asked to let go of /x",
            "other libraries say no more"
        );
        let who = json!({"version": 1, "host": "db7", "pid": 4711, "user": "me"});
        let request = json!({"by": who, "message": "ple\u{1b}ase", "grace_ms": 5000});
        assert_eq!(
            told("/x", &asked(request)),
            "asked to let go of /x by me@db7 pid 4711 within 5s: please"
        );
    }

    #[test]
    fn long_words_are_cut() {
        let told = told("/x", &asked(json!({"message": "ä".repeat(70_000)})));
        assert_eq!(
            told,
            format!("asked to let go of /x: {}…", "ä".repeat(CHARS_MAX))
        );
    }

    #[test]
    fn earliest_announcement_counts() {
        let mut breaking = Breaking::default();
        let mut by = |grace_ms: Value| {
            breaking.announced(&asked(json!({"grace_ms": grace_ms})));
            breaking.by
        };
        assert_eq!(by(Value::Null), None);
        assert_eq!(by(json!(0)), None);
        let first = by(json!(10_000));
        assert!(first > Some(Instant::now() + Duration::from_secs(5)));
        assert_eq!(by(json!(60_000)), first);
        assert_eq!(by(Value::Null), first);
        assert!(by(json!(1000)) < first);
    }
}
