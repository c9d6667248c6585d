//! `bellwether group`: members of a group.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bellwether::inspect::Survey;
use bellwether::state::{Roster, Seen};
use bellwether::{Client, Group};
use futures_util::StreamExt;
use serde_json::{Value, json};

use crate::args::{GroupArgs, GroupCommand, GroupJoinArgs, GroupLsArgs, PlaceArgs};
use crate::commands::coordinate::presence;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::progress::Progress;
use crate::output::rendering::{counted, path_text};
use crate::output::{self, Output, print_now};
use crate::tree::payload;
use crate::tree::walk::walk;
use crate::value::node_path;

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

fn ls(args: &GroupLsArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.tree.connect, output, async |client| {
        match &args.path {
            Some(path) if !args.recursive => {
                let members = Group::new(client, path).members().await?;
                presence::list(&members, "members", path, args.tree.json)
            }
            path => list_groups(client, path.as_deref().unwrap_or("/"), args, output).await,
        }
    })
}

/// Lists the groups at a path and below it: nodes with members, and their number.
async fn list_groups(
    client: &Client,
    path: &str,
    args: &GroupLsArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let progress = Progress::counter("reading", output);
    let visited = walk(&client.raw(), path, None, &progress).await?;
    let overview = Survey::new(client, path).look().await?;
    drop(progress);
    let mut groups: BTreeMap<&str, usize> = BTreeMap::new();
    for member in visited.iter().filter(|node| node.is_ephemeral()) {
        let above = member.path.rsplit_once('/').map_or("", |(above, _)| above);
        // Contenders, consumers and sites are ephemeral too.
        let recipes = &overview.recipes;
        if !recipes
            .iter()
            .any(|at| node_path::is_within(above, &at.path))
        {
            *groups
                .entry(if above.is_empty() { "/" } else { above })
                .or_default() += 1;
        }
    }
    Ok(output::answer(|out| {
        if args.tree.json {
            let groups = groups.iter();
            let groups: Value = groups
                .map(|(path, members)| json!({"path": path, "members": members}))
                .collect();
            writeln!(out, "{}", json!({"path": path, "groups": groups}))?;
            return Ok(Exit::Done);
        }
        for (path, members) in &groups {
            writeln!(out, "{}  {}", path_text(path), counted(*members, "member"))?;
        }
        Ok(Exit::Done)
    })?)
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
            let events = ["left", "joined", "changed"];
            let text = presence::changes(&known, &members, events, place.tree.json);
            if let ControlFlow::Break(()) = print_now(&text)? {
                break;
            }
            known = members;
        }
        Ok(Exit::Done)
    })
}
