//! `bellwether ls`: lists the children of a node.

use std::io::{self, IsTerminal, Write};

use bellwether::zk;
use serde_json::{Value, json};

use crate::args::LsArgs;
use crate::commands::nodes::each;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::progress::Progress;
use crate::output::refusal::{Refusal, Verb};
use crate::output::time_text::time_text;
use crate::output::{self, Output};
use crate::tree::node_stat;
use crate::tree::walk::{ask_all, walk};
use crate::value::node_path;

pub(crate) fn run(args: LsArgs, output: Output) -> anyhow::Result<Exit> {
    on_tree(&args.tree, output, async |zk| {
        each(&args.paths, args.tree.json, output, async |path| {
            match (args.recursive, args.long) {
                (true, _) => list_all(zk, path, &args, output).await,
                (false, true) => list_long(zk, path, &args).await,
                (false, false) => list(zk, path, &args).await,
            }
        })
        .await
    })
}

async fn names(zk: &zk::Client, path: &str) -> Result<Vec<String>, Refusal> {
    let mut names = zk.children(path).await.map_err(Verb::List.on(path))?;
    names.sort_unstable();
    Ok(names)
}

async fn list(zk: &zk::Client, path: &str, args: &LsArgs) -> anyhow::Result<Exit> {
    let names = names(zk, path).await?;
    Ok(output::answer(|out| {
        if args.tree.json {
            let children: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
            writeln!(out, "{}", json!({"path": path, "children": children}))?;
        } else {
            for name in &names {
                writeln!(out, "{name}")?;
            }
        }
        Ok(Exit::Done)
    })?)
}

async fn list_long(zk: &zk::Client, path: &str, args: &LsArgs) -> anyhow::Result<Exit> {
    let names = names(zk, path).await?;
    let mut children = Vec::new();
    let stat = |name: &String| zk.exists(&node_path::child(path, name));
    for (name, stat) in ask_all(names, stat).await {
        // Children that were deleted meanwhile are left out.
        if let Some(stat) = stat.map_err(Verb::Read.on(&node_path::child(path, &name)))? {
            children.push((name, stat));
        }
    }
    Ok(output::answer(|out| {
        if args.tree.json {
            let object = |(name, stat): &_| node_stat::object(json!({"name": name}), stat);
            let children: Vec<Value> = children.iter().map(object).collect();
            writeln!(out, "{}", json!({"path": path, "children": children}))?;
        } else {
            write_long(out, &children)?;
        }
        Ok(Exit::Done)
    })?)
}

/// Lists the paths of all nodes below, in order.
async fn list_all(
    zk: &zk::Client,
    path: &str,
    args: &LsArgs,
    output: Output,
) -> anyhow::Result<Exit> {
    let progress = Progress::counter("reading", output);
    let visited = walk(zk, path, None, &progress).await?;
    drop(progress);
    // The first is the top.
    let mut paths: Vec<_> = visited.into_iter().skip(1).map(|node| node.path).collect();
    // A node right before those below it, whatever other names begin alike.
    paths.sort_unstable_by(|a, b| a.split('/').cmp(b.split('/')));
    Ok(output::answer(|out| {
        if args.tree.json {
            writeln!(out, "{}", json!({"path": path, "paths": paths}))?;
        } else {
            for path in &paths {
                writeln!(out, "{path}")?;
            }
        }
        Ok(Exit::Done)
    })?)
}

/// Columns: kind, version, children, bytes, time and name; with a header on a terminal.
fn write_long(out: &mut dyn Write, children: &[(String, zk::Stat)]) -> io::Result<()> {
    let numbers = |stat: &zk::Stat| {
        [stat.version, stat.num_children, stat.data_length].map(|number| number.to_string())
    };
    const LABELS: [&str; 3] = ["version", "children", "bytes"];
    let has_header = io::stdout().is_terminal() && !children.is_empty();
    let mut widths = match has_header {
        true => LABELS.map(str::len),
        false => [1; 3],
    };
    for (_, stat) in children {
        for (width, number) in widths.iter_mut().zip(numbers(stat)) {
            *width = number.len().max(*width);
        }
    }
    if has_header {
        write!(out, " ")?;
        for (width, label) in widths.iter().zip(LABELS) {
            write!(out, " {label:>width$}")?;
        }
        let time_width = time_text(0).len();
        writeln!(out, " {:<time_width$} name", "changed")?;
    }
    for (name, stat) in children {
        let kind = if stat.ephemeral_owner == 0 { '-' } else { 'e' };
        write!(out, "{kind}")?;
        for (width, number) in widths.iter().zip(numbers(stat)) {
            write!(out, " {number:>width$}")?;
        }
        writeln!(out, " {} {name}", time_text(stat.mtime))?;
    }
    Ok(())
}
