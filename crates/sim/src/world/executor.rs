//! Chooses what happens next.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::{Instant, Sleep, sleep_until};

use super::{Core, Event, Ms, Parts};

/// The servers of a simulation. They run between the tasks of the processes, and take no time.
pub(crate) trait Servers {
    /// Handles an event of a connection or among the servers.
    fn happen(&mut self, it: &mut Parts, event: Event);
}

impl<S: Servers> Servers for std::rc::Rc<std::cell::RefCell<S>> {
    fn happen(&mut self, it: &mut Parts, event: Event) {
        self.borrow_mut().happen(it, event);
    }
}

/// Runs tasks and events until the run is over. This is a task of the runtime, like those that it chooses from.
pub(crate) struct Executor<S> {
    core: Rc<Core>,
    servers: S,
    /// Chooses what runs next. Without it, tasks run in order, and events happen only when no task can run.
    random: Option<StdRng>,
    /// Tasks that may be polled.
    ready: Vec<u64>,
    timer: Pin<Box<Sleep>>,
    /// Nothing could run when it last looked, so time may have passed since.
    is_idle: bool,
    patience: Patience,
}

impl<S: Servers> Executor<S> {
    pub(crate) fn new(core: Rc<Core>, servers: S, seed: u64) -> Self {
        Self {
            core,
            servers,
            random: Some(StdRng::seed_from_u64(seed)),
            ready: Vec::new(),
            timer: Box::pin(sleep_until(Instant::now())),
            is_idle: true,
            patience: Patience::default(),
        }
    }

    /// The same on machines that have nothing else to do: nothing is left to chance.
    #[cfg(test)]
    pub(crate) fn in_order(self) -> Self {
        Self {
            random: None,
            ..self
        }
    }

    /// Runs until `is_over`, until something panics, or until tasks run without end while no time passes.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, is_over: impl Fn() -> bool) -> Poll<()> {
        let core = self.core.clone();
        let run = core.unless_panic(|| self.run(cx, is_over));
        run.unwrap_or(Poll::Ready(()))
    }

    fn run(&mut self, cx: &mut Context<'_>, is_over: impl Fn() -> bool) -> Poll<()> {
        if std::mem::take(&mut self.is_idle) {
            self.core.read_clock();
        }
        loop {
            if is_over() || self.core.has_panicked() || self.is_patience_over() {
                return Poll::Ready(());
            }
            self.core.woken.take(&mut self.ready);
            self.ready.sort_unstable();
            self.ready.dedup();
            self.set_aside();
            let now = self.core.now();
            let due = self.core.shared.with(|it| it.agenda.next_at());
            let is_due = due.is_some_and(|at| at <= now);
            let choices = self.ready.len() + usize::from(is_due);
            if choices == 0 {
                if let Some(at) = due {
                    let at = self.core.start + Duration::from_millis(at);
                    if self.timer.deadline() != at {
                        self.timer.as_mut().reset(at);
                    }
                    if self.timer.as_mut().poll(cx).is_ready() {
                        self.core.read_clock();
                        continue;
                    }
                }
                self.is_idle = true;
                self.core.woken.sleep(cx.waker());
                return Poll::Pending;
            }
            let choice = match &mut self.random {
                Some(random) if choices > 1 => random.random_range(0..choices),
                _ => 0,
            };
            if choice == self.ready.len() {
                self.happen();
                continue;
            }
            let number = self.ready.remove(choice);
            if self.let_run(number) {
                // When that task has run, it wakes the executor.
                self.core.woken.sleep(cx.waker());
                return Poll::Pending;
            }
        }
    }

    fn is_patience_over(&mut self) -> bool {
        let events = self.core.shared.with(|it| it.trace.count());
        self.patience.is_over(self.core.now(), events)
    }

    /// Sets aside the tasks of paused processes.
    fn set_aside(&mut self) {
        let state = &mut *self.core.state.borrow_mut();
        if state.paused == 0 {
            return;
        }
        self.ready.retain(|number| {
            let Some(task) = state.tasks.get_mut(*number) else {
                return false;
            };
            match state.processes.get_mut(&task.process) {
                Some(host) if host.is_paused && !host.is_dead => {
                    host.parked.push(*number);
                    false
                }
                _ => true,
            }
        });
    }

    /// Makes the runtime poll a task. False if the task has ended.
    fn let_run(&mut self, number: u64) -> bool {
        let now = self.core.now();
        let mut state = self.core.state.borrow_mut();
        let Some(task) = state.tasks.get_mut(number) else {
            return false;
        };
        if task.held_until > now {
            // The event that ends the hold makes it ready again.
            let until = task.held_until;
            drop(state);
            self.core
                .shared
                .with(|it| it.agenda.put(until, Event::Wake(number)));
            return false;
        }
        let Some(runtime) = &task.runtime else {
            return false;
        };
        runtime.wake_by_ref();
        task.may_run = true;
        let process = task.process;
        drop(state);
        self.core.shared.with(|it| {
            it.trace.add(it.now, 1, number, || {
                format!("task {number} of {process:?} runs")
            });
        });
        true
    }

    /// Runs the next event.
    fn happen(&mut self) {
        let now = self.core.now();
        let Some(event) = self.core.shared.with(|it| it.agenda.take_due(now)) else {
            return;
        };
        if let Event::Wake(task) = event {
            return self.core.woken.add(task);
        }
        self.core.shared.with(|it| self.servers.happen(it, event));
    }
}

/// How many events may happen in one millisecond.
const EVENTS_PER_MS_MAX: u64 = 300_000;

/// Notices that tasks run without end while the clock stands still.
#[derive(Debug, Default)]
struct Patience {
    now: Ms,
    /// The number of events when the present millisecond began.
    events: u64,
}

impl Patience {
    fn is_over(&mut self, now: Ms, events: u64) -> bool {
        if self.now != now {
            *self = Self { now, events };
        }
        events - self.events > EVENTS_PER_MS_MAX
    }
}
