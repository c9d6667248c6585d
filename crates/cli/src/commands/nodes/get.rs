//! `bellwether get`: prints the data of a node.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::json;

use crate::args::GetArgs;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::refusal::Verb;
use crate::output::{self, Output};
use crate::tree::node_stat;
use crate::value::data_json::DataJson;

pub(crate) fn run(args: GetArgs, output: Output) -> anyhow::Result<Exit> {
    on_tree(&args.tree, output, async |zk| {
        let path = &args.path;
        let (data, stat) = zk.get(path).await.map_err(Verb::Read.on(path))?;
        if args.tree.json {
            let said = json!({"path": path, "data": DataJson::from(data.to_vec())});
            return Ok(output::answer_line(node_stat::object(said, &stat))?);
        }
        let to_stdout = args.output.as_deref() == Some(Path::new("-"));
        if let Some(file) = args.output.as_deref().filter(|_| !to_stdout) {
            fs::write(file, &data).with_context(|| format!("cannot write {}", file.display()))?;
            return Ok(Exit::Done);
        }
        let data = match to_stdout {
            true => data.to_vec(),
            false => output::data_for_reader(&data, path).map_err(|refusal| {
                refusal.hint("-o FILE writes them to a file, -o - to the terminal anyway")
            })?,
        };
        Ok(output::answer(|out| {
            out.write_all(&data)?;
            Ok(Exit::Done)
        })?)
    })
}
