//! `bellwether set`: new data for a node.

use serde_json::json;

use crate::args::SetArgs;
use crate::exit::Exit;
use crate::output::{self, Output};
use crate::refusal::{Refusal, Verb};
use crate::session::on_tree;
use crate::{node_stat, payload};

pub(crate) fn run(args: SetArgs, output: Output) -> anyhow::Result<Exit> {
    // Before the session, which would wait for somebody who types.
    let data = payload::read(&args.data)?;
    on_tree(&args.tree, output, async |zk| {
        let path = &args.path;
        let set = zk.set(path, &data, args.version).await;
        let stat =
            set.map_err(|error| Refusal::of(Verb::Set, path, error).with_data(data.len()))?;
        if !args.tree.json {
            return Ok(Exit::Done);
        }
        Ok(output::answer_line(node_stat::object(
            json!({"path": path}),
            &stat,
        ))?)
    })
}
