//! The write pipeline: decide, fsync, publish.
//!
//! Two threads: the first decides writes while the second writes earlier ones to the write-ahead log. Writes that arrive during an fsync
//! share the next one (group commit). A single write stays on the first thread, because waking the second would add to its latency.

use std::io;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::submissions::{self, Submissions, Submit};
use super::under_way::UnderWay;
use crate::alarm::{Alarm, Failure};
use crate::clock;
use crate::slow_requests::StageTimes;
use crate::storage::{DiskRoom, Log};
use crate::tree::Tree;
use crate::writer::{Group, Submission, Writer};

/// Maximum number of writes that become visible together: readers wait meanwhile.
const GROUP_MAX: usize = 100;

/// About how many bytes of events a watcher of everything receives for writes that become visible together: no write is added to a group that
/// has as many. A write may make tens of thousands of changes, and events are what publishing a group spends its time on.
const GROUP_EVENT_BYTES: usize = 64 << 10;

/// Maximum bytes of requests of a group of several writes. Together with what may be under way, this bounds what one fsync writes.
const GROUP_BYTES: usize = 256 << 10;

/// Maximum number of groups that share an fsync, which bounds the latency of the first.
pub(super) const BATCH_MAX: usize = 10;

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
        let (submit, submissions) = submissions::queue();
        let (groups, decided) = mpsc::channel();
        let committer = Arc::new(Committer::new(log, publish, writer.room().clone(), alarm));
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
        Ok((submit, pipeline))
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
    fn run(mut self, submissions: &Submissions) {
        while let Some(first) = self.grouping.take_next(|| submissions.next()) {
            let (group, stopping) = self.grouping.decide(first, submissions);
            if !self.hand_on(group) || stopping {
                return;
            }
        }
    }

    /// Commits a single write on this thread if the other is idle; otherwise passes the group to the other. Returns false if nothing can be
    /// committed any more.
    fn hand_on(&self, group: Group) -> bool {
        if group.decided.len() == 1 && self.committer.under_way.is_empty() {
            return self.committer.commit(vec![group]);
        }
        self.committer.under_way.add(group.bytes());
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

    /// Decides `first` and queued submissions as one group: up to [`GROUP_MAX`] of them, of at most [`GROUP_BYTES`], until their events have [`GROUP_EVENT_BYTES`], or up to
    /// one that must start a new group.
    /// Copy-on-write makes groups cheaper: a version that no reader has seen is changed in place. Also returns whether the server stops.
    pub(super) fn decide(&mut self, first: Submission, submissions: &Submissions) -> (Group, bool) {
        let taken = Instant::now();
        let mut decided = Vec::new();
        let mut next = Some(first);
        let mut stopping = false;
        let (mut bytes, mut event_bytes) = (0, 0);
        while let Some(submission) = next.take() {
            bytes += submission.body_len();
            match self.writer.decide(submission, clock::wall_ms()) {
                Some(one) => {
                    event_bytes += one.event_bytes();
                    decided.push(one);
                }
                None => stopping = true,
            }
            let is_full = decided.len() == GROUP_MAX || event_bytes >= GROUP_EVENT_BYTES;
            if stopping || is_full {
                break;
            }
            match submissions.try_next() {
                // A long write does not delay the short ones before it.
                Some(submission)
                    if submission.ends_group() || bytes + submission.body_len() > GROUP_BYTES =>
                {
                    self.first_of_next = Some(submission);
                }
                submission => next = submission,
            }
        }
        let group = Group {
            decided,
            tree: self.writer.head().clone(),
            bytes: self.writer.bytes(),
            times: StageTimes::decided_since(taken),
        };
        (group, stopping)
    }
}

/// Writes groups to the log and publishes them. Runs on the second thread, and on the first one while the second is idle.
pub(super) struct Committer {
    /// `None` after a failure.
    log: Mutex<Option<Box<dyn Log>>>,
    room: Arc<DiskRoom>,
    alarm: Alarm,
    publish: Arc<dyn Publish>,
    /// Groups that the second thread has yet to publish. Only the first thread adds to them, so a group that it commits itself is always
    /// the newest.
    under_way: UnderWay,
}

impl Committer {
    pub(super) fn new(
        log: Box<dyn Log>,
        publish: Arc<dyn Publish>,
        room: Arc<DiskRoom>,
        alarm: &Alarm,
    ) -> Self {
        Self {
            log: Mutex::new(Some(log)),
            room,
            alarm: alarm.clone(),
            publish,
            under_way: UnderWay::default(),
        }
    }

    fn run(&self, groups: &Receiver<Group>) {
        let _end = EndOfCommits(&self.under_way);
        while let Ok(first) = groups.recv() {
            let mut batch = vec![first];
            batch.extend(groups.try_iter().take(BATCH_MAX - 1));
            let bytes = batch.iter().map(Group::bytes).sum();
            let count = batch.len();
            if !self.commit(batch) {
                return;
            }
            self.under_way.remove(count, bytes);
        }
    }

