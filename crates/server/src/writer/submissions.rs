//! The queue of writes that wait to be decided.
//!
//! Sessions take turns (deficit round robin), and a write costs about its length. So a client that sends without end, or sends transactions of a
//! megabyte, delays the writes of others by its share and not by its queue. The writes of one session stay in order; nothing else is promised
//! about writes that are under way at the same time.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::writer::Submission;

/// What a session may submit per turn: some tens of short writes.
const TURN_COST: usize = 8 << 10;

/// Cost of a write besides its length.
const WRITE_COST: usize = 64;

/// Sender of writes to the pipeline.
#[derive(Debug, Clone)]
pub(crate) struct Submit(Arc<Entrance>);

/// Receives what was submitted, until it is dropped.
#[derive(Debug)]
pub(super) struct Submissions(Arc<SubmissionQueue>);

/// Creates a queue.
pub(super) fn queue() -> (Submit, Submissions) {
    let line = Arc::new(SubmissionQueue::default());
    (Submit(Arc::new(Entrance(line.clone()))), Submissions(line))
}

/// All senders together.
#[derive(Debug)]
struct Entrance(Arc<SubmissionQueue>);

#[derive(Debug, Default)]
struct SubmissionQueue {
    state: Mutex<QueueState>,
    arrived: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    /// Sessions with submissions here, each once, in the order of their turns. The server itself has the number 0.
    turns: VecDeque<i64>,
    by_session: HashMap<i64, Queue>,
    /// Whether the receiver sleeps.
    is_awaited: bool,
    /// Whether a stop was submitted, which comes after everything else.
    is_stopping: bool,
    /// Whether nothing more is accepted.
    is_closed: bool,
}

/// The submissions of one session.
#[derive(Debug)]
struct Queue {
    submissions: VecDeque<Submission>,
    /// What it may still submit in this turn.
    credit: usize,
}

impl Submit {
    /// Enqueues a write. Returns false if the server is stopping: the write is dropped.
    ///
    /// The queue itself has no limit. The limit is on connections: they are not read while too many of their requests are outstanding.
    pub(crate) fn submit(&self, submission: Submission) -> bool {
        let line = &self.0.0;
        let mut state = line.lock();
        if state.is_closed {
            return false;
        }
        if matches!(submission, Submission::Stop) {
            state.is_stopping = true;
            state.is_closed = true;
        } else {
            state.push(submission);
        }
        line.wake(state);
        true
    }
}

impl Drop for Entrance {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.is_closed = true;
        self.0.wake(state);
    }
}

impl Submissions {
    /// Waits for the next submission; `None` if nothing is left and nothing more can come.
    pub(super) fn next(&self) -> Option<Submission> {
        let mut state = self.0.lock();
        loop {
            if let Some(next) = state.take() {
                return Some(next);
            }
            if state.is_closed {
                return None;
            }
            state.is_awaited = true;
            state = self.0.arrived.wait(state).expect("never panics inside");
            state.is_awaited = false;
        }
    }

    /// The next submission, if there is one.
    pub(super) fn try_next(&self) -> Option<Submission> {
        self.0.lock().take()
    }
}

impl Drop for Submissions {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        *state = QueueState {
            is_closed: true,
            ..QueueState::default()
        };
    }
}

impl SubmissionQueue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().expect("never panics inside")
    }

    /// Wakes the receiver if it sleeps.
    fn wake(&self, state: MutexGuard<'_, QueueState>) {
        let is_awaited = state.is_awaited;
        drop(state);
        if is_awaited {
            self.arrived.notify_one();
        }
    }
}

impl QueueState {
    fn push(&mut self, submission: Submission) {
        let session = submission.session_id();
        let queue = self.by_session.entry(session).or_insert_with(|| {
            self.turns.push_back(session);
            Queue {
                submissions: VecDeque::new(),
                credit: TURN_COST,
            }
        });
        queue.submissions.push_back(submission);
    }

    fn take(&mut self) -> Option<Submission> {
        while let Some(session) = self.turns.front() {
            let queue = self.by_session.get_mut(session)?;
            let cost = WRITE_COST + queue.submissions.front()?.body_len();
            if cost > queue.credit && self.turns.len() > 1 {
                queue.credit += TURN_COST;
                self.turns.rotate_left(1);
                continue;
            }
            queue.credit = queue.credit.saturating_sub(cost);
            let next = queue.submissions.pop_front();
            if queue.submissions.is_empty() {
                self.by_session.remove(session);
                self.turns.pop_front();
            }
            return next;
        }
        std::mem::take(&mut self.is_stopping).then_some(Submission::Stop)
    }
}

#[cfg(test)]
mod tests {
    use bellwether_testkit::Request;

    use super::*;
    use crate::server::core::{Client, Core};

    fn submit(submit: &Submit, core: &Core, client: &Client, request: &Request) {
        assert!(submit.submit(core.submission(client, client.request(request))));
    }

    /// Session ids in the order in which their writes are decided.
    fn order(submissions: &Submissions) -> Vec<i64> {
        let all = std::iter::from_fn(|| submissions.try_next());
        all.map(|one| one.session_id()).collect()
    }

    #[test]
    fn a_write_waits_for_the_share_of_others_and_not_for_their_queues() {
        let mut core = Core::new();
        let (sender, submissions) = queue();
        let [short, long, good] = [(); 3].map(|()| core.connect());
        for _ in 0..1000 {
            submit(&sender, &core, &short, &Request::set_data("/", "x"));
        }
        for _ in 0..3 {
            let long_data = vec![b'x'; 4 * TURN_COST];
            submit(&sender, &core, &long, &Request::set_data("/", long_data));
        }
        submit(&sender, &core, &good, &Request::set_data("/", "x"));
        let order = order(&submissions);
        assert_eq!(order.len(), 1004);
        let before = order.iter().position(|id| *id == good.session.id).unwrap();
        assert!(
            before <= TURN_COST / WRITE_COST,
            "{before} writes came first"
        );
        // The long ones are not starved either.
        let first_long = order.iter().position(|id| *id == long.session.id);
        assert!(first_long < Some(order.len() - 3), "{first_long:?}");
    }

    #[test]
    fn the_writes_of_a_session_stay_in_order_and_a_stop_is_the_last() {
        let mut core = Core::new();
        let (sender, submissions) = queue();
        let clients = [(); 3].map(|()| core.connect());
        for number in 0..300 {
            let client = &clients[number % 3];
            let data = vec![b'x'; (number * 7919) % (3 * TURN_COST)];
            let mut request = client.request(&Request::set_data("/", data));
            request.xid = i32::try_from(number).unwrap();
            assert!(sender.submit(core.submission(client, request)));
        }
        assert!(sender.submit(Submission::Stop));
        let late = core.submission(&clients[0], clients[0].request(&Request::delete("/a")));
        assert!(!sender.submit(late));
        let mut last = [-1; 3];
        for _ in 0..300 {
            let Some(Submission::Request { request, .. }) = submissions.next() else {
                panic!("a request is missing");
            };
            let last = &mut last[usize::try_from(request.xid).unwrap() % 3];
            assert!(request.xid > *last);
            *last = request.xid;
        }
        assert!(matches!(submissions.next(), Some(Submission::Stop)));
        assert!(submissions.next().is_none());
    }

    #[test]
    fn nothing_is_accepted_when_nobody_receives() {
        let mut core = Core::new();
        let client = core.connect();
        let (sender, submissions) = queue();
        drop(submissions);
        let write = client.request(&Request::delete("/a"));
        assert!(!sender.submit(core.submission(&client, write)));
    }
}
