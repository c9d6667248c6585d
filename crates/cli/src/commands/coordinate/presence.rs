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

/// The time limit for leaving.
const LEAVE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Prints names with their data; in JSON, in the field `field`.
pub(crate) fn list(roster: &Roster, field: &str, place: &PlaceArgs) -> anyhow::Result<Exit> {
    Ok(output::answer(|out| {
        if place.tree.json {
            let entries = roster.iter();
            let entries: Value = entries
                .map(|(name, data)| json!({"name": name, "data": data_json(Some(data))}))
                .collect();
            writeln!(out, "{}", json!({"path": place.path, field: entries}))?;
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