    /// Writes all groups with one fsync and publishes them in order. Returns false if the log has failed, now or before: then nothing is
    /// published.
    fn commit(&self, mut batch: Vec<Group>) -> bool {
        let begin = Instant::now();
        let Some(writing) = self.write(&mut batch, begin) else {
            return false;
        };
        self.publish(batch);
        self.publish.took(begin.elapsed());
        drop(writing);
        true
    }

    /// Writes all groups with one fsync, which begins at `begin`. Returns the lock of the log, under which they are published, or `None` if
    /// the log has failed, now or before.
    pub(super) fn write(
        &self,
        batch: &mut [Group],
        begin: Instant,
    ) -> Option<MutexGuard<'_, Option<Box<dyn Log>>>> {
        // An error means that the other thread has panicked while holding the lock, and raised the alarm.
        let mut working = self.log.lock().ok()?;
        let log = working.as_mut()?;
        if let Err(error) = write(&mut **log, batch) {
            *working = None;
            self.alarm.raise(Failure::Log(Arc::new(error)));
            return None;
        }
        if let Some(last) = batch.last() {
            self.room.logged_to(last.bytes);
        }
        let synced = Instant::now();
        for group in batch {
            group.times.log_begun = begin;
            group.times.synced = synced;
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

/// Ends the wait of the first thread when the second one ends, even by a panic.
struct EndOfCommits<'a>(&'a UnderWay);

impl Drop for EndOfCommits<'_> {
    fn drop(&mut self) {
        self.0.end();
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

#[cfg(test)]
mod tests {
    use bellwether_testkit::Request;

    use super::*;
    use crate::client::Connections;
    use crate::config::Config;
    use crate::server::core::Core;
    use crate::storage::SlowLog;
    use crate::writer::Rules;

    /// Numbers of writes in the groups that are made of `count` such requests.
    fn groups(request: &Request, count: usize) -> Vec<usize> {
        let mut core = Core::new();
        let client = core.connect();
        let writer = Writer::new(
            core.published.tree(),
            Rules::default(),
            Arc::new(DiskRoom::unlimited()),
        );
        let (submit, submissions) = submissions::queue();
        for _ in 0..count {
            assert!(submit.submit(core.submission(&client, client.request(request))));
        }
        let mut grouping = Grouping::new(writer);
        let mut sizes = Vec::new();
        while let Some(first) = grouping.take_next(|| submissions.try_next()) {
            let (group, _) = grouping.decide(first, &submissions);
            sizes.push(group.decided.len());
        }
        sizes
    }

    /// Keeps what is published.
    #[derive(Default)]
    struct Kept(Mutex<Vec<StageTimes>>);

    impl Publish for Kept {
        fn publish(&self, group: Group) -> Tree {
            self.0.lock().unwrap().push(group.times);
            group.tree
        }
    }

    #[test]
    fn the_time_of_an_fsync_is_that_of_the_stage_and_of_no_other() {
        const FSYNC: Duration = Duration::from_millis(50);
        let mut core = Core::new();
        let client = core.connect();
        let kept = Arc::new(Kept::default());
        let room = Arc::new(DiskRoom::unlimited());
        let connections = Connections::new(&Config::default(), 10);
        let (alarm, _failure) = Alarm::new(Arc::new(connections));
        let committer = Committer::new(Box::new(SlowLog(FSYNC)), kept.clone(), room, &alarm);
        let set = client.request(&Request::set_data("/", ""));
        let submission = core.submission(&client, set);
        let group = core.decide(vec![submission]);
        let decided = group.times.decided;
        assert!(committer.commit(vec![group]));
        let times = kept.0.lock().unwrap()[0];
        assert!(times.taken <= times.decided && times.decided <= times.log_begun);
        assert!(times.synced - times.log_begun >= FSYNC);
        assert_eq!(times.decided, decided);
    }

    #[test]
    fn a_group_is_bounded_by_writes_their_bytes_and_their_events() {
        assert_eq!(groups(&Request::set_data("/", ""), 250), [100, 100, 50]);
        let long = Request::set_data("/", vec![b'x'; GROUP_BYTES / 3]);
        assert_eq!(groups(&long, 5), [2, 2, 1]);
        let longer = Request::set_data("/", vec![b'x'; 2 * GROUP_BYTES]);
        assert_eq!(groups(&longer, 2), [1, 1]);
        let changes = GROUP_EVENT_BYTES / 2 / 33 + 1;
        let long = Request::Multi(vec![Request::set_data("/", ""); changes]);
        assert_eq!(groups(&long, 5), [2, 2, 1]);
        let failing = Request::Multi(vec![Request::set_data("/none", ""); changes]);
        assert_eq!(groups(&failing, 5), [5]);
    }
}
