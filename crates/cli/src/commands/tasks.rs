//! `bellwether tasks`: things to do once each, by whoever is there.

use bellwether::{Task, Tasks};
use futures_util::stream;
use serde_json::{Value, json};

use super::queue::{chosen, letter_json, letter_text};
use crate::args::{TasksAddArgs, TasksArgs, TasksCommand, TasksRunArgs, TasksStatusArgs};
use crate::exit::Exit;
use crate::keeper::End;
use crate::output::{self, Output};
use crate::patience::Patience;
use crate::presented::described;
use crate::refusal::{self, Refusal};
use crate::rendering::counted;
use crate::session::in_session;
use crate::workplace::{Workplace, at_workplace};
use crate::{payload, waiting};

pub(crate) fn run(args: TasksArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        TasksCommand::Add(args) => add(&args, output),
        TasksCommand::Run(args) => work(&args, output),
        TasksCommand::Status(args) => status(&args, output),
    }
}

fn add(args: &TasksAddArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, data) = (&args.place, args.data.as_bytes().to_vec());
    in_session(&place.tree, output, async |client| {
        let tasks = Tasks::new(client, &place.path);
        let mut added = Vec::new();
        for name in &args.names {
            if tasks.add(name, &data).await.map_err(refusal::of_put)? {
                added.push(name);
            }
        }
        if place.tree.json {
            return Ok(output::answer_line(
                json!({"path": place.path, "added": added}),
            )?);
        }
        let known = args.names.len() - added.len();
        if known > 0 {
            output.notice(format_args!("{} known already", counted(known, "task")));
        }
        Ok(Exit::Done)
    })
}

fn work(args: &TasksRunArgs, output: Output) -> anyhow::Result<Exit> {
    at_workplace(&args.job, Patience::endless(), output, async |workplace| {
        let tasks = Tasks::new(workplace.client(), &args.path).attempts_max(args.attempts);
        let tasks = described!(tasks, args);
        let mut exit = Exit::Done;
        loop {
            let what = format!("waiting for a task in {}", args.path);
            let news = stream::iter([|| "others are at all that are left".to_owned()]);
            let taken = waiting::telling(what, news, tasks.take(), output);
            let task = match workplace.unless_told(taken).await {
                Ok(task) => task?,
                Err(exit) => return Ok(exit),
            };
            let Some(task) = task else {
                return Ok(exit);
            };
            match attempt(task, args, workplace).await? {
                Exit::Command(0) => {}
                // The command has failed, and the next task may not.
                Exit::Command(_) => exit = Exit::No,
                end => return Ok(end),
            }
            if let Some(exit) = workplace.was_told_to_end() {
                return Ok(exit);
            }
        }
    })
}

/// Does one task; how the command has ended.
async fn attempt(
    task: Task<Vec<u8>>,
    args: &TasksRunArgs,
    workplace: &Workplace<'_>,
) -> anyhow::Result<Exit> {
    let name = task.name().to_owned();
    payload::be_stdin(task.payload())?;
    let variables = [
        ("BELLWETHER_TASK", name.clone()),
        ("BELLWETHER_ATTEMPTS", task.attempts().to_string()),
    ];
    let variables = variables.map(|(name, value)| (name, Some(value.into())));
    let end = workplace.run(&args.command, &task, variables).await?;
    Ok(match end {
        End::Job(exit @ Exit::Command(0)) => workplace.give_back(&name, task.done(), exit).await,
        End::Job(exit) | End::NotStarted(exit) => {
            let reason = exit.reason();
            workplace
                .output
                .notice(format_args!("{name} failed: {reason}"));
            workplace.give_back(&name, task.fail(&reason), exit).await
        }
        // The claim goes with the session, and another worker takes the task.
        end => end.exit(),
    })
}

fn status(args: &TasksStatusArgs, output: Output) -> anyhow::Result<Exit> {
    let place = &args.place;
    in_session(&place.tree, output, async |client| {
        let tasks = Tasks::new(client, &place.path);
        if let Some(wanted) = &args.retry {
            let failed = tasks.failed().await?;
            let mut retried = 0;
            for letter in chosen(&failed, wanted) {
                retried += usize::from(tasks.retry(letter).await?);
            }
            if retried == 0 && wanted != "all" {
                return Err(Refusal::no(format!("{wanted} was not set aside")).into());
            }
        }
        let (counts, failed) = (tasks.counts().await?, tasks.failed().await?);
        output::answer(|out| {
            if place.tree.json {
                let failed: Value = failed.iter().map(letter_json).collect();
                let object = json!({
                    "path": place.path,
                    "open": counts.open,
                    "running": counts.running,
                    "done": counts.done,
                    "failed": failed,
                });
                writeln!(out, "{object}")?;
            } else {
                let (open, running) = (counts.open, counts.running);
                let (done, aside) = (counts.done, counts.failed);
                writeln!(
                    out,
                    "{open} open, {running} running, {done} done, {aside} failed"
                )?;
                for letter in &failed {
                    writeln!(out, "{}", letter_text(letter))?;
                }
            }
            Ok(Exit::Done)
        })?;
        Ok(match counts.open + counts.running + counts.failed {
            0 => Exit::Done,
            _ => Exit::No,
        })
    })
}
