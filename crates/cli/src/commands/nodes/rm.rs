//! `bellwether rm`: deletes a node, with `-r` all nodes below it too.

use std::io::{self, IsTerminal};

use anyhow::Context;
use bellwether::zk;
use serde_json::json;

use crate::args::RmArgs;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::input;
use crate::output::progress::Progress;
use crate::output::refusal::{Refusal, Verb};
use crate::output::rendering::counted;
use crate::output::{self, Output};
use crate::tree::batch;
use crate::tree::walk::walk;
use crate::value::node_path;

/// How often to look again for nodes that other clients create meanwhile.
const ROUNDS_MAX: usize = 5;

pub(crate) fn run(args: RmArgs, output: Output) -> anyhow::Result<Exit> {
    if args.expect.is_some() && args.paths.len() > 1 {
        return Err(Refusal::usage("--expect is for one node").into());
    }
    on_tree(&args.tree, output, async |zk| {
        for path in &args.paths {
            check(zk, path)?;
        }
        let mut exit = Exit::Done;
        for path in &args.paths {
            match delete(zk, path, &args, output).await {
                Ok(Exit::Done) => {}
                Ok(other) => exit = other,
                // As `rm` does, the other nodes are deleted all the same.
                Err(error) => exit = output.fail(&error),
            }
        }
        Ok(exit)
    })
}

async fn delete(
    zk: &zk::Client,
    path: &str,
    args: &RmArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let deleted = match args.recursive {
        true => delete_all(zk, path, args, output).await,
        false => {
            let deleted = zk.delete(path, args.expect).await;
            let deleted = deleted.map(|()| Some(1));
            deleted.map_err(|error| Verb::Delete.on(path)(error).into())
        }
    };
    let deleted = match deleted {
        Err(error) if args.force && matches!(zk.exists(path).await, Ok(None)) => {
            tracing::debug!(%error, "nothing to delete");
            0
        }
        deleted => match deleted? {
            Some(deleted) => deleted,
            None => return Ok(Exit::No),
        },
    };
    if args.tree.json {
        return Ok(output::answer_line(
            json!({"path": path, "deleted": deleted}),
        )?);
    }
    if args.recursive {
        output.notice(format_args!("{} deleted", counted(deleted, "node")));
    }
    Ok(Exit::Done)
}

/// Refuses paths that must not be deleted.
fn check(zk: &zk::Client, path: &str) -> Result<(), Refusal> {
    if path == "/" {
        return Err(Refusal::usage("the root cannot be deleted")
            .hint("name the nodes below it; `bellwether ls` lists them"));
    }
    if node_path::is_of_server(zk.root(), path) {
        return Err(Refusal::usage(format!("{path} belongs to the server")));
    }
    Ok(())
}

/// Deletes a node and all nodes below it, and returns their number; `None` if the user did not confirm.
async fn delete_all(
    zk: &zk::Client,
    path: &str,
    args: &RmArgs,
    output: Output,
) -> anyhow::Result<Option<usize>> {
    let mut deleted = 0;
    for round in 0..ROUNDS_MAX {
        let counter = Progress::counter("reading", output);
        let visited = match walk(zk, path, None, &counter).await {
            // Another client deleted the rest.
            Err(error) if round > 0 && error.exit() == Exit::No => return Ok(Some(deleted)),
            visited => visited?,
        };
        drop(counter);
        let asked = round == 0 && !args.yes && !args.force && io::stdin().is_terminal();
        if asked && !agreed(path, visited.len(), output).await? {
            return Ok(None);
        }
        let unreadable = visited.iter().find(|node| node.read.is_none());
        let unreadable = unreadable.map(|node| node.path.clone());
        let progress = Progress::bar("deleting", visited.len(), output);
        let mut left_over = false;
        // The walk has parents before their children.
        let paths: Vec<_> = visited.into_iter().rev().map(|node| node.path).collect();
        for paths in batch::split(paths, |path| path.len() + 32) {
            let count = paths.len();
            let (gone, left) = delete_batch(zk, paths)
                .await
                .with_context(|| format!("stopped after {}", counted(deleted, "node")))?;
            deleted += gone;
            left_over |= left;
            progress.advance_by(count);
        }
        match unreadable {
            _ if !left_over => return Ok(Some(deleted)),
            // Its children are unknown.
            Some(path) => return Err(Refusal::of(Verb::List, &path, zk::Error::NO_AUTH).into()),
            None => {}
        }
    }
    Err(Refusal::no(format!(
        "cannot delete {path}: other clients keep creating nodes below it; {} deleted",
        counted(deleted, "node")
    ))
    .into())
}

/// Deletes nodes in one transaction, without those that are deleted already or have new children. Returns how many were deleted, and
/// whether some are left.
async fn delete_batch(zk: &zk::Client, mut paths: Vec<String>) -> Result<(usize, bool), Refusal> {
    let mut left_over = false;
    while !paths.is_empty() {
        let deleted = batch::commit(zk, &paths, |writer, path| writer.delete(path, None)).await;
        let Err(refused) = deleted else {
            return Ok((paths.len(), left_over));
        };
        match (refused.place, refused.error) {
            (Some(place), zk::Error::NO_NODE) => {
                paths.remove(place);
            }
            (Some(place), zk::Error::NOT_EMPTY) => {
                paths.remove(place);
                left_over = true;
            }
            (place, error) => {
                let path = &paths[place.unwrap_or(0)];
                return Err(Refusal::of(Verb::Delete, path, error));
            }
        }
    }
    Ok((0, left_over))
}

async fn agreed(path: &str, nodes: usize, output: Output) -> io::Result<bool> {
    let question = match nodes - 1 {
        0 => format!("delete {path}?"),
        below => format!("delete {path} and {} below it?", counted(below, "node")),
    };
    input::agreed(&question, "nothing was deleted", output).await
}
