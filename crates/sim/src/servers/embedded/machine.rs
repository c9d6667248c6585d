//! One life of the embedded server: from a start to the next crash. Its tasks belong to a simulated process.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bellwether_server::simulation::SimulatedServer;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::Notify;

use super::EmbeddedSettings;
use super::disk::ServerDisk;
use super::line::Line;
use crate::world::{ConnId, EmbeddedEvent, Event, Ms, Parts, ServerEvent, Shared, Trace};

/// A running server, and its connections.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) life: u64,
    pub(super) server: Mutex<SimulatedServer>,
    pub(super) disk: ServerDisk,
    lines: Mutex<BTreeMap<ConnId, Arc<Line>>>,
    shared: Shared,
    /// Writes were submitted.
    submitted: Notify,
    /// Writes were decided.
    decided: Notify,
    end: Mutex<Ending>,
}

#[derive(Debug, Default)]
struct Ending {
    is_over: bool,
    panic: Option<String>,
}

impl Machine {
    pub(super) fn new(
        life: u64,
        server: SimulatedServer,
        disk: ServerDisk,
        shared: Shared,
    ) -> Arc<Self> {
        Arc::new(Self {
            life,
            server: Mutex::new(server),
            disk,
            lines: Mutex::default(),
            shared,
            submitted: Notify::new(),
            decided: Notify::new(),
            end: Mutex::default(),
        })
    }

    /// Everything that the server does besides its connections.
    pub(super) fn tasks(
        self: &Arc<Self>,
        settings: &EmbeddedSettings,
        seed: u64,
    ) -> Vec<Pin<Box<dyn Future<Output = ()> + Send>>> {
        let server = lock(&self.server);
        let (expiry, containers) = (server.expire_sessions(), server.delete_containers());
        drop(server);
        vec![
            Box::pin(self.step_by_step(expiry)),
            Box::pin(self.step_by_step(containers)),
            Box::pin(self.step_by_step(self.clone().decide())),
            Box::pin(self.step_by_step(self.clone().log(settings.clone(), seed))),
        ]
    }

    /// A client connects. Returns the task that serves it.
    pub(super) fn connect(
        self: &Arc<Self>,
        conn: ConnId,
        seed: u64,
    ) -> Option<impl Future<Output = ()> + Send + use<>> {
        let line = Arc::new(Line::new(seed));
        let client = ([127, 0, 0, 1], 1).into();
        let serving = lock(&self.server).serve(client, line.clone())?;
        lock(&self.lines).insert(conn, line);
        Some(self.step_by_step(serving))
    }

    pub(super) fn line(&self, conn: ConnId) -> Option<Arc<Line>> {
        lock(&self.lines).get(&conn).cloned()
    }

    /// The server has ended: nothing that its tasks do from now on has an effect. Returns its connections.
    pub(super) fn end(&self) -> Vec<ConnId> {
        lock(&self.end).is_over = true;
        std::mem::take(&mut *lock(&self.lines))
            .into_keys()
            .collect()
    }

    /// The message of a panic in a task.
    pub(super) fn panic(&self) -> Option<String> {
        lock(&self.end).panic.clone()
    }

    /// The first thread of the pipeline.
    async fn decide(self: Arc<Self>) {
        loop {
            self.submitted.notified().await;
            while lock(&self.server).decide() {
                self.decided.notify_one();
            }
        }
    }

    /// The second thread of the pipeline, and the snapshots. An fsync takes time, during which more writes are decided.
    async fn log(self: Arc<Self>, settings: EmbeddedSettings, seed: u64) {
        let mut random = StdRng::seed_from_u64(seed);
        loop {
            self.decided.notified().await;
            while lock(&self.server).has_decided() {
                pause(random.random_range(0..=settings.sync_max)).await;
                if !lock(&self.server).write() {
                    return;
                }
                if random.random_ratio(1, 4) {
                    pause(random.random_range(0..=settings.sync_max)).await;
                }
                lock(&self.server).publish();
                if random.random_ratio(1, 3) {
                    let _ = lock(&self.server).take_snapshot();
                }
            }
        }
    }

    /// Runs a task of the server, and passes on its effects after each poll.
    fn step_by_step<F: Future<Output = ()> + Send>(self: &Arc<Self>, task: F) -> MachineTask<F> {
        MachineTask {
            task: Some(Box::pin(task)),
            machine: self.clone(),
        }
    }

    /// Passes on what the last poll of a task did.
    fn stepped(&self) {
        let mut server = lock(&self.server);
        while server.answer_long_read() {}
        if server.has_submitted() {
            self.submitted.notify_one();
        }
        let has_failed = server.failure().is_some();
        drop(server);
        let has_ended = has_failed || self.disk.death().is_some() || self.panic().is_some();
        if has_ended && !std::mem::replace(&mut lock(&self.end).is_over, true) {
            let life = self.life;
            self.shared.with(|it| {
                let event = ServerEvent::Embedded(EmbeddedEvent::Ends { life });
                it.agenda.put(it.now, Event::Server(event));
            });
        }
        if !lock(&self.end).is_over {
            self.shared.with(|it| self.send(it));
        }
    }

    /// Sends what the server has written to its connections.
    fn send(&self, it: &mut Parts) {
        let now = it.now;
        lock(&self.lines).retain(|conn, line| {
            let sent = line.take_sent();
            if !sent.bytes.is_empty() {
                it.trace.add(now, 10, conn ^ Trace::bytes(&sent.bytes), || {
                    format!(
                        "{} bytes from the server on connection {conn}",
                        sent.bytes.len()
                    )
                });
                it.net.send_down(&mut it.agenda, now, *conn, sent.bytes);
            }
            if sent.is_closed {
                it.net.close_by_server(&mut it.agenda, now, *conn);
            }
            !sent.is_closed
        });
    }
}

/// A task of the server. Between two polls the server may be paused or killed.
struct MachineTask<F> {
    task: Option<Pin<Box<F>>>,
    machine: Arc<Machine>,
}

impl<F: Future<Output = ()>> Future for MachineTask<F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(task) = &mut self.task else {
            return Poll::Ready(());
        };
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
        if polled.as_ref().map_or(true, |poll| poll.is_ready()) {
            // Drops the task now: that may close its connection.
            self.task = None;
        }
        let machine = self.machine.clone();
        let poll = polled.unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
            lock(&machine.end).panic = Some(text.unwrap_or_default());
            Poll::Ready(())
        });
        machine.stepped();
        poll
    }
}

#[expect(clippy::disallowed_methods, reason = "the clock of the run")]
async fn pause(time: Ms) {
    if time > 0 {
        tokio::time::sleep(Duration::from_millis(time)).await;
    }
}

/// A panic is noted, and reported as the violation of the run.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
