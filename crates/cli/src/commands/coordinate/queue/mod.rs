//! `bellwether queue`: items with acknowledgement.

mod take;
mod work;

use std::io::{self, Write};
use std::time::Duration;

use bellwether::error::OtherUse;
use bellwether::queue::{DeadLetter, ItemId, Listed, Order, OrderedQueue, RecordedOrder};
use bellwether::{Client, DelayQueue, Error, ErrorKind, PriorityQueue, Queue};
use serde_json::{Value, json};

use crate::args::{
    PlaceArgs, QueueAckArgs, QueueArgs, QueueCommand, QueueDeadArgs, QueueLookArgs, QueueOrder,
    QueuePutArgs,
};
use crate::connect::session::in_session;
use crate::exit::Exit;
use crate::output::people::{ms, who_json, who_text};
use crate::output::refusal::Refusal;
use crate::output::rendering::{data_json, data_text};
use crate::output::{self, Output, print_now};
use crate::tree::payload;
use crate::value::duration;

/// Runs code with a queue of the type for an order.
macro_rules! with_queue {
    ($order:expr, $client:expr, $path:expr, |$queue:ident| $body:expr) => {
        match $order {
            QueueOrder::Arrival => {
                let $queue = Queue::<Vec<u8>>::new($client, $path);
                $body
            }
            QueueOrder::Priority => {
                let $queue = PriorityQueue::<Vec<u8>>::new($client, $path);
                $body
            }
            QueueOrder::Due => {
                let $queue = DelayQueue::<Vec<u8>>::new($client, $path);
                $body
            }
        }
    };
}
use with_queue;

/// The order of a queue that was refused because of it, unless the user asked for an order.
fn followed(asked: Option<QueueOrder>, error: &anyhow::Error) -> Option<QueueOrder> {
    let refused: &Error = error.downcast_ref()?;
    let ErrorKind::InUse(OtherUse::Order(order)) = &refused.kind else {
        return None;
    };
    if refused.call() == "queue.revive" {
        return None;
    }
    let order = match order {
        RecordedOrder::Priority => QueueOrder::Priority,
        RecordedOrder::Due => QueueOrder::Due,
        _ => QueueOrder::Arrival,
    };
    asked.is_none().then_some(order)
}

/// Runs code with a queue of the type for the order that the user asked for, or else for that of the queue.
macro_rules! following {
    ($asked:expr, $client:expr, $path:expr, |$queue:ident| $body:expr) => {{
        let mut order = $asked.unwrap_or_default();
        loop {
            // A block of its own, so that `?` does not leave the loop.
            let done: anyhow::Result<_> =
                with_queue!(order, $client, $path, |$queue| { async { $body }.await });
            match done {
                Err(error) => match followed($asked, &error) {
                    Some(found) => order = found,
                    None => break Err(error),
                },
                done => break done,
            }
        }
    }};
}
use following;

pub(crate) fn run(args: QueueArgs, output: Output) -> anyhow::Result<Exit> {
    match args.command {
        QueueCommand::Put(args) => put(&args, output),
        QueueCommand::Take(args) => take::run(args, output),
        QueueCommand::Work(args) => work::run(args, output),
        QueueCommand::Ack(args) => ack(&args, output),
        QueueCommand::Peek(args) => peek(&args, output),
        QueueCommand::Ls(args) => ls(&args, output),
        QueueCommand::Dead(args) => dead(&args, output),
    }
}

fn put(args: &QueuePutArgs, output: Output) -> anyhow::Result<Exit> {
    let (place, items) = (&args.place, payload::read_items(&args.items)?);
    in_session(&place.tree.connect, output, async |client| {
        // One after the other, because their order is that of the queue.
        for item in &items {
            let id = put_one(client, args, item).await?;
            let line = match place.tree.json {
                true => json!({"path": place.path, "id": id.to_string()}).to_string(),
                false => id.to_string(),
            };
            // At once: if a later item fails, these have been put. Without a reader, the others are put all the same.
            let _ = print_now(format!("{line}\n"))?;
        }
        Ok(Exit::Done)
    })
}

