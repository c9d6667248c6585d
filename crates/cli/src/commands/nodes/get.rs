//! `bellwether get`: prints the data of a node.

use std::fs;
use std::path::Path;

use anyhow::Context;
use serde_json::json;

use crate::args::GetArgs;
use crate::commands::nodes::each;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::refusal::Verb;
use crate::output::{self, Output};
use crate::tree::node_stat;
use crate::value::data_json::DataJson;

pub(crate) fn run(args: GetArgs, output: Output) -> anyhow::Result<Exit> {
    let file = args
        .output
        .as_deref()
        .filter(|file| *file != Path::new("-"));
    on_tree(&args.tree, output, async |zk| {
        let mut all = Vec::new();
        let read = async |path: &str| {
            let (data, stat) = zk.get(path).await.map_err(Verb::Read.on(path))?;
            if args.tree.json {
                let said = json!({"path": path, "data": DataJson::from(data.to_vec())});
                return Ok(output::answer_line(node_stat::object(said, &stat))?);
            }
            if file.is_some() {
                all.extend_from_slice(&data);
                return Ok(Exit::Done);
            }
            let data = match args.output.is_some() {
                true => data.to_vec(),
                false => output::data_for_reader(&data, path).map_err(|refusal| {
                    refusal.hint("-o FILE writes them to a file, -o - to the terminal anyway")
                })?,
            };
            Ok(output::answer(|out| {
                out.write_all(&data)?;
                Ok(Exit::Done)
            })?)
        };
        // Without lines between them, as `cat` does.
        let exit = each(&args.paths, true, output, read).await?;
        if let Some(file) = file.filter(|_| exit == Exit::Done) {
            fs::write(file, &all).with_context(|| format!("cannot write {}", file.display()))?;
        }
        Ok(exit)
    })
}
