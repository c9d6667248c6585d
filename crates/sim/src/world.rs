//! Simulates many machines in one thread: processes, clocks and network, in virtual time.
//!
//! tokio's paused clock jumps to the next timer when nothing can run. The seed decides what runs next: a task is polled only when the
//! executor has picked it among those that are ready. So neither tokio's order of wake-ups nor that of a hash map affects the run, and the
//! same seed gives the same run.

mod agenda;
mod event;
mod executor;
mod net;
mod tasks;
mod time;
mod trace;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether_client::environment;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;

pub(crate) use agenda::Agenda;
pub(crate) use event::{EmbeddedEvent, EnsembleEvent, Event, Message, ServerEvent};
pub(crate) use executor::{Executor, Servers};
pub(crate) use net::{ConnId, Net, SimDial};
pub(crate) use tasks::Process;
use tasks::{Tasks, Woken};
pub use time::Ms;
pub(crate) use time::{Clock, in_history, server_epoch_ms};
pub(crate) use trace::Trace;

/// State that streams and the executor share.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<Parts>>);

/// The state of network and time.
pub(crate) struct Parts {
    /// The present moment. Time passes only while nothing can run, so the executor reads the clock for all.
    pub(crate) now: Ms,
    pub(crate) agenda: Agenda<Event>,
    pub(crate) net: Net,
    pub(crate) trace: Trace,
}

impl Shared {
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Parts) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shared")
    }
}

/// All simulated processes.
pub(crate) struct Core {
    start: Instant,
    /// As [`Parts::now`].
    now: Cell<Ms>,
    state: RefCell<WorldState>,
    woken: Arc<Woken>,
    /// How often the present task has asked for the time in one poll.
    asked: Cell<u64>,
    /// The message of the first panic.
    panicked: RefCell<Option<String>>,
    pub(crate) shared: Shared,
}

/// How often a task may ask for the time in one poll. A task that asks more often never returns.
const ASKED_MAX: u64 = 1_000_000;

struct WorldState {
    processes: BTreeMap<Process, Host>,
    tasks: Tasks,
    /// Number of paused processes.
    paused: usize,
    /// The process that runs at this moment.
    present: Process,
    random: StdRng,
    last_process: u32,
}

/// State of one process.
struct Host {
    clock: Clock,
    is_paused: bool,
    is_dead: bool,
    random: StdRng,
    /// Tasks that run when the process resumes.
    parked: Vec<u64>,
}

/// The process of the test itself, which has no faults.
pub(crate) const OBSERVER: Process = Process(0);

impl Core {
    pub(crate) fn new(seed: u64, net: Net, trace: Trace) -> Rc<Self> {
        let start = Instant::now();
        let shared = Shared(Arc::new(Mutex::new(Parts {
            now: 0,
            agenda: Agenda::default(),
            net,
            trace,
        })));
        let core = Rc::new(Self {
            start,
            now: Cell::new(0),
            state: RefCell::new(WorldState {
                processes: BTreeMap::new(),
                tasks: Tasks::default(),
                paused: 0,
                present: OBSERVER,
                random: StdRng::seed_from_u64(seed),
                last_process: 0,
            }),
            woken: Arc::default(),
            asked: Cell::new(0),
            panicked: RefCell::new(None),
            shared,
        });
        core.add_process(OBSERVER, Clock::TRUE, seed);
        core
    }

    pub(crate) fn now(&self) -> Ms {
        self.now.get()
    }

    /// Whether something has panicked, which ends the run.
    pub(crate) fn has_panicked(&self) -> bool {
        self.panicked.borrow().is_some()
    }

    /// The message of the first panic.
    pub(crate) fn panicked(&self) -> Option<String> {
        self.panicked.borrow().clone()
    }

