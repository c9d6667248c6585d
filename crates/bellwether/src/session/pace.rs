//! Fairness between sessions: how many steps of one session run before other tasks get their turn.
//!
//! Verbs run as tasks on the session thread, beside the connections, heartbeats and clocks of all sessions. Thousands of verbs of one
//! session may be ready at once, and tasks run in the order in which they became ready. So only a few verbs of one session run before all
//! other tasks have had their turn.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bellwether_client::seam::{self, yield_now};
use tokio::runtime::Handle;

/// How many steps of verbs a session takes before others have their turn.
const STEPS_MAX: usize = 32;

/// The pace of one session.
#[derive(Debug)]
pub(crate) struct Pace {
    runtime: Handle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How many steps have been taken since others had their turn.
    taken: usize,
    /// Steps that wait for the next round, in the order of their tickets.
    waiting: VecDeque<Waker>,
    /// Steps with a lower ticket may be taken.
    admitted: u64,
}

impl Pace {
    pub(crate) fn new(runtime: Handle) -> Arc<Self> {
        Arc::new(Self {
            runtime,
            state: Mutex::default(),
        })
    }

    /// Runs a future at this pace: each poll of it is a step.
    pub(crate) async fn keep<F: Future>(self: Arc<Self>, future: F) -> F::Output {
        let mut future = pin!(future);
        let mut ticket = None;
        poll_fn(|cx| match self.step(&mut ticket, cx) {
            true => future.as_mut().poll(cx),
            false => Poll::Pending,
        })
        .await
    }

    /// Whether a step may be taken now. If not, it has a ticket for a later round, and is woken then.
    fn step(self: &Arc<Self>, ticket: &mut Option<u64>, cx: &Context<'_>) -> bool {
        let mut state = self.state();
        if let Some(own) = *ticket {
            let is_admitted = own < state.admitted;
            if is_admitted {
                *ticket = None;
            }
            return is_admitted;
        }
        if state.taken < STEPS_MAX && state.waiting.is_empty() {
            state.taken += 1;
            return true;
        }
        let behind = u64::try_from(state.waiting.len()).unwrap_or(u64::MAX);
        *ticket = Some(state.admitted + behind);
        state.waiting.push_back(cx.waker().clone());
        let is_first = state.waiting.len() == 1;
        drop(state);
        if is_first {
            self.runtime.spawn(seam::task(self.clone().go_on()));
        }
        false
    }

    /// Admits waiting steps, round by round.
    async fn go_on(self: Arc<Self>) {
        loop {
            // All other tasks that are ready, sockets and timers come first.
            yield_now().await;
            let mut state = self.state();
            let count = STEPS_MAX.min(state.waiting.len());
            let woken: Vec<Waker> = state.waiting.drain(..count).collect();
            state.admitted += u64::try_from(count).unwrap_or(u64::MAX);
            state.taken = count;
            let is_done = state.waiting.is_empty();
            drop(state);
            woken.into_iter().for_each(Waker::wake);
            if is_done {
                return;
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Thousands of verbs that are always ready, and a task beside them: it runs between every few of their steps.
    #[tokio::test]
    async fn crowd_of_verbs_leaves_room_for_others() {
        const VERBS: usize = 1_000;
        const STEPS: usize = 10;
        let pace = Pace::new(Handle::current());
        let steps = Arc::new(AtomicUsize::new(0));
        let verbs = (0..VERBS).map(|_| {
            let steps = steps.clone();
            let verb = async move {
                for _ in 0..STEPS {
                    steps.fetch_add(1, Ordering::Relaxed);
                    yield_now().await;
                }
            };
            tokio::spawn(pace.clone().keep(verb))
        });
        let verbs: Vec<_> = verbs.collect();
        let mut longest = 0;
        let mut last = 0;
        while last < VERBS * STEPS {
            yield_now().await;
            let now = steps.load(Ordering::Relaxed);
            longest = longest.max(now - last);
            last = now;
        }
        assert!(longest <= 2 * STEPS_MAX, "{longest} steps without a pause");
        for verb in verbs {
            verb.await.unwrap();
        }
    }

    #[tokio::test]
    async fn verb_that_is_dropped_while_it_waits_holds_nobody_up() {
        let pace = Pace::new(Handle::current());
        let verbs = (0..200).map(|_| tokio::spawn(pace.clone().keep(yield_now())));
        let mut verbs: Vec<_> = verbs.collect();
        yield_now().await;
        verbs[100..150].iter().for_each(|verb| verb.abort());
        let left = verbs.split_off(150);
        for verb in left.into_iter().chain(verbs.drain(..100)) {
            verb.await.unwrap();
        }
    }
}
