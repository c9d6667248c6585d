//! The way of every write: decided, on disk, seen.
//!
//! Two threads, so that writes are decided while others are on their way to the disk. What has
//! come together by the time a sync is done shares the next one. A write that comes alone takes no
//! second thread: its client would wait for the waking as well.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
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
    committing: JoinHandle<()>,
}

impl Pipeline {
    /// Starts the threads; `on_failure` is called if the log cannot be written any more.
    pub(crate) fn start(
        writer: Writer,
        log: Box<dyn Log>,
        published: Arc<Published>,
        on_failure: impl FnOnce(io::Error) + Send + 'static,
    ) -> io::Result<(Submit, Self)> {
        let (submit, submissions) = mpsc::channel();
        let (groups, decided) = mpsc::channel();
        let committer = Arc::new(Committer {
            log: Mutex::new(Some((log, Box::new(on_failure)))),
            published,
            under_way: AtomicUsize::new(0),
        });
        let decider = Decider {
            writer,
            groups,
            committer: committer.clone(),
        };
        let deciding = thread::Builder::new()
            .name("writer".into())
            .spawn(move || decider.run(&submissions))?;
        let committing = thread::Builder::new()
            .name("log".into())
            .spawn(move || committer.run(&decided))?;
        let pipeline = Self {
            deciding,
            committing,
        };
        Ok((Submit(submit), pipeline))
    }

    /// Waits until everything submitted is on disk and published.
    pub(crate) fn join(self) {
        self.deciding.join().expect("the writer does not panic");
        self.committing
            .join()
            .expect("the log thread does not panic");
    }
}

/// The first thread.
struct Decider {
    writer: Writer,
    groups: Sender<Group>,
    committer: Arc<Committer>,
}

impl Decider {
    /// Decides what has come together as a group: making a version that others can hold costs more
    /// than changing one that nobody has seen.
    fn run(mut self, submissions: &Receiver<Submission>) {
        let mut first_of_next = None;
        while let Some(first) = first_of_next.take().or_else(|| submissions.recv().ok()) {
            let mut decided = Vec::new();
            let mut next = Some(first);
            let mut stopping = false;
            while let Some(submission) = next.take() {
                match self.writer.decide(submission, clock::wall_ms()) {
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
            let tree = self.writer.head().clone();
            if !self.hand_on(Group { decided, tree }) || stopping {
                return;
            }
        }
    }

    /// A write that came alone is not worth waking the other thread. False if nothing can be committed
    /// any more.
    fn hand_on(&self, group: Group) -> bool {
        if group.decided.len() == 1 && self.committer.is_idle() {
            return self.committer.commit(vec![group]);
        }
        self.committer.expect_group();
        self.groups.send(group).is_ok()
    }
}

/// The log, and what is called with the error if it fails.
type WorkingLog = (Box<dyn Log>, Box<dyn FnOnce(io::Error) + Send>);

/// Brings groups to the disk and makes them visible: the second thread, and the first one while the
/// second has nothing to do.
struct Committer {
    /// `None` once it has failed.
    log: Mutex<Option<WorkingLog>>,
    published: Arc<Published>,
    /// How many groups the second thread has yet to publish. Only the first adds to them, so that what
    /// it commits by itself comes behind them all.
    under_way: AtomicUsize,
}

impl Committer {
    fn run(&self, groups: &Receiver<Group>) {
        while let Ok(first) = groups.recv() {
            let mut batch = vec![first];
            batch.extend(groups.try_iter().take(BATCH_MAX - 1));
            let count = batch.len();
            if !self.commit(batch) {
                return;
            }
            self.under_way.fetch_sub(count, Ordering::AcqRel);
        }
    }

    fn is_idle(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }

    fn expect_group(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    /// Syncs the groups at once and publishes one after the other. False if the log has failed, now or
    /// before: nothing is published then.
    fn commit(&self, batch: Vec<Group>) -> bool {
        let mut working = self.log.lock().expect("the log does not panic");
        let Some((log, _)) = &mut *working else {
            return false;
        };
        if let Err(error) = write(&mut **log, &batch) {
            tracing::error!(%error, "cannot write the log, nothing more is acknowledged");
            if let Some((_, on_failure)) = working.take() {
                on_failure(error);
            }
            return false;
        }
        for group in batch {
            self.published.publish(group);
        }
        true
    }
}

fn write(log: &mut dyn Log, batch: &[Group]) -> io::Result<()> {
    let Some(last) = batch.last() else {
        return Ok(());
    };
    let decided = batch.iter().flat_map(|group| &group.decided);
    let mut txns = 0;
    for (txn, digest) in decided.filter_map(|one| one.txn.as_ref()) {
        log.append(txn, *digest)?;
        txns += 1;
    }
    log.sync(&last.tree, txns)
}
