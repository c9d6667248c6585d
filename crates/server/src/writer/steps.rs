//! The write pipeline as single steps on one thread, for simulations: the caller decides when each step runs, and what happens between two.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::pipeline::{BATCH_MAX, Committer, Grouping, Publish};
use super::submissions::{self, Submissions, Submit};
use super::{Group, Writer};
use crate::alarm::Alarm;
use crate::storage::Log;

/// A pipeline without threads.
pub(crate) struct Steps {
    submissions: Submissions,
    grouping: Grouping,
    committer: Committer,
    /// Groups that are not on disk.
    decided: VecDeque<Group>,
    /// Groups that are on disk and not visible.
    written: Vec<Group>,
}

impl Steps {
    pub(crate) fn new(
        writer: Writer,
        log: Box<dyn Log>,
        publish: Arc<dyn Publish>,
        alarm: &Alarm,
    ) -> (Submit, Self) {
        let (submit, submissions) = submissions::queue();
        let committer = Committer::new(log, publish, writer.room().clone(), alarm);
        let steps = Self {
            submissions,
            grouping: Grouping::new(writer),
            committer,
            decided: VecDeque::new(),
            written: Vec::new(),
        };
        (submit, steps)
    }

    /// Whether writes wait to be decided.
    pub(crate) fn has_submitted(&mut self) -> bool {
        let Self {
            grouping,
            submissions,
            ..
        } = self;
        grouping.has_next(|| submissions.try_next())
    }

    /// Decides what is queued, as one group. Returns false if nothing was.
    pub(crate) fn decide(&mut self) -> bool {
        let Self {
            grouping,
            submissions,
            ..
        } = self;
        let Some(first) = grouping.take_next(|| submissions.try_next()) else {
            return false;
        };
        let (group, _) = grouping.decide(first, submissions);
        self.decided.push_back(group);
        true
    }

    /// Whether decided writes wait for the disk.
    pub(crate) fn has_decided(&self) -> bool {
        !self.decided.is_empty()
    }

    /// Writes decided groups to the log, with one fsync. Returns false if the log has failed.
    pub(crate) fn write(&mut self) -> bool {
        let count = self.decided.len().min(BATCH_MAX);
        let mut batch: Vec<Group> = self.decided.drain(..count).collect();
        let is_written = self.committer.write(&mut batch, Instant::now()).is_some();
        if is_written {
            self.written.extend(batch);
        }
        is_written
    }

    /// Publishes what is on disk.
    pub(crate) fn publish(&mut self) {
        self.committer.publish(std::mem::take(&mut self.written));
    }
}
