//! Who somebody is, as people and as JSON see it. What others say of themselves may be anything.

use std::time::{Duration, SystemTime};

use bellwether::{Contestant, Layout, Who};
use serde_json::{Value, json};

use crate::duration;
use crate::rendering::{data_text, hex};

/// Somebody in a line: where it is found, what it runs and what it says.
pub(crate) fn contestant_text(contestant: &Contestant) -> String {
    match &contestant.who {
        Some(who) => who_text(who),
        None => {
            let session = hex(contestant.session);
            match &contestant.data[..] {
                [] => format!("session {session}"),
                data => format!("session {session} {}", data_text(Some(data))),
            }
        }
    }
}

/// `USER@HOST pid PID COMMAND (VALUE: MESSAGE)`, as far as it is known: the same in every message.
pub(crate) fn who_text(who: &Who) -> String {
    let mut text = match (&who.user, who.host.is_empty()) {
        (_, true) => "somebody".to_owned(),
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

/// Those who hold something, with how long the first of them has been there; `None` if there is none.
pub(crate) fn holders_text<'a>(
    holders: impl IntoIterator<Item = &'a Contestant>,
) -> Option<String> {
    let mut holders = holders.into_iter();
    let first = holders.next()?;
    let time = duration::text(age(first.since));
    let text = format!("{}, {time}", contestant_text(first));
    Some(with_others(text, holders.count()))
}

/// Adds how many others there are beside the one that a text tells of.
pub(crate) fn with_others(text: String, others: usize) -> String {
    match others {
        0 => text,
        1 => format!("{text}, and one other"),
        others => format!("{text}, and {others} others"),
    }
}

/// The same for programs.
pub(crate) fn contestant_json(contestant: &Contestant) -> Value {
    json!({
        "node": contestant.node,
        "path": contestant.path,
        "wants": wants(contestant),
        "token": contestant.token,
        "owner": contestant.owner(),
        "session": hex(contestant.session),
        "since_ms": ms(contestant.since),
        "who": contestant.who.as_ref().map(who_json),
        "data": crate::rendering::data_json(contestant.who.is_none().then_some(&*contestant.data)),
        "asked_to_let_go": contestant.revocation.is_some(),
    })
}

pub(crate) fn who_json(who: &Who) -> Value {
    json!({
        "host": who.host,
        "pid": who.pid,
        "user": who.user,
        "command": who.command,
        "message": who.message,
        "value": who.value,
        "since_ms": who.since_ms,
    })
}

/// The library that made something, if it is another one.
pub(crate) fn foreign(layout: Layout) -> Option<&'static str> {
    match layout {
        Layout::Curator => Some("Curator"),
        Layout::Kazoo => Some("kazoo"),
        _ => None,
    }
}

fn wants(contestant: &Contestant) -> Value {
    use bellwether::Wants;
    match contestant.wants {
        Wants::Lock => "lock".into(),
        Wants::Read => "read".into(),
        Wants::Write if contestant.is_downgraded => "read".into(),
        Wants::Write => "write".into(),
        Wants::Permits(permits) => json!({"permits": permits}),
        Wants::Leadership => "lead".into(),
        Wants::Barrier => "meet".into(),
        Wants::Item => "item".into(),
        _ => Value::Null,
    }
}

/// Milliseconds since 1970.
pub(crate) fn ms(time: SystemTime) -> u64 {
    let since = time
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// How long ago that was; nothing for what the clock of another machine says is yet to come.
pub(crate) fn age(time: SystemTime) -> Duration {
    SystemTime::now().duration_since(time).unwrap_or_default()
}

/// Where somebody is found, for a program. What others say of themselves may be anything.
pub(crate) fn address(who: &Who) -> String {
    format!("{}:{}", plain(&who.host), who.pid)
}

/// Text of somebody else, without what a terminal would take for a command.
pub(crate) fn plain(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_writes_to_the_terminal_by_a_name() {
        let who = br#"{"version": 1, "host": "db7\u001b[2J", "pid": 4711, "user": "me", "command": "sh", "message": "nightly"}"#;
        let who = Who::from_data(who).unwrap();
        assert_eq!(who_text(&who), "me@db7[2J pid 4711 sh (nightly)");
        assert_eq!(who_text(&Who::default()), "somebody");
    }
}
