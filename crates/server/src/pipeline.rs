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
use crate::writer::{Group, Submission, Writer};

/// How many writes become visible together at most: readers wait meanwhile.
const GROUP_MAX: usize = 100;

/// How many groups share a sync at most, so that the first of them need not wait for ever.
const BATCH_MAX: usize = 10;

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
        let (decide, groups) = mpsc::channel();
        let deciding = thread::Builder::new()
            .name("writer".into())
            .spawn(move || decide_all(writer, &submissions, &decide))?;
        let committing = thread::Builder::new().name("log".into()).spawn(move || {
            let outcome = commit_all(log, &groups, &published);
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

/// Decides what has come together as a group: making a version that others can hold costs more than
/// changing one that nobody has seen.
fn decide_all(mut writer: Writer, submissions: &Receiver<Submission>, decide: &Sender<Group>) {
    let mut first_of_next = None;
    while let Some(first) = first_of_next.take().or_else(|| submissions.recv().ok()) {
        let mut decided = Vec::new();
        let mut next = Some(first);
        let mut stopping = false;
        while let Some(submission) = next.take() {
            match writer.decide(submission, clock::wall_ms()) {
                Some(one) => decided.push(one),
                None => stopping = true,
            }
            if stopping || decided.len() == GROUP_MAX {
                break;
            }
            match submissions.try_recv() {
                Ok(submission) if submission.ends_group() => first_of_next = Some(submission),
                Ok(submission) => next = Some(submission),
                Err(_) => {}
            }
        }
        let tree = writer.head().clone();
        if decide.send(Group { decided, tree }).is_err() || stopping {
            return;
        }
    }
}

fn commit_all(
    mut log: Box<dyn Log>,
    groups: &Receiver<Group>,
    published: &Published,
) -> io::Result<()> {
    while let Ok(first) = groups.recv() {
        let mut batch = vec![first];
        batch.extend(groups.try_iter().take(BATCH_MAX - 1));
        let mut txns = 0;
        for (txn, digest) in batch
            .iter()
            .flat_map(|group| &group.decided)
            .filter_map(|one| one.txn.as_ref())
        {
            log.append(txn, *digest)?;
            txns += 1;
        }
        log.sync(&batch[batch.len() - 1].tree, txns)?;
        for group in batch {
            published.publish(group);
        }
    }
    Ok(())
}
