//! `bellwether queue take`: takes an item for a command, for a script, or to print it.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::time::Duration;

use bellwether::queue::{Order, OrderedQueue};
use bellwether::{Claim, DelayQueue, Error, ErrorKind, PriorityQueue, Queue};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{followed, following, with_queue};
use crate::args::{QueueOrder, QueueTakeArgs};
use crate::connect::patience::Patience;
use crate::connect::session::in_session_within;
use crate::exit::Exit;
use crate::hold::job_runner::{JobRunner, settle, with_job_runner};
use crate::hold::keeper::End;
use crate::hold::notice_printer::NoticePrinter;
use crate::hold::release_requests;
use crate::hold::waiting;
use crate::output::input;
use crate::output::people::{age, who_text, with_others};
use crate::output::rendering::{counted, data_json};
use crate::output::{self, Output};
use crate::tree::payload;
use crate::value::duration;

pub(super) fn run(args: QueueTakeArgs, output: Output) -> anyhow::Result<Exit> {
    let patience = Patience::new(&args.wait);
    let attempts = args.attempts.get();
    if args.command.is_empty() {
        output::check_open("nothing was taken")?;
        return in_session_within(patience, &args.job.connect, output, async |client| {
            following!(args.order, client, &args.path, |queue| {
                let mut queue = queue.attempts_max(attempts);
                if let Some(message) = &args.job.message {
                    queue = queue.message(message);
                }
                let limit = client.session_timeout();
                let taken = for_script(&queue, &args, limit, patience, output).await?;
                match taken {
                    Some(exit) => Ok(exit),
                    None => patience.exit(client).await,
                }
            })
        });
    }
    with_job_runner(
        &args.job,
        &args.command,
        patience,
        output,
        async |job_runner| {
            let client = job_runner.client().clone();
            following!(args.order, &client, &args.path, |queue| {
                let queue = queue.attempts_max(attempts);
                for_command(&queue, &args, patience, job_runner).await
            })
        },
    )
}

/// The next item; `None` if the wait limit passed.
pub(super) async fn next<O: Order>(
    queue: &OrderedQueue<O>,
    path: &str,
    patience: Patience,
    output: Output,
) -> Result<Option<Claim<Vec<u8>>>, Error> {
    if patience.is_at_once() {
        return queue.try_take().await;
    }
    let taken = async {
        match patience.left() {
            Some(left) => queue.take_timeout(left).await,
            None => queue.take().await,
        }
    };
    let what = format!("waiting for an item in {path}");
    let news = stream::iter([|| "there is none to take".to_owned()]);
    match waiting::showing(what, news, taken, output).await {
        Err(Error {
            kind: ErrorKind::TimedOut { .. },
            ..
        }) => Ok(None),
        taken => taken.map(Some),
    }
}

/// Says that there was no item within the wait limit, and why.
async fn tell_none<O: Order>(
    queue: &OrderedQueue<O>,
    path: &str,
    patience: Patience,
    output: Output,
) {
    if output.is_quiet() {
        return;
    }
    let why = why_none(queue).await;
    match patience.limit().filter(|_| !patience.is_at_once()) {
        Some(limit) => output.notice(format_args!(
            "timed out after {limit:?} waiting for an item in {path}{why}"
        )),
        None => output.notice(format_args!("no item to take in {path}{why}")),
    }
}

/// Why there is no item to take, for a notice: an error, or a server that does not answer, does not matter.
async fn why_none<O: Order>(queue: &OrderedQueue<O>) -> String {
    let Ok(Ok(items)) = timeout(waiting::WHO_LIMIT, queue.list()).await else {
        return String::new();
    };
    let mut claims = items.iter().filter_map(|item| item.claim.as_ref());
    let waiting = items.len() - claims.clone().count();
    let Some(first) = claims.next() else {
        return match waiting {
            0 => ": it is empty".to_owned(),
            waiting => format!(": {} not due yet", counted(waiting, "item")),
        };
    };
    let who = first.who.as_ref();
    let who = who.map_or_else(|| "an unknown client".into(), who_text);
    let since = duration::text(age(first.since));
    let claimed = with_others(format!("claimed by {who}, {since}"), claims.count());
    match waiting {
        0 => format!(": {claimed}"),
        waiting => format!(": {claimed}; {} not due yet", counted(waiting, "item")),
    }
}

async fn for_command<O: Order>(
    queue: &OrderedQueue<O>,
    args: &QueueTakeArgs,
    patience: Patience,
    job_runner: &JobRunner<'_>,
) -> anyhow::Result<Exit> {
    let claim = match job_runner
        .unless_stopped(next(queue, &args.path, patience, job_runner.output))
        .await
    {
        Ok(claim) => claim?,
        Err(exit) => return Ok(exit),
    };
    let Some(claim) = claim else {
        tell_none(queue, &args.path, patience, job_runner.output).await;
        return patience.exit(job_runner.client()).await;
    };
    attempt(claim, &args.path, &args.command, job_runner).await
}

