//! `bellwether stat`: shows the stat of a node.

use bellwether::zk;
use serde_json::json;

use crate::args::StatArgs;
use crate::commands::nodes::each;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::refusal::{Refusal, Verb};
use crate::output::{self, Output};
use crate::tree::node_stat;

pub(crate) fn run(args: StatArgs, output: Output) -> anyhow::Result<Exit> {
    on_tree(&args.tree, output, async |zk| {
        each(&args.paths, args.tree.json, output, async |path| {
            let stat = zk.exists(path).await.map_err(Verb::Read.on(path))?;
            let stat = stat.ok_or_else(|| Refusal::of(Verb::Read, path, zk::Error::NO_NODE))?;
            Ok(output::answer(|out| {
                if args.tree.json {
                    writeln!(out, "{}", node_stat::object(json!({"path": path}), &stat))?;
                } else {
                    node_stat::write(out, &stat)?;
                }
                Ok(Exit::Done)
            })?)
        })
        .await
    })
}
