//! `bellwether set`: replaces the data of a node.

use serde_json::json;

use crate::args::SetArgs;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::refusal::{Refusal, Verb};
use crate::output::{self, Output};
use crate::tree::node_stat;
use crate::tree::payload;

pub(crate) fn run(args: SetArgs, output: Output) -> anyhow::Result<Exit> {
    // Before the session, which should not wait for a user who types.
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
