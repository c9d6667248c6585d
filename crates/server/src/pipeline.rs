//! The way of every write: decided, on disk, seen.
//!
//! Two threads, so that writes are decided while others are on their way to the disk. What has
//! come together by the time a sync is done shares the next one.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

use crate::clock;
use crate::publish::Published;
use crate::storage::Log;
use crate::writer::{Decided, Submission, Writer};

/// How many writes share a sync at most, so that the first of them need not wait for ever.
const BATCH_MAX: usize = 1000;

/// The entrance.
#[derive(Debug, Clone)]
pub(crate) struct Submit(Sender<Submission>);

impl Submit {
    /// Puts a write in line. False if the server is stopping: nothing will come of it.
    ///
    /// The line itself has no limit; connections are not read while too much of theirs is in it.
    pub(crate) fn submit(&self, submission: Submission) -> bool {
        self.0.send(submission).is_ok()
    }
}

/// The threads. They end behind [`Submission::Stop`], or when the disk fails.
#[derive(Debug)]
pub(crate) struct Pipeline {
    deciding: JoinHandle<()>,
    committing: JoinHandle<io::Result<()>>,
}

impl Pipeline {
    /// Starts the threads; `on_failure` is called if the log cannot be written any more.
    pub(crate) fn start(
        writer: Writer,
        log: Box<dyn Log>,
        published: Arc<Published>,
        on_failure: impl FnOnce(&io::Error) + Send + 'static,
    ) -> io::Result<(Submit, Self)> {
        let (submit, submissions) = mpsc::channel();
        let (decide, decisions) = mpsc::channel();
        let deciding = thread::Builder::new()
            .name("writer".into())
            .spawn(move || decide_all(writer, &submissions, &decide))?;
        let committing = thread::Builder::new().name("log".into()).spawn(move || {
            let outcome = commit_all(log, &decisions, &published);
            if let Err(error) = &outcome {
                tracing::error!(%error, "cannot write the log, nothing more is acknowledged");
                on_failure(error);
            }
            outcome
        })?;
        Ok((
            Submit(submit),
            Self {
                deciding,
                committing,
            },
        ))
    }

    /// Waits until everything submitted is on disk and published.
    pub(crate) fn join(self) -> io::Result<()> {
        self.deciding.join().expect("the writer does not panic");
        self.committing
            .join()
            .expect("the log thread does not panic")
    }
}

fn decide_all(mut writer: Writer, submissions: &Receiver<Submission>, decide: &Sender<Decided>) {
    for submission in submissions {
        let Some(decided) = writer.decide(submission, clock::wall_ms()) else {
            return;
        };
        if decide.send(decided).is_err() {
            return;
        }
    }
}

fn commit_all(
    mut log: Box<dyn Log>,
    decisions: &Receiver<Decided>,
    published: &Published,
) -> io::Result<()> {
    while let Ok(first) = decisions.recv() {
        let mut batch = vec![first];
        batch.extend(decisions.try_iter().take(BATCH_MAX - 1));
        let mut txns = 0;
        for decided in &batch {
            if let Some(txn) = &decided.txn {
                log.append(txn, decided.tree.digest())?;
                txns += 1;
            }
        }
        log.sync(&batch[batch.len() - 1].tree, txns)?;
        for decided in batch {
            published.publish(decided);
        }
    }
    Ok(())
}
