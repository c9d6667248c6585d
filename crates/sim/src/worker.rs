//! A process that uses a recipe in rounds.

use std::time::Duration;

use bellwether::{Client, Connect};
use bellwether_testkit::history::What;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::watch;

use crate::failure::Failure;
use crate::recorder::Recorder;
use crate::world::{Ms, Process, Shared, SimDial};

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Faults happen.
    Faults,
    /// All faults are over, and every worker has to complete a round.
    Calm,
    /// Workers end their rounds, and keep their sessions.
    Stopped,
    /// Workers close their sessions.
    Closing,
}

/// One process that uses a recipe.
#[derive(Debug)]
pub struct Worker {
    /// Its number.
    pub who: usize,
    /// Its random numbers.
    pub random: StdRng,
    pub(crate) recorder: Recorder,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) work_max: Ms,
    pub(crate) rest_max: Ms,
    pub(crate) options: Connect,
    /// Whether an operator deletes directories.
    pub(crate) has_operator: bool,
    pub(crate) requests_max: Option<usize>,
}

/// The session has ended, or the run has: the round ends without a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

impl Worker {
    /// Opens sessions until one succeeds, or the run is over.
    pub(crate) async fn session(&mut self) -> Option<Client> {
        while !self.is_stopped() {
            match self.options.clone().await {
                Ok(client) => return Some(client),
                Err(error) => {
                    self.failed(&error);
                    self.pause().await;
                }
            }
        }
        None
    }

    /// Sends as many requests at once as the client may have in flight, now and then, as long as faults happen.
    #[expect(
        clippy::disallowed_methods,
        reason = "stands for other work, in virtual time"
    )]
    pub(crate) fn flood(&mut self, client: &Client) -> impl Future<Output = ()> + Send + use<> {
        let requests = self.requests_max.unwrap_or(0);
        let mut random = StdRng::seed_from_u64(self.random.random());
        let (client, phase) = (client.clone(), self.phase.clone());
        async move {
            while *phase.borrow() == Phase::Faults {
                let raw = client.raw();
                let flood: Vec<_> = (0..requests).map(|_| raw.exists("/")).collect();
                for reply in flood {
                    // The requests count, and not their answers.
                    let _ = reply.await;
                }
                tokio::time::sleep(Duration::from_millis(random.random_range(1..300))).await;
            }
        }
    }

    /// Keeps the session after the last round, until all workers close theirs.
    pub(crate) async fn idle(&mut self) {
        self.recorder.idle();
        // An error means that the run has ended.
        let _ = self.phase.wait_for(|phase| *phase == Phase::Closing).await;
    }

    /// Records an error that a recipe has returned. If faults cannot cause it, the run fails.
    pub fn failed(&self, error: &impl Failure) {
        let mut text = error.to_string();
        let mut reason = error.source();
        while let Some(error) = reason {
            text += &format!(": {error}");
            reason = error.source();
        }
        if !error.is_explained(self.has_operator) {
            self.wrong(format!("worker {} got an error: {text}", self.who));
        }
        self.note(What::Failed(text));
    }

    /// Ends the run as failed, with this violation.
    pub fn wrong(&self, what: String) {
        self.recorder.set_wrong(what);
    }

    /// Records what the worker does.
    pub fn note(&self, what: What) {
        self.recorder.note(self.who, what);
    }

    /// A round is complete.
    pub(crate) fn count_round(&self) {
        self.recorder.count_round(self.who);
    }

    /// Works for some time.
    #[expect(
        clippy::disallowed_methods,
        reason = "stands for work, in virtual time"
    )]
    pub async fn work(&mut self) {
        let time = self.random.random_range(0..=self.work_max);
        tokio::time::sleep(Duration::from_millis(time)).await;
    }

    /// Works for some time; half of the time also until a server has answered, so that a worker without a server keeps its hold.
    pub async fn work_with(&mut self, client: &Client) {
        self.work().await;
        if self.random.random_bool(0.5) {
            while client.raw().exists("/").await.is_err() && !client.raw().state().is_ended() {}
        }
    }

    /// Pauses for some time: after a failure, and sometimes between rounds.
    pub async fn pause(&mut self) {
        self.work().await;
    }

    /// Rests after a round, unless the run ends.
    #[expect(
        clippy::disallowed_methods,
        reason = "stands for a service without work, in virtual time"
    )]
    pub(crate) async fn rest(&mut self) {
        if self.rest_max > 0 {
            let time = Duration::from_millis(self.random.random_range(0..=self.rest_max));
            // The caller looks whether the run has ended.
            let _ = self.unless_stopped(tokio::time::sleep(time)).await;
        }
    }

    /// A random duration for limits: from zero to twice the longest work.
    pub fn moment(&mut self) -> Duration {
        Duration::from_millis(self.random.random_range(0..=2 * self.work_max))
    }

    /// Whether all faults are over.
    pub fn is_calm(&self) -> bool {
        *self.phase.borrow() >= Phase::Calm
    }

    /// Whether the run is over.
    pub fn is_stopped(&self) -> bool {
        *self.phase.borrow() >= Phase::Stopped
    }

    /// Resolves when the run is over.
    pub fn stopped(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut phase = self.phase.clone();
        async move {
            // An error means that the run has ended.
            let _ = phase.wait_for(|phase| *phase >= Phase::Stopped).await;
        }
    }

    /// Awaits a future unless the run ends.
    pub async fn unless_stopped<T>(&self, future: impl Future<Output = T>) -> Result<T, Gone> {
        tokio::select! {
            biased;
            value = future => Ok(value),
            () = self.stopped() => Err(Gone),
        }
    }
}

/// Client options with which a process connects to the simulated servers.
pub(crate) fn options(
    shared: &Shared,
    process: Process,
    servers: usize,
    session_timeout: Ms,
) -> Connect {
    let address: Vec<String> = (1..=servers).map(|id| format!("server{id}:2181")).collect();
    let dial = SimDial {
        shared: shared.clone(),
        process,
    };
    bellwether::connect(address.join(","))
        .session_timeout(Duration::from_millis(session_timeout))
        .dial(dial)
        .process(process.0)
        .on_current_runtime()
}
