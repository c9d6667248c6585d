//! How the hold before a job's own ended, as the job and people are told.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::time::{Duration, SystemTime};

use bellwether::{Crash, Ended, Previous};
use serde_json::{Value, json};

use crate::duration;
use crate::job::Variable;
use crate::notes;
use crate::people::{address, plain, who_json, who_text};
use crate::rendering::{data_json, data_text};

/// For a job whose forerunner has crashed, and that has been seen to.
pub(crate) const REPAIRED: &str = "repaired";

/// Tells whether the one before crashed.
pub(crate) const VARIABLE: &str = "BELLWETHER_PREVIOUS";

/// The variables of a job that tell of it.
pub(crate) fn variables(previous: &Previous) -> [Variable; 5] {
    let (state, crash) = match previous {
        Previous::Clean => ("clean", None),
        Previous::Crashed(crash) => ("crashed", Some(crash)),
        _ => ("unknown", None),
    };
    let who = crash.and_then(|crash| crash.who.as_ref()).map(address);
    let token = crash.and_then(|crash| crash.token);
    let note = crash.and_then(|crash| crash.note.as_deref()).map(variable);
    let ended = crash.and_then(|crash| crash.ended.as_ref());
    [
        (VARIABLE, Some(state.into())),
        ("BELLWETHER_PREVIOUS_WHO", who.map(OsString::from)),
        (
            "BELLWETHER_PREVIOUS_TOKEN",
            token.map(|token| token.to_string().into()),
        ),
        ("BELLWETHER_PREVIOUS_NOTE", note),
        (
            "BELLWETHER_PREVIOUS_END",
            ended.map(|ended| variable(ended.how.as_bytes())),
        ),
    ]
}

/// A crash in words.
pub(crate) fn told(path: &str, crash: &Crash) -> String {
    let who = crash
        .who
        .as_ref()
        .map_or("the holder before".into(), who_text);
    let ending = crash
        .ended
        .as_ref()
        .map_or(VANISHED.into(), |ended| ending(ended, SystemTime::now()));
    let note = match &crash.note {
        Some(note) => format!("; its last note: {}", data_text(Some(note))),
        None => String::new(),
    };
    format!("{who} held {path} before and did not finish: {ending}{note}")
}

/// The crash of a holder that left no word of how it ended.
const VANISHED: &str = "it was killed or cut off, or its host died";

/// How a holder ended, by its own words, and how long ago by its own clock.
fn ending(ended: &Ended, now: SystemTime) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(ended.at_ms);
    let ago = now.duration_since(at).unwrap_or_default();
    format!("{} {} ago", plain(&ended.how), duration::text(ago))
}

/// The same for programs.
pub(crate) fn object(crash: &Crash) -> Value {
    json!({
        "who": crash.who.as_ref().map(who_json),
        "token": crash.token,
        "note": data_json(crash.note.as_deref()),
        "ended": crash.ended.as_ref().map(|ended| json!({
            "how": ended.how,
            "at_ms": ended.at_ms,
        })),
    })
}

/// A note as a variable can hold it: not for ever long, and without the byte that would end it.
fn variable(note: &[u8]) -> OsString {
    let mut note = note[..note.len().min(notes::BYTES_MAX)].to_vec();
    note.retain(|&byte| byte != 0);
    OsString::from_vec(note)
}
