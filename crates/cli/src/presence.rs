//! Members and names: those that are borne by this command, and lists of them.

use bellwether::{Membership, Roster, StateError};
use serde_json::{Value, json};

use crate::args::{DataArgs, PlaceArgs};
use crate::exit::Exit;
use crate::output::{self, Output};
use crate::payload;
use crate::refusal;
use crate::rendering::{data_json, data_text};

/// Prints the name that was got, and bears it until stdin ends.
pub(crate) async fn stay(
    joined: Result<Membership, StateError>,
    place: &PlaceArgs,
    data: &DataArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let membership = joined.map_err(refusal::of_state)?;
    let name = membership.name();
    let exit = match place.tree.json {
        true => output::answer_line(json!({"path": place.path, "name": name}))?,
        false => output::answer_line(name)?,
    };
    let ended = payload::until_input_ends(data).await;
    let left = tokio::time::timeout(LEAVE_LIMIT, membership.leave()).await;
    if left.is_err() {
        output.notice("the end was not acknowledged; the name goes with the session");
    }
    ended.map(|()| exit)
}

/// How long the servers have to acknowledge the end.
const LEAVE_LIMIT: std::time::Duration = std::time::Duration::from_secs(5);

/// Prints names with their data; in JSON as the field `field`.
pub(crate) fn list(roster: &Roster, field: &str, place: &PlaceArgs) -> anyhow::Result<Exit> {
    Ok(output::answer(|out| {
        if place.tree.json {
            let entries = roster.iter();
            let entries: Value = entries
                .map(|(name, data)| json!({"name": name, "data": data_json(Some(data))}))
                .collect();
            writeln!(out, "{}", json!({"path": place.path, field: entries}))?;
        } else {
            for (name, data) in roster {
                writeln!(out, "{name} {}", data_text(Some(data)))?;
            }
        }
        Ok(Exit::Done)
    })?)
}
