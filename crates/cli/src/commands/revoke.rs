//! `bellwether revoke` and `bellwether break`: asking whoever holds something to let go, and making it.

use std::io::{self, IsTerminal};
use std::time::Duration;

use bellwether::{Client, Contention, ContentionError, Contestant, Ending};
use futures_util::future::join_all;
use serde_json::json;

use super::locks::look;
use crate::args::{BreakArgs, RevokeArgs, TargetArgs, TreeArgs};
use crate::exit::Exit;
use crate::input;
use crate::node_path;
use crate::output::{self, Output};
use crate::overview::standing_at;
use crate::people::contestant_text;
use crate::refusal::Refusal;
use crate::session::in_session;

pub(crate) fn revoke(args: RevokeArgs, output: Output) -> anyhow::Result<Exit> {
    turn_to(&args.target, &args.tree, Deed::Ask, output)
}

pub(crate) fn break_hold(args: BreakArgs, output: Output) -> anyhow::Result<Exit> {
    turn_to(&args.target, &args.tree, Deed::Break(args.grace), output)
}

/// What is to be done.
#[derive(Clone, Copy)]
enum Deed {
    Ask,
    /// After a grace.
    Break(Duration),
}

fn turn_to(
    target: &TargetArgs,
    tree: &TreeArgs,
    deed: Deed,
    output: Output,
) -> anyhow::Result<Exit> {
    if !target.yes && !io::stdin().is_terminal() {
        return Err(Refusal::usage("there is nobody to ask whether to do it")
            .hint("--yes does it without asking")
            .into());
    }
    in_session(tree, output, async |client| {
        let holders = find(client, target).await?;
        if !target.yes && !agreed(&holders, target, deed, output).await? {
            return Ok(Exit::No);
        }
        // All at once: their graces are one grace.
        let ends = join_all(holders.iter().map(|one| act(client, target, deed, one))).await;
        let mut ended = Vec::new();
        for (holder, end) in holders.iter().zip(ends) {
            ended.push((holder, end?));
        }
        Ok(output::answer(|out| {
            if tree.json {
                let holders: Vec<_> = ended
                    .iter()
                    .map(|(one, end)| json!({"node": one.node, "token": one.token, "end": end}))
                    .collect();
                writeln!(out, "{}", json!({"path": target.path, "holders": holders}))?;
            } else {
                for (holder, end) in &ended {
                    writeln!(out, "{end:<6} {} {}", holder.node, contestant_text(holder))?;
                }
            }
            Ok(Exit::Done)
        })?)
    })
}

/// Those who are meant.
async fn find(client: &Client, target: &TargetArgs) -> anyhow::Result<Vec<Contestant>> {
    let path = &target.path;
    let overview = look(client, path).await?;
    let meant: Vec<_> = standing_at(&overview, path)
        .filter(|one| match &target.node {
            Some(node) => one.node == *node,
            None => one.holds,
        })
        .cloned()
        .collect();
    if meant.is_empty() {
        let what = match &target.node {
            Some(node) => format!("{node} does not stand in line at {path}"),
            None => format!("nobody holds {path}"),
        };
        return Err(Refusal::no(what).into());
    }
    Ok(meant)
}

async fn agreed(
    holders: &[Contestant],
    target: &TargetArgs,
    deed: Deed,
    output: Output,
) -> io::Result<bool> {
    for holder in holders {
        output.say(contestant_text(holder));
    }
    let path = &target.path;
    let question = match deed {
        Deed::Ask => format!("ask to let go of {path}?"),
        Deed::Break(grace) => format!("take {path} away, {grace:?} from now at the latest?"),
    };
    input::agreed(&question, "nothing is done", output).await
}

/// What became of it, in a word.
async fn act(
    client: &Client,
    target: &TargetArgs,
    deed: Deed,
    holder: &Contestant,
) -> Result<&'static str, ContentionError> {
    let dir = node_path::parent(&holder.path).unwrap_or("/");
    let mut contention = Contention::new(client, dir);
    if let Some(message) = &target.message {
        contention = contention.message(message);
    }
    match deed {
        Deed::Ask => Ok(match contention.revoke(&holder.node, holder.token).await? {
            true => "asked",
            false => "gone",
        }),
        Deed::Break(grace) => Ok(
            match contention
                .break_hold(&holder.node, holder.token, grace)
                .await?
            {
                Ending::Broken => "broken",
                _ => "gone",
            },
        ),
    }
}
