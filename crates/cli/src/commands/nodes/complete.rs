//! `bellwether complete-paths`: completes paths of nodes for a shell.

use std::time::Duration;

use bellwether::Connect;
use tokio::time::timeout;

use crate::args::CompletePathsArgs;
use crate::connect::{self, Whereabouts};
use crate::exit::Exit;
use crate::output::{self, Output};
use crate::value::node_path;

/// The time limit: the user has pressed a key and waits.
const LIMIT: Duration = Duration::from_secs(1);

/// Prints the paths that begin with the word. Errors are not printed, because they would disturb the shell.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(args: CompletePathsArgs) -> anyhow::Result<Exit> {
    let paths = match timeout(LIMIT, paths(&args)).await {
        Ok(Ok(paths)) => paths,
        _ => Vec::new(),
    };
    Ok(output::answer(|out| {
        for path in paths {
            writeln!(out, "{path}")?;
        }
        Ok(Exit::Done)
    })?)
}

async fn paths(args: &CompletePathsArgs) -> anyhow::Result<Vec<String>> {
    // Completion does not start a server.
    if let Whereabouts::Local(folder) = connect::whereabouts(&args.connect)?
        && folder.connect().await?.is_none()
    {
        return Ok(Vec::new());
    }
    let client = connect::open(&args.connect, Output::new(true), Connect::fail_fast).await?;
    // With or without the leading slash, as it was typed.
    let (above, begin) = args.word.rsplit_once('/').unwrap_or(("", &args.word));
    let dir = match above {
        "" => "/".to_owned(),
        above => node_path::parse(above).map_err(anyhow::Error::msg)?,
    };
    let prefix = &args.word[..args.word.len() - begin.len()];
    let mut children = client.raw().children(&dir).await?;
    children.sort_unstable();
    let fitting = children.iter().filter(|child| child.starts_with(begin));
    let paths = fitting.map(|child| format!("{prefix}{child}")).collect();
    client.close().await;
    Ok(paths)
}
