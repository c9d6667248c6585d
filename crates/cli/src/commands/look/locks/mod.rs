//! `bellwether locks`: recipes with their holders and waiters.

mod board;
mod entry;
mod live;
mod view;

use bellwether::inspect::{Overview, Survey};
use bellwether::{Client, Error};

use crate::args::{LocksArgs, TopArgs};
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::overview;
use crate::output::rendering::counted;
use crate::output::{self, Output};

/// `bellwether top`: the same as `locks --watch`.
pub(crate) fn top(args: TopArgs, output: Output) -> anyhow::Result<Exit> {
    let TopArgs {
        path,
        max_directories,
        tree,
    } = args;
    let args = LocksArgs {
        path,
        watch: true,
        max_directories,
        tree,
    };
    run(args, output)
}

pub(crate) fn run(args: LocksArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.tree.connect, output, async |client| {
        if args.watch {
            return live::watch(client, &args, output).await;
        }
        let path = &args.path;
        let seen = look(client, &args).await?;
        if let Some(told) = overview::unexplored(&seen) {
            output.notice(told);
            output.hint("name a path below, or raise --max-directories");
        }
        if !seen.unreadable.is_empty() {
            let nodes = counted(seen.unreadable.len(), "node");
            output.notice(format_args!(
                "{nodes} may not be read, and nodes below were not looked at"
            ));
        }
        let exit = match seen.deadlocks().is_empty() {
            true => Exit::Done,
            false => Exit::No,
        };
        if args.tree.json {
            output::answer_line(overview::object(path, &seen))?;
            return Ok(exit);
        }
        if seen.recipes.is_empty() {
            output.notice(format_args!("no holds, waiters or recipes at {path}"));
        }
        output::answer(|out| {
            for row in overview::rows(&seen) {
                writeln!(out, "{row}")?;
            }
            Ok(Exit::Done)
        })?;
        Ok(exit)
    })
}

/// Makes a survey of a path and all below it.
async fn look(client: &Client, args: &LocksArgs) -> Result<Overview, Error> {
    let survey = Survey::new(client, &args.path).directories_max(args.max_directories);
    survey.look().await
}
