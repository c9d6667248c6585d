//! Adds to a counter.

use bellwether::{Client, Counter, Error, ErrorKind};
use bellwether_testkit::history::sums::Addition;

use super::Worker;
use crate::record::Did;

/// Adds 1 until the run ends.
pub(super) async fn run(mut worker: Worker, client: &Client) {
    let counter = Counter::new(client, &worker.path);
    while !worker.is_stopped() {
        worker.note(Did::Count(Addition::Adding));
        match worker.unless_stopped(counter.add(1)).await {
            Some(Ok(_)) => worker.note(Did::Count(Addition::Added)),
            // The result is unknown.
            None
            | Some(Err(Error {
                kind: ErrorKind::OutcomeUnknown(_),
                ..
            })) => {}
            Some(Err(error)) => {
                worker.note(Did::Count(Addition::NotAdded));
                worker.failed(&error).await;
            }
        }
        worker.pause().await;
    }
}