    /// Runs something of the run. `None` if it panics.
    pub(crate) fn unless_panic<T>(&self, act: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(act)) {
            Ok(value) => Some(value),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                let message = format!("a panic: {}", text.unwrap_or_default());
                self.panicked.borrow_mut().get_or_insert(message);
                None
            }
        }
    }

    /// Reads the clock, which may have advanced while nothing could run.
    fn read_clock(&self) {
        let elapsed = self.start.elapsed().as_millis();
        let now = u64::try_from(elapsed).unwrap_or(u64::MAX);
        if self.now.replace(now) != now {
            self.shared.with(|it| it.now = now);
        }
    }

    fn add_process(&self, process: Process, clock: Clock, seed: u64) {
        self.state.borrow_mut().processes.insert(
            process,
            Host {
                clock,
                is_paused: false,
                is_dead: false,
                random: StdRng::seed_from_u64(seed),
                parked: Vec::new(),
            },
        );
    }

    /// Starts a process.
    pub(crate) fn start(&self, clock: Clock) -> Process {
        let mut state = self.state.borrow_mut();
        state.last_process += 1;
        let process = Process(state.last_process);
        let seed = state.random.random();
        drop(state);
        self.add_process(process, clock, seed);
        process
    }

    /// Runs a task in a process.
    pub(crate) fn spawn(
        &self,
        process: Process,
        future: impl Future<Output = ()> + Send + 'static,
    ) {
        let before = self.enter(process);
        tokio::spawn(environment::task(future));
        self.enter(before);
    }

    /// Kills a process: its connections end, and its futures have no effect while they are dropped.
    pub(crate) fn kill(&self, process: Process) {
        self.shared.with(|it| {
            for conn in it.net.of(Some(process)) {
                it.net.close_by_client(&mut it.agenda, it.now, conn);
            }
        });
        self.end_tasks(process);
    }

    /// Kills a process that has opened no connections.
    pub(crate) fn end_tasks(&self, process: Process) {
        let mut state = self.state.borrow_mut();
        if let Some(host) = state.processes.get_mut(&process) {
            host.is_dead = true;
        }
        let tasks: Vec<u64> = state.tasks.of(process).collect();
        drop(state);
        for task in tasks {
            self.woken.add(task);
        }
    }

    pub(crate) fn pause(&self, process: Process) {
        let state = &mut *self.state.borrow_mut();
        if let Some(host) = state.processes.get_mut(&process)
            && !std::mem::replace(&mut host.is_paused, true)
        {
            state.paused += 1;
        }
    }

    pub(crate) fn resume(&self, process: Process) {
        let parked = {
            let state = &mut *self.state.borrow_mut();
            let Some(host) = state.processes.get_mut(&process) else {
                return;
            };
            if std::mem::take(&mut host.is_paused) {
                state.paused -= 1;
            }
            std::mem::take(&mut host.parked)
        };
        for task in parked {
            self.woken.add(task);
        }
    }

    /// Holds one task of a process back.
    pub(crate) fn starve(&self, process: Process, until: Ms) {
        let mut state = self.state.borrow_mut();
        let tasks: Vec<u64> = state.tasks.of(process).collect();
        if tasks.is_empty() {
            return;
        }
        let chosen = tasks[state.random.random_range(0..tasks.len())];
        if let Some(task) = state.tasks.get_mut(chosen) {
            task.held_until = until;
        }
    }

    /// Number of tasks of a process.
    pub(crate) fn task_count(&self, process: Process) -> usize {
        self.state.borrow().tasks.of(process).count()
    }

    fn enter(&self, process: Process) -> Process {
        std::mem::replace(&mut self.state.borrow_mut().present, process)
    }

    fn with_host<T>(&self, act: impl FnOnce(&mut Host) -> T) -> T {
        let mut state = self.state.borrow_mut();
        let present = state.present;
        act(state
            .processes
            .get_mut(&present)
            .expect("the present process is there"))
    }
}

impl WorldState {
    fn is_dead(&self, process: Process) -> bool {
        let host = self.processes.get(&process);
        host.is_none_or(|host| host.is_dead)
    }

    /// Removes a killed process, after its last task.
    fn bury(&mut self, process: Process) {
        if self.is_dead(process) && self.tasks.of(process).next().is_none() {
            let host = self.processes.remove(&process);
            self.paused -= usize::from(host.is_some_and(|host| host.is_paused));
        }
    }
}

impl Clock {
    /// A clock without error.
    pub(crate) const TRUE: Self = Self {
        drift_ppm: 0,
        day_offset: Duration::ZERO,
    };
}

impl environment::World for Core {
    fn boot_time(&self) -> Duration {
        let now = self.now();
        self.asked.set(self.asked.get() + 1);
        if self.asked.get() > ASKED_MAX {
            self.asked.set(0);
            resume_unwind(Box::new("a task does not return from a poll"));
        }
        self.with_host(|host| host.clock.boot_time(now))
    }

    fn since_epoch(&self) -> Duration {
        let now = self.now();
        self.with_host(|host| host.clock.since_epoch(now))
    }

    fn random(&self) -> u64 {
        self.with_host(|host| host.random.random())
    }

    fn identity(&self) -> (String, String, u32) {
        let Process(number) = self.state.borrow().present;
        (format!("host{number}"), "user".to_owned(), number)
    }

    fn adopt(&self) -> u64 {
        let mut state = self.state.borrow_mut();
        let present = state.present;
        state.tasks.add(present, &self.woken)
    }

    fn poll(
        &self,
        number: u64,
        cx: &mut Context<'_>,
        run: &mut dyn FnMut(&mut Context<'_>) -> Poll<()>,
    ) -> bool {
        let mut state = self.state.borrow_mut();
        let Some(task) = state.tasks.get_mut(number) else {
            return true;
        };
        let is_new = task.runtime.is_none();
        let known = task.runtime.as_ref();
        if known.is_none_or(|known| !known.will_wake(cx.waker())) {
            task.runtime = Some(cx.waker().clone());
        }
        if !std::mem::take(&mut task.may_run) {
            drop(state);
            if is_new {
                self.woken.add(number);
            }
            return true;
        }
        let (process, waker) = (task.process, task.waker.clone());
        if state.is_dead(process) {
            return false;
        }
        let before = std::mem::replace(&mut state.present, process);
        drop(state);
        self.asked.set(0);
        let polled = self.unless_panic(|| run(&mut Context::from_waker(&waker)));
        let done = polled.unwrap_or(Poll::Ready(()));
        self.enter(before);
        if done.is_ready() {
            self.state.borrow_mut().tasks.remove(number);
        }
        self.woken.look();
        true
    }

    fn dismiss(&self, number: u64, end: &mut dyn FnMut()) {
        let process = {
            let mut state = self.state.borrow_mut();
            let process = state.tasks.get_mut(number).map(|task| task.process);
            state.tasks.remove(number);
            process
        };
        match process {
            Some(process) => {
                let before = self.enter(process);
                self.unless_panic(end);
                self.enter(before);
                self.state.borrow_mut().bury(process);
            }
            None => drop(self.unless_panic(end)),
        }
        self.woken.look();
    }
}
