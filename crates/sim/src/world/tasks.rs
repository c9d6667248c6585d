//! Tasks of simulated processes, and which of them may run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};

use super::time::Ms;

/// A simulated process. A restart after a crash makes a new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Process(pub(crate) u32);

/// All tasks, by their numbers.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    last: u64,
    all: BTreeMap<u64, Task>,
}

#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) process: Process,
    /// The waker for its future: it only marks the task as ready.
    pub(crate) waker: Waker,
    /// Makes the runtime poll it.
    pub(crate) runtime: Option<Waker>,
    /// It was chosen: the next poll runs it.
    pub(crate) may_run: bool,
    /// It does not run before this time.
    pub(crate) held_until: Ms,
}

impl Tasks {
    pub(crate) fn add(&mut self, process: Process, woken: &Arc<Woken>) -> u64 {
        self.last += 1;
        let number = self.last;
        let waker = Waker::from(Arc::new(TaskWaker {
            number,
            woken: woken.clone(),
        }));
        self.all.insert(
            number,
            Task {
                process,
                waker,
                runtime: None,
                may_run: false,
                held_until: 0,
            },
        );
        number
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut Task> {
        self.all.get_mut(&number)
    }

    pub(crate) fn remove(&mut self, number: u64) {
        self.all.remove(&number);
    }

    pub(crate) fn of(&self, process: Process) -> impl Iterator<Item = u64> {
        self.all
            .iter()
            .filter(move |(_, task)| task.process == process)
            .map(|(number, _)| *number)
    }
}

/// Tasks that were woken since the executor last looked. Wakers require a `Mutex`, though there is only one thread.
///
/// It is a set: tokio wakes several waiters of one thing in an order that differs between runs, and the choice among them must not.
#[derive(Debug, Default)]
pub(crate) struct Woken(Mutex<WokenTasks>);

#[derive(Debug, Default)]
struct WokenTasks {
    /// In order, each once.
    numbers: Vec<u64>,
    executor: Option<Waker>,
    /// The executor waits to be woken.
    is_asleep: bool,
}

impl Woken {
    pub(crate) fn add(&self, number: u64) {
        let mut woken = self.lock();
        if let Err(place) = woken.numbers.binary_search(&number) {
            woken.numbers.insert(place, number);
        }
        woken.wake_executor();
    }

    /// Wakes the executor.
    pub(crate) fn look(&self) {
        self.lock().wake_executor();
    }

    /// Takes all of them.
    pub(crate) fn take(&self, into: &mut Vec<u64>) {
        into.append(&mut self.lock().numbers);
    }

    /// The next wake-up wakes `executor`, which has taken all tasks.
    pub(crate) fn sleep(&self, executor: &Waker) {
        let mut woken = self.lock();
        let known = woken.executor.as_ref();
        if known.is_none_or(|known| !known.will_wake(executor)) {
            woken.executor = Some(executor.clone());
        }
        woken.is_asleep = true;
    }

    fn lock(&self) -> MutexGuard<'_, WokenTasks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WokenTasks {
    fn wake_executor(&mut self) {
        if std::mem::take(&mut self.is_asleep)
            && let Some(executor) = &self.executor
        {
            executor.wake_by_ref();
        }
    }
}

#[derive(Debug)]
struct TaskWaker {
    number: u64,
    woken: Arc<Woken>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.woken.add(self.number);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.woken.add(self.number);
    }
}
