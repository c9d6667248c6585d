//! `bellwether locks`: who holds what, and who waits for it.

mod live;

use bellwether::{Client, ContentionError, Overview, Survey};

use crate::args::LocksArgs;
use crate::exit::Exit;
use crate::output::{self, Output};
use crate::overview;
use crate::rendering::counted;
use crate::session::in_session;

pub(crate) fn run(args: LocksArgs, output: Output) -> anyhow::Result<Exit> {
    in_session(&args.tree, output, async |client| {
        if args.watch {
            return live::watch(client, &args, output).await;
        }
        let path = &args.path;
        let seen = look(client, path).await?;
        if !seen.unreadable.is_empty() {
            let nodes = counted(seen.unreadable.len(), "node");
            output.notice(format_args!("{nodes} may not be read, nor what is below"));
        }
        let exit = match seen.deadlocks().is_empty() {
            true => Exit::Done,
            false => Exit::No,
        };
        if args.tree.json {
            output::answer_line(overview::object(path, &seen))?;
            return Ok(exit);
        }
        if seen.sights.is_empty() {
            output.notice(format_args!("nothing is held or waited for at {path}"));
        }
        output::answer(|out| {
            for row in overview::rows(&seen) {
                writeln!(out, "{}", row.text)?;
            }
            Ok(Exit::Done)
        })?;
        Ok(exit)
    })
}

/// All that goes on at a path and below it.
pub(crate) async fn look(client: &Client, path: &str) -> Result<Overview, ContentionError> {
    Survey::new(client, path).look().await
}
