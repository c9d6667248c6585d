//! `bellwether import`: the nodes of an export, made again.

use std::path::Path;

use serde_json::json;

use crate::args::ImportArgs;
use crate::exit::Exit;
use crate::import_plan::{Existing, Plan};
use crate::output::{self, Output};
use crate::refusal::Refusal;
use crate::rendering::counted;
use crate::session::on_tree;
use crate::{export_file, payload};

/// The longest file that is taken; it is read whole.
const FILE_BYTES_MAX: u64 = 1 << 30;

pub(crate) fn run(args: ImportArgs, output: Output) -> anyhow::Result<Exit> {
    let file = args.file.as_deref().unwrap_or(Path::new("-"));
    let text = payload::read_file(file, FILE_BYTES_MAX)?;
    let nodes = export_file::read(&text).map_err(|why| {
        let file = file.display();
        Refusal::usage(format!("cannot import {file}: {why}"))
            .hint("`bellwether export` writes such files; docs/commands.md describes them")
    })?;
    on_tree(&args.tree, output, async |zk| {
        let existing = match (args.merge, args.replace) {
            (true, _) => Existing::Merge,
            (_, true) => Existing::Replace,
            _ => Existing::Refuse,
        };
        let plan = Plan::make(zk, &args.path, existing, nodes, output).await?;
        if !args.dry_run {
            plan.carry_out(zk, &args.path, output).await?;
        }
        if plan.ephemerals > 0 {
            let ephemerals = counted(plan.ephemerals, "ephemeral node");
            output.notice(format_args!("left alone: {ephemerals}"));
        }
        tell(&plan, &args, output)
    })
}

fn tell(plan: &Plan, args: &ImportArgs, output: Output) -> anyhow::Result<Exit> {
    let created: Vec<_> = plan.creates.iter().map(|create| &create.path).collect();
    let changed: Vec<_> = plan.changes.iter().map(|change| &change.path).collect();
    let (deleted, unchanged) = (&plan.deletes, plan.unchanged);
    let counts = format!(
        "{} created, {} changed, {} deleted, {unchanged} as they are",
        created.len(),
        changed.len(),
        deleted.len()
    );
    let exit = output::answer(|out| {
        if args.tree.json {
            let object = json!({
                "path": args.path,
                "dry_run": args.dry_run,
                "created": created,
                "changed": changed,
                "deleted": deleted,
                "unchanged": unchanged,
            });
            writeln!(out, "{object}")?;
        } else if args.dry_run {
            for (mark, paths) in [
                ('+', &created),
                ('~', &changed),
                ('-', &deleted.iter().collect()),
            ] {
                for path in paths {
                    writeln!(out, "{mark} {path}")?;
                }
            }
        }
        Ok(Exit::Done)
    })?;
    output.notice(if args.dry_run {
        format!("nothing is done; it would be: {counts}")
    } else {
        counts
    });
    Ok(exit)
}
