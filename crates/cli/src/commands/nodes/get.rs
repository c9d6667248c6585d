//! `bellwether get`: prints the data of a node.

use std::fs;
use std::io::IsTerminal;
use std::path::Path;

use anyhow::Context;
use serde_json::json;

use crate::args::GetArgs;
use crate::connect::session::on_tree;
use crate::exit::Exit;
use crate::output::refusal::{Refusal, Verb};
use crate::output::{self, Output};
use crate::tree::node_stat;
use crate::tree::payload::is_plain_text;
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
        let for_people = !to_stdout && std::io::stdout().is_terminal();
        if for_people && !is_plain_text(&data) {
            let bytes = data.len();
            return Err(
                Refusal::no(format!("the {bytes} bytes of {path} are not plain text"))
                    .hint("-o FILE writes them to a file, -o - to the terminal anyway")
                    .into(),
            );
        }
        Ok(output::answer(|out| {
            out.write_all(&data)?;
            if for_people && !data.is_empty() && !data.ends_with(b"\n") {
                out.write_all(b"\n")?;
            }
            Ok(Exit::Done)
        })?)
    })
}
