//! A pool of workers: each job is done at least once, by one worker at a time.

use anyhow::Result;
use bellwether::{Client, Error, ErrorKind, Json, Queue};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use super::rest;

#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Job {
    pub(crate) host: String,
}

fn jobs(client: &Client) -> Queue<Json<Job>> {
    Queue::new(client, "/services/jobs").attempts_max(50)
}

/// Puts a job, and retries if nothing was put. If the outcome is unknown, the caller decides: here a job may be done twice.
pub(crate) async fn put(client: &Client, job: &Job) -> Result<()> {
    let jobs = jobs(client);
    loop {
        match jobs.put(&Json(job.clone())).await {
            Ok(_) => return Ok(()),
            Err(error) if error.is_transient() => rest().await,
            Err(Error {
                kind: ErrorKind::OutcomeUnknown(_),
                ..
            }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Works for ever. A job whose claim is lost, or whose worker dies, is delivered again.
pub(crate) async fn run<W: Future<Output = ()>>(
    client: &Client,
    mut work: impl FnMut(Job) -> W,
) -> Result<()> {
    let mut jobs = jobs(client).consumer();
    while let Some(claim) = jobs.next().await {
        let claim = match claim {
            Ok(claim) => claim,
            Err(error) => {
                eprintln!("no job: {error}");
                continue;
            }
        };
        match claim.run(work(claim.payload().0.clone())).await {
            // An error means that it may be delivered again; the work is idempotent.
            Ok(()) => drop(claim.ack().await),
            Err(lost) => eprintln!("{lost}"),
        }
    }
    Ok(())
}
