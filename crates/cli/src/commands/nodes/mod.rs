//! Commands on nodes.

pub(crate) mod acl;
pub(crate) mod create;
pub(crate) mod export;
pub(crate) mod get;
pub(crate) mod import;
pub(crate) mod ls;
pub(crate) mod rm;
pub(crate) mod set;
pub(crate) mod stat;
pub(crate) mod tree;
pub(crate) mod watch;

use crate::exit::Exit;
use crate::output::rendering::path_text;
use crate::output::{self, Output};

/// Answers for each path. Of several, each answer has a line with its path above it, unless it is `bare`; and one that fails does not keep
/// the others, as with `ls` and `cat`.
async fn each(
    paths: &[String],
    bare: bool,
    output: Output,
    mut answer: impl AsyncFnMut(&str) -> anyhow::Result<Exit>,
) -> anyhow::Result<Exit> {
    if let [path] = paths {
        return answer(path).await;
    }
    let mut exit = Exit::Done;
    for (index, path) in paths.iter().enumerate() {
        if !bare {
            output::answer(|out| {
                let blank = if index > 0 { "\n" } else { "" };
                writeln!(out, "{blank}{}:", path_text(path))?;
                Ok(Exit::Done)
            })?;
        }
        match answer(path).await {
            Ok(Exit::Done) => {}
            Ok(other) => exit = other,
            Err(error) => exit = output.fail(&error),
        }
    }
    Ok(exit)
}
