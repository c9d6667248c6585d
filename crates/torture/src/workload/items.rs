//! Puts, takes and settles items in all possible ways.

use std::time::Duration;

use bellwether::{Client, Error, ErrorKind};
use bellwether_testkit::history::What;
use bellwether_testkit::history::deliveries::DeliveryStep;
use rand::Rng as _;

use super::shelf::{Place, Shelf, Work, now_ms};
use super::{Phase, Worker, rest};
use crate::record::Did;

/// The work on one item in this many takes up to two session timeouts: a session that is cut off meanwhile ends.
const LONG_ONE_IN: u32 = 50;

/// A producer puts one item per interval, so that consumers keep up.
const PUT_EVERY: Duration = Duration::from_millis(60);

/// Every worker produces and consumes.
pub(super) async fn run(mut worker: Worker, shelf: Shelf, client: &Client) {
    let place = shelf.at(client, &worker.path);
    let producer = worker.beside();
    tokio::join!(
        produce(producer, shelf, &place),
        consume(worker, &place, client.session_timeout()),
    );
}

async fn produce(mut worker: Worker, shelf: Shelf, place: &Place) {
    for number in 0.. {
        if worker.phase() > Phase::Faults {
            break;
        }
        let rank = shelf.next_rank(&mut worker.random);
        let item = format!("{rank} {}.{}.{number}", worker.who, worker.generation);
        note(&worker, DeliveryStep::Putting { item: item.clone() });
        match worker.unless_stopped(place.put(rank, &item)).await {
            Some(Ok(())) => note(&worker, DeliveryStep::Put { item }),
            // The result is unknown.
            None
            | Some(Err(Error {
                kind: ErrorKind::OutcomeUnknown(_),
                ..
            })) => {}
            Some(Err(error)) => {
                note(&worker, DeliveryStep::NotPut { item });
                worker.failed(&error).await;
            }
        }
        rest(PUT_EVERY).await;
    }
}

async fn consume(mut worker: Worker, place: &Place, session_timeout: Duration) {
    while !worker.is_stopped() {
        match worker.unless_stopped(place.take()).await {
            None => break,
            Some(Ok(Some(work))) => settle(&mut worker, work, session_timeout).await,
            Some(Ok(None)) => worker.pause().await,
            Some(Err(error)) => worker.failed(&error).await,
        }
    }
}

/// Works on an item, and settles it in one of the possible ways.
async fn settle(worker: &mut Worker, work: Work, session_timeout: Duration) {
    let (item, token) = (work.item(), work.hold().token().number());
    note(
        worker,
        DeliveryStep::Delivered {
            item: item.clone(),
            node: work.hold().node().to_owned(),
            token,
            at_ms: now_ms(),
        },
    );
    worker.note_hold(What::Granted { token, weight: 1 });
    // After the faults, items are settled as fast as possible.
    let in_faults = worker.phase() == Phase::Faults;
    let is_long = in_faults && worker.random.random_range(0..LONG_ONE_IN) == 0;
    let time = match is_long {
        true => session_timeout.mul_f64(2.0 * worker.random.random::<f64>()),
        false => worker.moment(),
    };
    let lost = tokio::select! {
        () = rest(time) => false,
        () = work.hold().lost() => true,
    };
    worker.note_hold(match lost {
        true => What::Lost { token },
        false => What::Releasing { token },
    });
    match worker.random.random_range(0..10) {
        0 if in_faults => return drop(work),
        // If that fails, the item is delivered again.
        1 if in_faults => return drop(work.fail().await),
        // Other consumers are careless, and acknowledge although their claim is lost.
        2..7 if lost => return,
        _ => {}
    }
    note(
        worker,
        DeliveryStep::Acking {
            item: item.clone(),
            token,
        },
    );
    match work.succeed().await {
        Ok(()) => note(worker, DeliveryStep::Acked { item, token }),
        Err(Error {
            kind: ErrorKind::NotHeld,
            ..
        }) => note(worker, DeliveryStep::NotAcked { item, token }),
        Err(error) => worker.failed(&error).await,
    }
}

fn note(worker: &Worker, step: DeliveryStep) {
    worker.note(Did::Item(step));
}
