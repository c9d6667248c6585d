//! The write pipeline: decide, fsync, publish.
//!
//! Two threads: the first decides writes while the second writes earlier ones to the write-ahead log. Writes that arrive during an fsync
//! share the next one (group commit). A single write stays on the first thread, because waking the second would add to its latency.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::alarm::{Alarm, Failure};
use crate::clock;
use crate::storage::Log;
use crate::tree::Tree;
use crate::writer::{Group, Submission, Writer};

/// Maximum number of writes that become visible together: readers wait meanwhile.
const GROUP_MAX: usize = 100;

/// Maximum number of groups that share an fsync, which bounds the latency of the first.
pub(super) const BATCH_MAX: usize = 10;

/// Sender of writes to the pipeline.
#[derive(Debug, Clone)]
pub(crate) struct Submit(Sender<Submission>);

impl Submit {
    pub(super) fn new(submissions: Sender<Submission>) -> Self {
        Self(submissions)
    }

    /// Enqueues a write. Returns false if the server is stopping: the write is dropped.
    ///
    /// The queue itself has no limit. The limit is on connections: they are not read while too many of their requests are outstanding.
    pub(crate) fn submit(&self, submission: Submission) -> bool {
        self.0.send(submission).is_ok()
    }
}

/// Consumer of writes that are on disk.
pub(crate) trait Publish: Send + Sync {
    /// Makes writes visible, and returns the previous version. If no one else holds that version, dropping it frees everything that has
    /// changed since, which may take long. So the caller drops it, outside of any lock.
    #[must_use = "the version before is dropped where no lock is held"]
    fn publish(&self, group: Group) -> Tree;

    /// Records how long it took to write and publish a batch.
    fn took(&self, _time: Duration) {}
}

/// The two threads. They end after [`Submission::Stop`], or when the disk fails.
#[derive(Debug)]
pub(crate) struct Pipeline {
    deciding: JoinHandle<()>,
    committing: JoinHandle<()>,
}

impl Pipeline {
    /// Starts the threads. `alarm` is raised if the log can no longer be written or a thread panics.
    pub(crate) fn start(
        writer: Writer,
        log: Box<dyn Log>,
        publish: Arc<dyn Publish>,
        alarm: &Alarm,
    ) -> io::Result<(Submit, Self)> {
        let (submit, submissions) = mpsc::channel();
        let (groups, decided) = mpsc::channel();
        let committer = Arc::new(Committer::new(log, publish, alarm));
        let decider = Decider {
            grouping: Grouping::new(writer),
            groups,
            committer: committer.clone(),
        };
        let deciding = alarm.spawn("writer", move || decider.run(&submissions))?;
        let committing = alarm.spawn("log", move || committer.run(&decided))?;
        let pipeline = Self {
            deciding,
            committing,
        };
        Ok((Submit::new(submit), pipeline))
    }

    /// Waits until everything submitted is on disk and published.
    pub(crate) fn join(self) {
        for thread in [self.deciding, self.committing] {
            thread.join().expect("a panic ends in the alarm");
        }
    }
}

/// The first thread: decides writes.
struct Decider {
    grouping: Grouping,
    groups: Sender<Group>,
    committer: Arc<Committer>,
}

impl Decider {
    fn run(mut self, submissions: &Receiver<Submission>) {
        while let Some(first) = self.grouping.take_next(|| submissions.recv().ok()) {
            let (group, stopping) = self.grouping.decide(first, submissions);
            if !self.hand_on(group) || stopping {
                return;
            }
        }
    }

    /// Commits a single write on this thread if the other is idle; otherwise passes the group to the other. Returns false if nothing can be
    /// committed any more.
    fn hand_on(&self, group: Group) -> bool {
        if group.decided.len() == 1 && self.committer.is_idle() {
            return self.committer.commit(vec![group]);
        }
        self.committer.expect_group();
        self.groups.send(group).is_ok()
    }
}

/// Decides writes in groups.
pub(super) struct Grouping {
    writer: Writer,
    /// Was received, but belongs to the next group.
    first_of_next: Option<Submission>,
}

impl Grouping {
    pub(super) fn new(writer: Writer) -> Self {
        Self {
            writer,
            first_of_next: None,
        }
    }

    /// Returns the first submission of the next group: the one left over, or what `receive` returns.
    pub(super) fn take_next(
        &mut self,
        receive: impl FnOnce() -> Option<Submission>,
    ) -> Option<Submission> {
        self.first_of_next.take().or_else(receive)
    }

    /// Whether there is a next submission: the one left over, or what `receive` returns, which is kept.
    #[cfg(feature = "simulation")]
    pub(super) fn has_next(&mut self, receive: impl FnOnce() -> Option<Submission>) -> bool {
        self.first_of_next = self.take_next(receive);
        self.first_of_next.is_some()
    }

    /// Decides `first` and queued submissions as one group: up to [`GROUP_MAX`] of them, or up to one that must start a new group.
    /// Copy-on-write makes groups cheaper: a version that no reader has seen is changed in place. Also returns whether the server stops.
    pub(super) fn decide(
        &mut self,
        first: Submission,
        submissions: &Receiver<Submission>,
    ) -> (Group, bool) {
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
                Ok(submission) if submission.ends_group() => self.first_of_next = Some(submission),
                Ok(submission) => next = Some(submission),
                Err(_) => {}
            }
        }
        let tree = self.writer.head().clone();
        (Group { decided, tree }, stopping)
    }
}

/// Writes groups to the log and publishes them. Runs on the second thread, and on the first one while the second is idle.
pub(super) struct Committer {
    /// `None` after a failure.
    log: Mutex<Option<Box<dyn Log>>>,
    alarm: Alarm,
    publish: Arc<dyn Publish>,
    /// Groups that the second thread has yet to publish. Only the first thread adds to them, so a group that it commits itself is always
    /// the newest.
    under_way: AtomicUsize,
}

impl Committer {
    pub(super) fn new(log: Box<dyn Log>, publish: Arc<dyn Publish>, alarm: &Alarm) -> Self {
        Self {
            log: Mutex::new(Some(log)),
            alarm: alarm.clone(),
            publish,
            under_way: AtomicUsize::new(0),
        }
    }

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

    /// Writes all groups with one fsync and publishes them in order. Returns false if the log has failed, now or before: then nothing is
    /// published.
    fn commit(&self, batch: Vec<Group>) -> bool {
        let begin = Instant::now();
        let Some(writing) = self.write(&batch) else {
            return false;
        };
        self.publish(batch);
        self.publish.took(begin.elapsed());
        drop(writing);
        true
    }

    /// Writes all groups with one fsync. Returns the lock of the log, under which they are published, or `None` if the log has failed, now
    /// or before.
    pub(super) fn write(&self, batch: &[Group]) -> Option<MutexGuard<'_, Option<Box<dyn Log>>>> {
        // An error means that the other thread has panicked while holding the lock, and raised the alarm.
        let mut working = self.log.lock().ok()?;
        let log = working.as_mut()?;
        if let Err(error) = write(&mut **log, batch) {
            *working = None;
            self.alarm.raise(Failure::Log(Arc::new(error)));
            return None;
        }
        Some(working)
    }

    /// Publishes groups that are on disk, in order.
    pub(super) fn publish(&self, batch: Vec<Group>) {
        for group in batch {
            drop(self.publish.publish(group));
        }
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
