//! The crash of a holder, as text and as JSON.

use std::time::{Duration, SystemTime};

use bellwether::hold::{Crash, Ended};
use nix::sys::signal::Signal;

/// A crash as JSON.
pub(crate) use bellwether_dashboard::json::crash as object;

use crate::exit::Exit;
use crate::output::people::{plain, who_text};
use crate::output::rendering::data_text;
use crate::value::duration;

/// A crash as text. It is a result, and no notice: `--quiet` does not silence it.
pub(crate) fn report(path: &str, crash: &Crash) -> String {
    let who = crash
        .who
        .as_ref()
        .map_or("the previous holder".into(), who_text);
    let ending = crash
        .ended
        .as_ref()
        .map_or_else(|| vanished(crash), |ended| ending(ended, SystemTime::now()));
    let note = match &crash.note {
        Some(note) => format!("; its last note: {}", data_text(Some(note))),
        None => String::new(),
    };
    match is_interrupt(crash) {
        true => format!("{who} held {path} before and was {ending}{note}"),
        false => format!("{who} held {path} before and did not finish: {ending}{note}"),
    }
}

/// Whether a user ended the holder with Ctrl-C. Its work may be half done, but nothing has failed.
pub(crate) fn is_interrupt(crash: &Crash) -> bool {
    let ended = crash.ended.as_ref();
    ended.is_some_and(|ended| ended.how == Exit::Signal(Signal::SIGINT as i32).reason())
}

/// The crash of a holder that recorded no ending. A job of the command records its ending, unless its host died or was cut off, or all its
/// processes were killed at once: then the servers waited for its session timeout. A deleted node leaves no trace either.
fn vanished(crash: &Crash) -> String {
    let is_job = crash.who.as_ref().is_some_and(|who| who.command.is_some());
    match crash.session_timeout.filter(|_| is_job) {
        Some(timeout) => format!(
            "nothing was heard from its host for {}, or its node was deleted",
            duration::text(timeout)
        ),
        None => "it was killed or cut off, or its host died".to_owned(),
    }
}

/// How a holder ended, as it recorded it, and how long ago by its clock.
fn ending(ended: &Ended, now: SystemTime) -> String {
    let at = SystemTime::UNIX_EPOCH + Duration::from_millis(ended.at_ms);
    let ago = now.duration_since(at).unwrap_or_default();
    format!("{} {} ago", plain(&ended.how), duration::text(ago))
}