async fn put_one(client: &Client, args: &QueuePutArgs, data: &Vec<u8>) -> Result<ItemId, Error> {
    let path = &args.place.path;
    match (args.priority, args.delay) {
        (Some(priority), _) => {
            let queue = PriorityQueue::<Vec<u8>>::new(client, path);
            queue.put(priority, data).await
        }
        (None, Some(delay)) => {
            let queue = DelayQueue::<Vec<u8>>::new(client, path);
            queue.put_after(delay, data).await
        }
        (None, None) => match Queue::<Vec<u8>>::new(client, path).put(data).await {
            Err(Error {
                kind: ErrorKind::InUse(OtherUse::Order(RecordedOrder::Due)),
                ..
            }) => {
                let queue = DelayQueue::<Vec<u8>>::new(client, path);
                queue.put_after(Duration::ZERO, data).await
            }
            put => put,
        },
    }
}

fn ack(args: &QueueAckArgs, output: Output) -> anyhow::Result<Exit> {
    let QueueLookArgs { place, order } = &args.look;
    in_session(&place.tree.connect, output, async |client| {
        let acknowledged = following!(*order, client, &place.path, |queue| {
            let items = queue.list().await?;
            let item = items.iter().find(|item| {
                let token = item.claim.as_ref().map(|claim| claim.token);
                item.id.to_string() == args.id && (args.token.is_none() || args.token == token)
            });
            match item {
                Some(item) => Ok(queue.ack_claimed(item).await?),
                None => Ok(false),
            }
        })?;
        if !acknowledged {
            let (id, path) = (&args.id, &place.path);
            return Err(Refusal::no(format!(
                "{id} in {path} is not claimed, or by another claim"
            ))
            .into());
        }
        print(place, json!({"path": place.path, "id": args.id}))
    })
}

/// Prints an object with `--json`, and nothing otherwise.
fn print(place: &PlaceArgs, object: Value) -> anyhow::Result<Exit> {
    match place.tree.json {
        true => Ok(output::answer_line(object)?),
        false => Ok(Exit::Done),
    }
}

fn peek(args: &QueueLookArgs, output: Output) -> anyhow::Result<Exit> {
    let place = &args.place;
    in_session(&place.tree.connect, output, async |client| {
        let next = following!(args.order, client, &place.path, |queue| {
            Ok(queue.peek().await?)
        })?;
        let Some(next) = next else {
            return Err(Refusal::no(format!("there is no item to take in {}", place.path)).into());
        };
        if place.tree.json {
            return Ok(output::answer_line(json!({
                "path": place.path,
                "id": next.id.to_string(),
                "data": data_json(Some(&next.payload)),
                "attempts": next.attempts,
                "age_ms": ms_of(next.age),
            }))?);
        }
        output::answer_data(&next.payload, &format!("the next item in {}", place.path))
    })
}

fn ls(args: &QueueLookArgs, output: Output) -> anyhow::Result<Exit> {
    let place = &args.place;
    in_session(&place.tree.connect, output, async |client| {
        let items = following!(args.order, client, &place.path, |queue| {
            Ok(queue.list().await?)
        })?;
        Ok(output::answer(|out| {
            if place.tree.json {
                let items: Value = items.iter().map(item_json).collect();
                writeln!(out, "{}", json!({"path": place.path, "items": items}))?;
            } else {
                if let Some(first) = items.first() {
                    let width = first.id.to_string().len();
                    let rest = "rank  bytes tries  age holder";
                    output::header(out, format_args!("{:<width$} {rest}", "item"))?;
                }
                for item in &items {
                    writeln!(out, "{}", item_text(item))?;
                }
            }
            Ok(Exit::Done)
        })?)
    })
}

