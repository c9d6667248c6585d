//! `bellwether import`: creates the nodes of an export.

use std::path::Path;

use serde_json::json;

use crate::args::ImportArgs;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::refusal::Refusal;
use crate::output::rendering::counted;
use crate::output::{self, Output};
use crate::tree::export_file;
use crate::tree::import_plan::{Existing, Plan};
use crate::tree::payload;

/// The longest file that is accepted. It is read into memory.
const FILE_BYTES_MAX: u64 = 1 << 30;

pub(crate) fn run(args: ImportArgs, output: Output) -> anyhow::Result<Exit> {
    let file = args.file.as_deref().unwrap_or(Path::new("-"));
    let text = payload::read_file(file, FILE_BYTES_MAX)?;
    let nodes = export_file::read(&text).map_err(|why| {
        let file = payload::name(file);
        Refusal::usage(format!("cannot import {file}: {why}"))
            .hint("`bellwether export` writes such files; docs/commands.md describes the format")
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
            output.notice(format_args!("kept: {ephemerals}"));
        }
        tell(&plan, &args, output)
    })
}

fn tell(plan: &Plan, args: &ImportArgs, output: Output) -> anyhow::Result<Exit> {
    let created: Vec<_> = plan.creates.iter().map(|create| &create.path).collect();
    let changed: Vec<_> = plan.changes.iter().map(|change| &change.path).collect();
    let (deleted, unchanged) = (&plan.deletes, plan.unchanged);
    let counts = format!(
        "{} created, {} changed, {} deleted, {unchanged} unchanged",
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
        format!("dry run, nothing was changed; it would be: {counts}")
    } else {
        counts
    });
    Ok(exit)
}
