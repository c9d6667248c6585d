//! The way of every write: decided, on disk, seen.
//!
//! Two threads, so that writes are decided while others are on their way to the disk. What has
//! come together by the time a sync is done shares the next one. A write that comes alone takes no
//! second thread: its client would wait for the waking as well.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::alarm::{Alarm, Failure};
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
    /// Starts the threads; `alarm` is raised if the log cannot be written any more, or one of them panics.
    pub(crate) fn start(
        writer: Writer,
        log: Box<dyn Log>,
        published: Arc<Published>,
        alarm: &Alarm,
    ) -> io::Result<(Submit, Self)> {
        let (submit, submissions) = mpsc::channel();
        let (groups, decided) = mpsc::channel();
        let committer = Arc::new(Committer {
            log: Mutex::new(Some(log)),
            alarm: alarm.clone(),
            published,
            under_way: AtomicUsize::new(0),
        });
        let decider = Decider {
            writer,
            groups,
            committer: committer.clone(),
        };
        let deciding = alarm.spawn("writer", move || decider.run(&submissions))?;
        let committing = alarm.spawn("log", move || committer.run(&decided))?;
        let pipeline = Self {
            deciding,
            committing,
        };
        Ok((Submit(submit), pipeline))
    }

    /// Waits until everything submitted is on disk and published.
    pub(crate) fn join(self) {
        for thread in [self.deciding, self.committing] {
            thread.join().expect("a panic ends in the alarm");
        }
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

/// Brings groups to the disk and makes them visible: the second thread, and the first one while the
/// second has nothing to do.
struct Committer {
    /// `None` once it has failed.
    log: Mutex<Option<Box<dyn Log>>>,
    alarm: Alarm,
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
        let mut working = match self.log.lock() {
            Ok(working) => working,
            // The other thread has panicked here, and raised the alarm.
            Err(_) => return false,
        };
        let Some(log) = &mut *working else {
            return false;
        };
        if let Err(error) = write(&mut **log, &batch) {
            *working = None;
            self.alarm.raise(Failure::Log(Arc::new(error)));
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
