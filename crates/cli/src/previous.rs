//! How the hold before a job's own ended, as the job and people are told.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use bellwether::{Crash, Previous};

use crate::job::Variable;
use crate::notes;
use crate::people::{address, who_text};
use crate::rendering::data_text;

/// For a job whose forerunner has crashed, and that has been seen to.
pub(crate) const REPAIRED: &str = "repaired";

/// Tells whether the one before crashed.
pub(crate) const VARIABLE: &str = "BELLWETHER_PREVIOUS";

/// The variables of a job that tell of it.
pub(crate) fn variables(previous: &Previous) -> [Variable; 4] {
    let (state, crash) = match previous {
        Previous::Clean => ("clean", None),
        Previous::Crashed(crash) => ("crashed", Some(crash)),
        _ => ("unknown", None),
    };
    let who = crash.and_then(|crash| crash.who.as_ref()).map(address);
    let token = crash.and_then(|crash| crash.token);
    let note = crash.and_then(|crash| crash.note.as_deref()).map(variable);
    [
        (VARIABLE, Some(state.into())),
        ("BELLWETHER_PREVIOUS_WHO", who.map(OsString::from)),
        (
            "BELLWETHER_PREVIOUS_TOKEN",
            token.map(|token| token.to_string().into()),
        ),
        ("BELLWETHER_PREVIOUS_NOTE", note),
    ]
}

/// A crash in words.
pub(crate) fn told(path: &str, crash: &Crash) -> String {
    let who = crash
        .who
        .as_ref()
        .map_or("the holder before".into(), who_text);
    let note = match &crash.note {
        Some(note) => format!("; its last note: {}", data_text(Some(note))),
        None => String::new(),
    };
    format!("{who} died holding {path}{note}")
}

/// A note as a variable can hold it: not for ever long, and without the byte that would end it.
fn variable(note: &[u8]) -> OsString {
    let mut note = note[..note.len().min(notes::BYTES_MAX)].to_vec();
    note.retain(|&byte| byte != 0);
    OsString::from_vec(note)
}