fn item_text(item: &Listed) -> String {
    let (id, rank, bytes) = (&item.id, item.rank, item.bytes);
    let (attempts, age) = (item.attempts, duration::text(item.age));
    let who = item.claim.as_ref().map(|claim| {
        let who = claim
            .who
            .as_ref()
            .map_or("an unknown client".into(), who_text);
        format!(" {who}, token {}", claim.token)
    });
    let who = who.unwrap_or_default();
    format!("{id} {rank:>4} {bytes:>6} {attempts:>5} {age:>4}{who}")
}

fn item_json(item: &Listed) -> Value {
    json!({
        "id": item.id.to_string(),
        "rank": item.rank,
        "bytes": item.bytes,
        "attempts": item.attempts,
        "age_ms": ms_of(item.age),
        "claim": item.claim.as_ref().map(|claim| json!({
            "token": claim.token,
            "who": claim.who.as_ref().map(who_json),
            "since_ms": ms(claim.since),
        })),
    })
}

fn dead(args: &QueueDeadArgs, output: Output) -> anyhow::Result<Exit> {
    let QueueLookArgs { place, order } = &args.look;
    in_session(&place.tree.connect, output, async |client| {
        following!(*order, client, &place.path, |queue| {
            dead_of(&queue, args, place).await
        })
    })
}

async fn dead_of<O: Order>(
    queue: &OrderedQueue<O>,
    args: &QueueDeadArgs,
    place: &PlaceArgs,
) -> anyhow::Result<Exit> {
    let letters = queue.dead_letters().await?;
    let Some(wanted) = args.retry.as_ref().or(args.forget.as_ref()) else {
        return list_dead(&letters, place);
    };
    let mut done = Vec::new();
    for letter in chosen(&letters, wanted) {
        let is_done = match args.retry {
            Some(_) => queue.revive(letter).await?,
            None => queue.forget(letter).await?,
        };
        if is_done {
            done.push(letter);
        }
    }
    if done.is_empty() && wanted != "all" {
        let path = &place.path;
        return Err(Refusal::no(format!("there is no dead letter {wanted} in {path}")).into());
    }
    print(place, letters_json(done, place))
}

/// The dead letter with an id, or all of them.
pub(crate) fn chosen<'a>(
    letters: &'a [DeadLetter],
    wanted: &str,
) -> impl Iterator<Item = &'a DeadLetter> {
    letters
        .iter()
        .filter(move |letter| wanted == "all" || letter.id.to_string() == wanted)
}

fn list_dead(letters: &[DeadLetter], place: &PlaceArgs) -> anyhow::Result<Exit> {
    Ok(output::answer(|out| {
        if place.tree.json {
            writeln!(out, "{}", letters_json(letters, place))?;
        } else {
            write_letters(out, letters)?;
        }
        Ok(Exit::Done)
    })?)
}

/// Writes one line per dead letter, with a header on terminals.
pub(crate) fn write_letters(out: &mut dyn Write, letters: &[DeadLetter]) -> io::Result<()> {
    if let Some(first) = letters.first() {
        let width = first.id.to_string().len();
        output::header(out, format_args!("{:<width$} tries reason data", "item"))?;
    }
    for letter in letters {
        writeln!(out, "{}", letter_text(letter))?;
    }
    Ok(())
}

/// Dead letters that were listed, revived or deleted, as JSON.
fn letters_json<'a>(letters: impl IntoIterator<Item = &'a DeadLetter>, place: &PlaceArgs) -> Value {
    let letters: Value = letters.into_iter().map(letter_json).collect();
    json!({"path": place.path, "letters": letters})
}

fn letter_text(letter: &DeadLetter) -> String {
    let reason = data_text(Some(letter.reason.as_bytes()));
    let payload = data_text(Some(&letter.payload));
    format!("{} {:>5} {reason} {payload}", letter.id, letter.attempts)
}

pub(crate) fn letter_json(letter: &DeadLetter) -> Value {
    json!({
        "id": letter.id.to_string(),
        "attempts": letter.attempts,
        "reason": letter.reason,
        "died_ms": ms(letter.died),
        "data": data_json(Some(&letter.payload)),
    })
}

/// A duration in milliseconds, for JSON.
fn ms_of(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
