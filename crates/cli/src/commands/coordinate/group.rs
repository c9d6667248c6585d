//! `bellwether group`: members of a group.

use std::ops::ControlFlow;

use bellwether::Group;
use bellwether::state::{Roster, Seen};
use futures_util::StreamExt;
use serde_json::json;

use crate::args::{GroupArgs, GroupCommand, GroupJoinArgs, PlaceArgs};
use crate::commands::coordinate::presence;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::rendering::{data_json, data_text};
use crate::output::{Output, print_now};
use crate::tree::payload;

pub(crate) fn run(args: GroupArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        GroupCommand::Join(args) => join(&args, output),
        GroupCommand::Ls(args) => ls(&args, output),
        GroupCommand::Watch(args) => watch(&args, output),
    }
}

fn join(args: &GroupJoinArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, data) = (&args.place, payload::given_or_empty(&args.data)?);
    in_session(&place.tree.connect, output, async |client| {
        let group = Group::new(client, &place.path);
        let joined = match &args.name {
            Some(name) => group.join_as(name, data).await,
            None => group.join(data).await,
        };
        presence::stay(joined, place, &args.data, output).await
    })
}

fn ls(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&place.tree.connect, output, async |client| {
        let members = Group::new(client, &place.path).members().await?;
        presence::list(&members, "members", place)
    })
}

fn watch(place: &PlaceArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&place.tree.connect, output, async |client| {
        let mut seen = Group::new(client, &place.path).watch();
        let mut known = Roster::new();
        while let Some(change) = seen.next().await {
            let members = match change? {
                Seen::Value(members) => members,
                Seen::Absent => Roster::new(),
                Seen::Renewed => {
                    output.notice("the session ended; continuing in a new one");
                    continue;
                }
                _ => continue,
            };
            let text = changes(&known, &members, place.tree.json);
            if let ControlFlow::Break(()) = print_now(&text)? {
                break;
            }
            known = members;
        }
        Ok(Exit::Done)
    })
}

/// One line per change, members that left first.
fn changes(before: &Roster, after: &Roster, as_json: bool) -> String {
    let left = before.iter().filter(|(name, _)| !after.contains_key(*name));
    let left = left.map(|(name, _)| ("left", name, None));
    let others = after.iter().filter_map(|(name, data)| {
        let event = match before.get(name) {
            None => "joined",
            Some(known) if known != data => "changed",
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
        assert_eq!(
            changes(&before, &after, false),
            "left    a\nchanged c \"4\"\njoined  d \"5\"\n"
        );
        assert_eq!(changes(&before, &before, false), "", "nothing has changed");
    }
}
