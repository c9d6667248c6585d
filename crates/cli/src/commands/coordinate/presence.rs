//! Members and names that live as long as a command, and lists of them.

use bellwether::state::Roster;
use bellwether::{Error, Membership};
use serde_json::{Value, json};

use crate::args::{DataArgs, PlaceArgs};
use crate::exit::Exit;
use crate::output::rendering::{data_json, data_text};
use crate::output::{self, Output};
use crate::tree::payload;

/// Prints the name, and keeps it until stdin ends.
pub(crate) async fn stay(
    joined: Result<Membership, Error>,
    place: &PlaceArgs,
    data: &DataArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let membership = joined?;
    let name = membership.name();
    let exit = match place.tree.json {
        true => output::answer_line(json!({"path": place.path, "name": name}))?,
        false => output::answer_line(name)?,
    };
    let ended = payload::until_input_ends(data).await;
    let left = tokio::time::timeout(LEAVE_LIMIT, membership.leave()).await;
    if left.is_err() {
        output
            .notice("the server did not acknowledge the end; the name is deleted with the session");
    }
    ended.map(|()| exit)
}

/// One line per difference between two rosters, first those that are gone. `events` are the words for gone, new and changed.
pub(crate) fn changes(
    before: &Roster,
    after: &Roster,
    events: [&'static str; 3],
    as_json: bool,
) -> String {
    let [gone, new, changed] = events;
    let left = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let left = left.map(|(name, _)| (gone, name, None));
    let others = after.iter().filter_map(|(name, data)| {
        let event = match before.get(name) {
            None => new,
            Some(known) if known != data => changed,
            Some(_) => return None,
        };
        Some((event, name, Some(&**data)))
    });
    let line = |(event, name, data): (&str, &String, Option<&[u8]>)| match (as_json, data) {
        (true, data) => {
            format!(
                "{}\n",
                json!({"event": event, "name": name, "data": data_json(data)})
            )
        }
        (false, Some(data)) => format!("{event:<7} {name} {}\n", data_text(Some(data))),
        (false, None) => format!("{event:<7} {name}\n"),
    };
    left.chain(others).map(line).collect()
}

/// The time limit for leaving.
const LEAVE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Prints names with their data; in JSON, in the field `field`.
pub(crate) fn list(
    roster: &Roster,
    field: &str,
    path: &str,
    as_json: bool,
) -> anyhow::Result<Exit> {
    Ok(output::answer(|out| {
        if as_json {
            let entries = roster.iter();
            let entries: Value = entries
                .map(|(name, data)| json!({"name": name, "data": data_json(Some(data))}))
                .collect();
            writeln!(out, "{}", json!({"path": path, field: entries}))?;
        } else {
            if !roster.is_empty() {
                output::header(out, "name data")?;
            }
            for (name, data) in roster {
                writeln!(out, "{name} {}", data_text(Some(data)))?;
            }
        }
        Ok(Exit::Done)
    })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_a_line() {
        let roster = |members: &[(&str, &str)]| -> Roster {
            let members = members.iter();
            members
                .map(|(name, data)| ((*name).to_owned(), data.as_bytes().to_vec()))
                .collect()
        };
        let before = roster(&[("a", "1"), ("b", "2"), ("c", "3")]);
        let after = roster(&[("b", "2"), ("c", "4"), ("d", "5")]);
        let changes = |before, after| changes(before, after, ["left", "joined", "changed"], false);
        assert_eq!(
            changes(&before, &after),
            "left    a\nchanged c \"4\"\njoined  d \"5\"\n"
        );
        assert_eq!(changes(&before, &before), "", "nothing has changed");
    }
}
