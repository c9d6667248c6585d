//! Tells a job, by variables, how the previous hold ended.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

use bellwether::hold::Previous;

use crate::job::notes;
use crate::job::process::Variable;
use crate::output::people::address;

/// The value of [`VARIABLE`] after a crash that was repaired.
pub(crate) const REPAIRED: &str = "repaired";

/// Whether the previous holder crashed.
pub(crate) const VARIABLE: &str = "BELLWETHER_PREVIOUS";

/// The variables of a job that describe the end of the previous hold.
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

/// A note as the value of a variable: cut to the limit, and without zero bytes.
fn variable(note: &[u8]) -> OsString {
    let mut note = note[..note.len().min(notes::BYTES_MAX)].to_vec();
    note.retain(|&byte| byte != 0);
    OsString::from_vec(note)
}
