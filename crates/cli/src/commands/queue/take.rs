//! `bellwether queue take`: an item for a command, for a script, or to be printed.

use std::ops::ControlFlow;
use std::time::Duration;

use bellwether::{
    Claim, DelayQueue, Order, OrderedQueue, PriorityQueue, Queue, SettleError, TakeError,
};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::with_queue;
use crate::args::{QueueOrder, QueueTakeArgs};
use crate::aside::Aside;
use crate::exit::Exit;
use crate::keeper::End;
use crate::output::{self, Output};
use crate::patience::Patience;
use crate::presented::described;
use crate::rendering::data_json;
use crate::session::with_patience;
use crate::workplace::{Workplace, at_workplace, give_back};
use crate::{asked, input, payload, waiting};

pub(super) fn run(args: QueueTakeArgs, output: Output) -> anyhow::Result<Exit> {
    let patience = Patience::new(&args.wait, args.at_once);
    if args.command.is_empty() {
        return with_patience(&args.job.connect, patience, output, async |client| {
            with_queue!(args.order, client, &args.path, |queue| {
                let queue = described!(queue.attempts_max(args.attempts), args);
                let limit = client.session_timeout();
                for_script(&queue, &args, limit, patience, output).await
            })
        });
    }
    at_workplace(&args.job, patience, output, async |workplace| {
        let client = workplace.client().clone();
        with_queue!(args.order, &client, &args.path, |queue| {
            let queue = described!(queue.attempts_max(args.attempts), args);
            for_command(&queue, &args, patience, workplace).await
        })
    })
}

/// The next item, as the arguments say; `None` if there was none in time.
async fn next<O: Order>(
    queue: &OrderedQueue<O>,
    args: &QueueTakeArgs,
    patience: Patience,
    output: Output,
) -> Result<Option<Claim<Vec<u8>>>, TakeError> {
    if patience.is_at_once() {
        return queue.try_take().await;
    }
    let taken = async {
        match patience.left() {
            Some(left) => queue.take_timeout(left).await,
            None => queue.take().await,
        }
    };
    let what = format!("waiting for an item in {}", args.path);
    let news = stream::iter([|| "there is none".to_owned()]);
    match waiting::telling(what, news, taken, output).await {
        Err(TakeError::TimedOut { .. }) => Ok(None),
        taken => taken.map(Some),
    }
}

async fn for_command<O: Order>(
    queue: &OrderedQueue<O>,
    args: &QueueTakeArgs,
    patience: Patience,
    workplace: &Workplace<'_>,
) -> anyhow::Result<Exit> {
    let claim = match workplace
        .unless_told(next(queue, args, patience, workplace.output))
        .await
    {
        Ok(claim) => claim?,
        Err(exit) => return Ok(exit),
    };
    let Some(claim) = claim else {
        return Ok(patience.exit());
    };
    payload::be_stdin(claim.payload())?;
    let variables = [
        ("BELLWETHER_ITEM", claim.id().to_string()),
        ("BELLWETHER_ATTEMPTS", claim.attempts().to_string()),
    ];
    let variables = variables.map(|(name, value)| (name, Some(value.into())));
    let end = workplace.run(&args.command, &claim, variables).await?;
    let path = &args.path;
    Ok(match end {
        End::Job(exit @ Exit::Command(0)) => workplace.give_back(path, claim.ack(), exit).await,
        End::Job(exit) | End::NotStarted(exit) => {
            let reason = exit.reason();
            workplace
                .give_back(path, claim.give_back(&reason), exit)
                .await
        }
        // It goes with the session, and the item is delivered again.
        end => end.exit(),
    })
}

async fn for_script<O: Order>(
    queue: &OrderedQueue<O>,
    args: &QueueTakeArgs,
    limit: Duration,
    patience: Patience,
    output: Output,
) -> anyhow::Result<Exit> {
    let Some(claim) = next(queue, args, patience, output).await? else {
        return Ok(patience.exit());
    };
    let path = &args.path;
    let text = match args.hold || args.json {
        true => format!("{}\n", object(&claim, args)).into_bytes(),
        false => output::data_for_reader(claim.payload()),
    };
    match output::print_now(text) {
        Ok(ControlFlow::Continue(())) => {}
        unread => {
            // Elsewhere, whoever closes the pipe has seen enough. An item that nobody has seen is still to be done.
            let back = claim.give_back("it could not be printed");
            let exit = give_back(path, back, limit, Exit::No, output).await;
            return unread.map(|_| exit).map_err(Into::into);
        }
    }
    if !args.hold {
        return Ok(give_back(path, claim.ack(), limit, Exit::Done, output).await);
    }
    Ok(hold(queue, claim, args, limit, output).await)
}

/// Holds an item until it is acknowledged by another command; when stdin ends before, gives it back.
async fn hold<O: Order>(
    queue: &OrderedQueue<O>,
    claim: Claim<Vec<u8>>,
    args: &QueueTakeArgs,
    limit: Duration,
    output: Output,
) -> Exit {
    let path = &args.path;
    let (id, aside) = (claim.id(), Aside::start());
    tokio::select! {
        biased;
        () = claim.lost() => {}
        () = input::end() => {
            let mut was_over = false;
            let back = async {
                let back = claim.give_back("not acknowledged").await;
                // A script may acknowledge it and end: the news of the one come from a server, those of the other at once.
                was_over = matches!(back, Err(SettleError::NotClaimed { .. }));
                if was_over { Ok(()) } else { back }
            };
            let exit = give_back(path, back, limit, Exit::No, output).await;
            if !was_over {
                return exit;
            }
        }
        never = asked::pass_on(&claim, true, &aside, output) => match never {},
    }
    // Without an answer, nobody knows that it was acknowledged.
    match timeout(limit, queue.list()).await {
        Ok(Ok(items)) if items.iter().all(|item| item.id != id) => Exit::Done,
        _ => {
            let error = anyhow::anyhow!("{id} in {path} is lost");
            aside.say(move || output.error(&error));
            aside.said().await;
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
