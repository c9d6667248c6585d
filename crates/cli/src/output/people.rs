//! Clients and contenders, as text and as JSON. Their data may contain anything.

use std::time::{Duration, SystemTime};

use bellwether::Who;
use bellwether::inspect::QueueEntry;
use bellwether::line::Layout;

pub(crate) use bellwether_dashboard::json::{entry as contestant_json, ms, who as who_json};

use crate::output::rendering::{data_text, hex};
use crate::value::duration;

/// A contender: its process, command and message.
pub(crate) fn contestant_text(entry: &QueueEntry) -> String {
    match &entry.who {
        Some(who) => who_text(who),
        None => {
            let session = hex(entry.session.number());
            match &entry.data[..] {
                [] => format!("session {session}"),
                data => format!("session {session} {}", data_text(Some(data))),
            }
        }
    }
}

/// `USER@HOST pid PID COMMAND (VALUE: MESSAGE)`, as far as it is known: the same in every message.
pub(crate) fn who_text(who: &Who) -> String {
    let mut text = match (&who.user, who.host.is_empty()) {
        (_, true) => "an unknown client".to_owned(),
        (Some(user), _) => format!("{}@{} pid {}", plain(user), plain(&who.host), who.pid),
        (None, _) => format!("{} pid {}", plain(&who.host), who.pid),
    };
    if let Some(command) = &who.command {
        text += &format!(" {}", plain(command));
    }
    let words = [&who.value, &who.message];
    let words: Vec<_> = words
        .into_iter()
        .flatten()
        .map(|word| plain(word))
        .collect();
    if !words.is_empty() {
        text += &format!(" ({})", words.join(": "));
    }
    text
}

/// The holders: the first with the time since when it holds, and the number of others. `None` without holders.
pub(crate) fn holders_text<'a>(
    holders: impl IntoIterator<Item = &'a QueueEntry>,
) -> Option<String> {
    let mut holders = holders.into_iter();
    let first = holders.next()?;
    let time = duration::text(age(first.since));
    let text = format!("{}, {time}", contestant_text(first));
    Some(with_others(text, holders.count()))
}

/// Adds the number of others to a text about one.
pub(crate) fn with_others(text: String, others: usize) -> String {
    match others {
        0 => text,
        1 => format!("{text}, and one other"),
        others => format!("{text}, and {others} others"),
    }
}

/// The name of the library, unless it is bellwether.
pub(crate) fn foreign(layout: Layout) -> Option<&'static str> {
    match layout {
        Layout::Curator => Some("Curator"),
        Layout::Kazoo => Some("kazoo"),
        _ => None,
    }
}

/// How long ago a time was; zero if it is in the future, by the clock of another machine.
pub(crate) fn age(time: SystemTime) -> Duration {
    SystemTime::now().duration_since(time).unwrap_or_default()
}

/// The host and pid of a client, for programs.
pub(crate) fn address(who: &Who) -> String {
    format!("{}:{}", plain(&who.host), who.pid)
}

/// Text of another user, without control characters.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_control_the_terminal() {
        let who = br#"{"version": 1, "host": "db7\u001b[2J", "pid": 4711, "user": "me", "command": "sh", "message": "nightly"}"#;
        let who = Who::from_data(who).unwrap();
        assert_eq!(who_text(&who), "me@db7[2J pid 4711 sh (nightly)");
        assert_eq!(who_text(&Who::default()), "an unknown client");
    }
}
