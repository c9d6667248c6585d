//! `bellwether revoke` and `bellwether break`: ask a holder to release, or break its hold.

use std::io::{self, IsTerminal};
use std::time::Duration;

use bellwether::inspect::{Contention, Ending, QueueEntry, Survey};
use bellwether::{Client, Error};
use futures_util::future::join_all;
use serde_json::json;

use crate::args::{BreakArgs, RevokeArgs, TargetArgs, TreeArgs};
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::input;
use crate::output::overview::standing_at;
use crate::output::people::contestant_text;
use crate::output::refusal::Refusal;
use crate::output::{self, Output};
use crate::value::node_path;

pub(crate) fn revoke(args: RevokeArgs, output: Output) -> anyhow::Result<Exit> {
    turn_to(&args.target, &args.tree, RevokeDeed::Ask, output)
}

pub(crate) fn break_hold(args: BreakArgs, output: Output) -> anyhow::Result<Exit> {
    turn_to(
        &args.target,
        &args.tree,
        RevokeDeed::Break(args.grace),
        output,
    )
}

/// What to do about the holders.
#[derive(Clone, Copy)]
enum RevokeDeed {
    Ask,
    /// Break the hold after a grace.
    Break(Duration),
}

fn turn_to(
    target: &TargetArgs,
    tree: &TreeArgs,
    deed: RevokeDeed,
    output: Output,
) -> anyhow::Result<Exit> {
    if !target.yes && !io::stdin().is_terminal() {
        return Err(
            Refusal::usage("stdin is not a terminal, so there is no confirmation")
                .hint("--yes goes ahead without confirmation")
                .into(),
        );
    }
    in_session(&tree.connect, output, async |client| {
        let holders = find(client, target).await?;
        if !target.yes && !agreed(&holders, target, deed, output).await? {
            return Ok(Exit::No);
        }
        // In parallel, so that their graces run at the same time.
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

/// Finds the holders that the arguments mean.
async fn find(client: &Client, target: &TargetArgs) -> anyhow::Result<Vec<QueueEntry>> {
    let path = &target.path;
    let overview = Survey::new(client, path).look().await?;
    let meant: Vec<_> = standing_at(&overview, path)
        .filter(|one| match &target.node {
            Some(node) => one.node == *node,
            None => one.holds,
        })
        .cloned()
        .collect();
    if meant.is_empty() {
        let what = match &target.node {
            Some(node) => format!("{node} is not a contender at {path}"),
            None => format!("{path} is not held"),
        };
        return Err(Refusal::no(what).into());
    }
    Ok(meant)
}

async fn agreed(
    holders: &[QueueEntry],
    target: &TargetArgs,
    deed: RevokeDeed,
    output: Output,
) -> io::Result<bool> {
    for holder in holders {
        output.say(contestant_text(holder));
    }
    let path = &target.path;
    let question = match deed {
        RevokeDeed::Ask => format!("ask the holder to release {path}?"),
        RevokeDeed::Break(grace) => {
            format!("break the hold on {path}, in {grace:?} at the latest?")
        }
    };
    input::agreed(&question, "nothing is done", output).await
}

/// Asks or breaks, and returns the outcome in a word.
async fn act(
    client: &Client,
    target: &TargetArgs,
    deed: RevokeDeed,
    holder: &QueueEntry,
) -> Result<&'static str, Error> {
    let dir = node_path::parent(&holder.path).unwrap_or("/");
    let mut contention = Contention::new(client, dir);
    if let Some(message) = &target.message {
        contention = contention.message(message);
    }
    match deed {
        RevokeDeed::Ask => Ok(match contention.revoke(&holder.node, holder.token).await? {
            true => "asked",
            false => "gone",
        }),
        RevokeDeed::Break(grace) => Ok(
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
