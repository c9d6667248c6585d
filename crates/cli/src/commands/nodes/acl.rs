//! `bellwether acl`: access lists of nodes.

use serde_json::json;

use crate::args::{AclArgs, AclCommand, AclGetArgs, AclSetArgs};
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::progress::Progress;
use crate::output::refusal::Verb;
use crate::output::{self, Output};
use crate::tree::walk::{ask_all, walk};
use crate::value::acl_list::{self, AclList};

pub(crate) fn run(args: AclArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        AclCommand::Get(args) => get(args, output),
        AclCommand::Set(args) => set(args, output),
    }
}

fn get(args: AclGetArgs, output: Output) -> anyhow::Result<Exit> {
    on_tree(&args.tree, output, async |zk| {
        let path = &args.path;
        let (acl, stat) = zk.acl(path).await.map_err(Verb::Read.on(path))?;
        let acl = AclList(acl);
        if acl.is_masked() {
            output.notice("the server shows digests as x, because this session has no right to administrate the node");
        }
        Ok(output::answer(|out| {
            if args.tree.json {
                let aversion = stat.aversion;
                let object = json!({"path": path, "acl": acl, "aversion": aversion});
                writeln!(out, "{object}")?;
            } else {
                writeln!(out, "{}", acl_list::text(&acl.0))?;
            }
            Ok(Exit::Done)
        })?)
    })
}

fn set(args: AclSetArgs, output: Output) -> anyhow::Result<Exit> {
    on_tree(&args.tree, output, async |zk| {
        let path = &args.path;
        let mut paths = vec![path.clone()];
        if args.recursive {
            let progress = Progress::counter("reading", output);
            let visited = walk(zk, path, None, &progress).await?;
            // The deepest first, because the new list of a node may deny access to the nodes below.
            paths = visited.into_iter().rev().map(|node| node.path).collect();
        }
        let nodes = paths.len();
        let progress = Progress::bar("changing", nodes, output);
        let set = |path: &String| {
            progress.advance();
            zk.set_acl(path, &args.list.0, args.expect)
        };
        for (path, answer) in ask_all(paths, set).await {
            answer.map_err(Verb::SetAcl.on(&path))?;
        }
        drop(progress);
        if !args.tree.json {
            return Ok(Exit::Done);
        }
        Ok(output::answer_line(
            json!({"path": path, "acl": args.list, "nodes": nodes}),
        )?)
    })
}