/// Runs a command for an item, acknowledges or returns the item, and returns how the command ended.
pub(super) async fn attempt(
    claim: Claim<Vec<u8>>,
    path: &str,
    command: &[OsString],
    job_runner: &JobRunner<'_>,
) -> anyhow::Result<Exit> {
    payload::be_stdin(claim.payload())?;
    let variables = [
        ("BELLWETHER_ITEM", claim.id().to_string()),
        ("BELLWETHER_ATTEMPTS", claim.attempts().to_string()),
    ];
    let variables = variables.map(|(name, value)| (name, Some(value.into())));
    let end = job_runner.run(command, &claim, variables).await?;
    let (exit, reason) = (end.exit(), end.reason());
    Ok(match end {
        End::Job(Exit::Command(0)) => job_runner.settle(path, claim.ack(), exit).await,
        _ if job_runner.is_uncounted(end).await => {
            let back = claim.give_back_uncounted(&reason);
            job_runner.settle(path, back, exit).await
        }
        End::Job(_) | End::NotStarted(_) | End::TooLong(_) => {
            job_runner
                .settle(path, claim.give_back(&reason), exit)
                .await
        }
        // The claim ends with the session, and the item is delivered again.
        End::Lost | End::FrontGone => exit,
    })
}

/// Takes an item, and prints or holds it; `None` if the wait limit passed.
async fn for_script<O: Order>(
    queue: &OrderedQueue<O>,
    args: &QueueTakeArgs,
    limit: Duration,
    patience: Patience,
    output: Output,
) -> anyhow::Result<Option<Exit>> {
    let Some(claim) = next(queue, &args.path, patience, output).await? else {
        tell_none(queue, &args.path, patience, output).await;
        return Ok(None);
    };
    let path = &args.path;
    let text = match args.hold || args.json {
        true => Ok(format!("{}\n", object(&claim, args)).into_bytes()),
        false => output::data_for_reader(claim.payload(), &format!("an item in {path}")),
    };
    let printed = match text {
        Ok(text) => output::print_now(text).map_err(anyhow::Error::from),
        Err(refusal) => Err(refusal.into()),
    };
    let unread = match printed {
        Ok(ControlFlow::Continue(())) => None,
        // A closed pipe is not an error elsewhere, but an item that was not read must not be acknowledged.
        Ok(ControlFlow::Break(())) => Some(anyhow::anyhow!("the output is closed")),
        Err(error) => Some(error),
    };
    if let Some(error) = unread {
        let back = claim.give_back_uncounted("it could not be printed");
        return Err(match settle(path, back, limit, Exit::Done, output).await {
            Exit::Done => error.context(format!("an item in {path} is given back")),
            _ => error,
        });
    }
    if !args.hold {
        let exit = settle(path, claim.ack(), limit, Exit::Done, output).await;
        return Ok(Some(exit));
    }
    Ok(Some(hold(queue, claim, args, limit, output).await))
}

/// Holds an item until another command acknowledges it. If stdin ends first, returns it to the queue.
async fn hold<O: Order>(
    queue: &OrderedQueue<O>,
    claim: Claim<Vec<u8>>,
    args: &QueueTakeArgs,
    limit: Duration,
    output: Output,
) -> Exit {
    let path = &args.path;
    let (id, notices) = (claim.id(), NoticePrinter::start());
    tokio::select! {
        biased;
        () = claim.lost() => {}
        () = input::end() => {
            let mut was_over = false;
            let back = async {
                let back = claim.give_back("not acknowledged").await;
                // A script may acknowledge the item and end: the end of stdin is noticed first, the acknowledgement comes from a server.
                was_over = matches!(back, Err(Error { kind: ErrorKind::NotHeld, .. }));
                if was_over { Ok(()) } else { back }
            };
            let exit = settle(path, back, limit, Exit::No, output).await;
            if !was_over {
                return exit;
            }
        }
        never = release_requests::pass_on(&claim, true, &notices, output) => match never {},
    }
    // Without an answer, the acknowledgement is unknown.
    match timeout(limit, queue.list()).await {
        Ok(Ok(items)) if items.iter().all(|item| item.id != id) => Exit::Done,
        _ => {
            let error = anyhow::anyhow!("{id} in {path} is lost");
            notices.print(move || output.error(&error));
            notices.flush().await;
            Exit::Lost
        }
    }
}

fn object(claim: &Claim<Vec<u8>>, args: &QueueTakeArgs) -> Value {
    json!({
        "path": args.path,
        "id": claim.id().to_string(),
        "token": claim.token(),
        "attempts": claim.attempts(),
        "age_ms": super::ms_of(claim.age()),
        "data": data_json(Some(claim.payload())),
    })
}
