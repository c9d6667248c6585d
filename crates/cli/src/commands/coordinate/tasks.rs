//! `bellwether tasks`: named tasks that are done once each.

use bellwether::{Error, ErrorKind, Task, Tasks};
use futures_util::stream;
use serde_json::{Value, json};
use tracing::{Instrument, info_span};

use super::queue::{chosen, letter_json, write_letters};
use crate::args::{TasksAddArgs, TasksArgs, TasksCommand, TasksLsArgs, TasksRunArgs};
use crate::connect::patience::Patience;
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::hold::backoff::Backoff;
use crate::hold::job_runner::{JobRunner, with_job_runner};
use crate::hold::keeper::End;
use crate::hold::waiting;
use crate::output::refusal::Refusal;
use crate::output::rendering::counted;
use crate::output::{self, Output};
use crate::tree::payload;

pub(crate) fn run(args: TasksArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        TasksCommand::Add(args) => add(&args, output),
        TasksCommand::Run(args) => work(&args, output),
        TasksCommand::Ls(args) => ls(&args, output),
    }
}

fn add(args: &TasksAddArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, data) = (&args.place, args.data.as_bytes().to_vec());
    in_session(&place.tree.connect, output, async |client| {
        let tasks = Tasks::<Vec<u8>>::new(client, &place.path);
        let mut added = Vec::new();
        for name in &args.names {
            if tasks.add(name, &data).await? {
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
            output.notice(format_args!("added before: {}", counted(known, "task")));
        }
        Ok(Exit::Done)
    })
}

fn work(args: &TasksRunArgs, output: Output) -> anyhow::Result<Exit> {
    let attempts = args.attempts.get();
    with_job_runner(
        &args.job,
        &args.command,
        Patience::endless(),
        output,
        async |job_runner| {
            job_runner.let_jobs_finish();
            let mut exit = Exit::Done;
            let mut backoff = Backoff::new(args.workers.pause);
            loop {
                if let Err(exit) = job_runner.renew().await {
                    return Ok(exit);
                }
                let tasks =
                    Tasks::<Vec<u8>>::new(job_runner.client(), &args.path).attempts_max(attempts);
                let what = format!("waiting for a task in {}", args.path);
                let news =
                    stream::iter([|| "other workers run the tasks that are left".to_owned()]);
                let taken = waiting::showing(what, news, tasks.take(), output);
                let ended = match job_runner.unless_stopped(taken).await {
                    Err(exit) => return Ok(exit),
                    Ok(Ok(None)) => return Ok(exit),
                    Ok(Ok(Some(task))) => {
                        let (path, token) = (&args.path, task.token().number());
                        let span = info_span!("attempt", path, token);
                        attempt(task, args, job_runner).instrument(span).await?
                    }
                    // The next turn opens another session.
                    Ok(Err(Error {
                        kind: ErrorKind::SessionEnded | ErrorKind::NoSession(_),
                        ..
                    })) => Exit::Lost,
                    Ok(Err(error)) => return Err(error.into()),
                };
                if let Some(exit) = job_runner.interrupted_in_job() {
                    return Ok(exit);
                }
                match ended {
                    Exit::Command(0) => backoff.succeeded(),
                    end if end.is_by_keyboard() => return Ok(end),
                    // The next task may succeed.
                    Exit::Command(_) | Exit::TooLong | Exit::Signal(_) => {
                        exit = Exit::No;
                        if let Err(exit) = job_runner.pause(backoff.failed()).await {
                            return Ok(exit);
                        }
                    }
                    // Another worker, or this one, takes the task again: nothing has failed.
                    Exit::Lost => {
                        let (path, pause) = (&args.path, backoff.failed());
                        output.notice(format_args!(
                            "the session, or a claim in {path}, was lost; next attempt in {pause:?}"
                        ));
                        if let Err(exit) = job_runner.pause(pause).await {
                            return Ok(exit);
                        }
                    }
                    end => return Ok(end),
                }
            }
        },
    )
}

/// Runs the command for one task, and returns how it ended.
async fn attempt(
    task: Task<Vec<u8>>,
    args: &TasksRunArgs,
    job_runner: &JobRunner<'_>,
) -> anyhow::Result<Exit> {
    let name = task.name().to_owned();
    payload::be_stdin(task.payload())?;
    let variables = [
        ("BELLWETHER_TASK", name.clone()),
        ("BELLWETHER_ATTEMPTS", task.attempts().to_string()),
    ];
    let variables = variables.map(|(name, value)| (name, Some(value.into())));
    let end = job_runner.run(&args.command, &task, variables).await?;
    let (exit, reason) = (end.exit(), end.reason());
    Ok(match end {
        End::Job(Exit::Command(0)) => job_runner.settle(&name, task.done(), exit).await,
        _ if job_runner.is_uncounted(end).await => {
            let back = task.give_back_uncounted(&reason);
            job_runner.settle(&name, back, exit).await
        }
        End::Job(_) | End::NotStarted(_) | End::TooLong(_) => {
            job_runner
                .output
                .notice(format_args!("{name} failed: {reason}"));
            job_runner.settle(&name, task.fail(&reason), exit).await
        }
        // The claim ends with the session, and another worker takes the task.
        End::Lost | End::FrontGone => exit,
    })
}

fn ls(args: &TasksLsArgs, output: Output) -> anyhow::Result<Exit> {
    let place = &args.place;
    in_session(&place.tree.connect, output, async |client| {
        let tasks = Tasks::<Vec<u8>>::new(client, &place.path);
        if let Some(wanted) = args.retry.as_ref().or(args.forget.as_ref()) {
            let failed = tasks.failed().await?;
            let mut changed = 0;
            for letter in chosen(&failed, wanted) {
                changed += usize::from(match args.retry {
                    Some(_) => tasks.retry(letter).await?,
                    None => tasks.forget(letter).await?,
                });
            }
            if changed == 0 && wanted != "all" {
                return Err(Refusal::no(format!("there is no failed task {wanted}")).into());
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
                let (done, given_up) = (counts.done, counts.failed);
                writeln!(
                    out,
                    "{open} open, {running} running, {done} done, {given_up} failed"
                )?;
                write_letters(out, &failed)?;
            }
            Ok(Exit::Done)
        })?;
        Ok(match counts.open + counts.running + counts.failed {
            0 => Exit::Done,
            _ => Exit::No,
        })
    })
}
