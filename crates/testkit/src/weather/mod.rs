//! Random faults from one seed.
//!
//! A [`Forecast`] decides which fault happens when and to which contender, by a seed. [`Weather::pass`] injects them through proxies. What
//! the contenders do at that moment depends on the machine, so another run with the same seed has the same faults, but not the same
//! history.

mod forecast;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use bellwether_wire::op::Op;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use forecast::{Climate, Forecast, Forewarning, Scope, Spell};

use crate::history::{Recorder, What};
use crate::proxy::{Cut, FaultProxy, SeenRequest};
use crate::servers::engine::Engine;

/// A contender under faults.
#[derive(Debug)]
pub struct Target {
    /// The proxy between it and its server.
    pub proxy: FaultProxy,
    /// The process to pause, if it has its own.
    pub process: Option<u32>,
}

impl Target {
    /// Injects one fault, from start to end. `note` records it.
    ///
    /// # Panics
    ///
    /// On [`Spell::Restart`], which is a fault of the server, and on [`Spell::Kill`]: the caller kills and restarts its processes itself.
    pub async fn befall(&self, spell: Spell, note: impl Fn(What)) {
        let proxy = &self.proxy;
        if !matches!(spell, Spell::Expire | Spell::Pause(_)) {
            note(What::Fault(format!("{spell:?}")));
        }
        match spell {
            Spell::Cut(how) => proxy.cut(how).await,
            Spell::Outage(time) => {
                proxy.refuse(true);
                proxy.cut(Cut::Close).await;
                last(time).await;
                proxy.refuse(false);
            }
            Spell::Hold(direction, time) => {
                proxy.hold(direction);
                last(time).await;
                proxy.resume(direction);
            }
            Spell::Delay {
                direction,
                by,
                lasting,
            } => {
                proxy.delay(direction, by);
                last(lasting).await;
                proxy.delay(direction, Duration::ZERO);
            }
            Spell::SwallowReply(passing) => drop(proxy.swallow_reply_where(after(passing))),
            Spell::DropRequest(passing) => drop(proxy.drop_request_where(after(passing))),
            Spell::Expire => {
                note(What::Expired);
                if let Err(error) = proxy.expire_session().await {
                    // The server is down, or the client reattached its session first.
                    note(What::Fault(format!("not expired: {error:#}")));
                }
            }
            Spell::Pause(time) => {
                note(What::Paused);
                self.pause();
                last(time).await;
                self.resume();
                note(What::Resumed);
            }
            Spell::Restart | Spell::Kill => {
                unreachable!(
                    "the server is not one contender's, and processes are killed by their owner"
                )
            }
        }
    }

    /// Stops the process, if it has its own and that has not ended.
    fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Continues the process.
    fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.process.and_then(|id| i32::try_from(id).ok());
        if let Some(process) = id.and_then(Pid::from_raw) {
            // An error means that it has ended, so it does not run either.
            let _ = kill_process(process, signal);
        }
    }
}

/// The contenders and the server under faults.
#[derive(Debug)]
pub struct Weather<'a> {
    /// By their numbers.
    pub targets: &'a [Arc<Target>],
    /// Their server.
    pub engine: &'a mut Engine,
    /// Records the faults.
    pub recorder: &'a Recorder,
}

impl Weather<'_> {
    /// Injects faults for `time`, then ends them. The forecast must have no kills ([`Scope::kills`]): this does not own the processes.
    ///
    /// # Errors
    ///
    /// If the server does not restart.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future does not end faults that have begun.
    pub async fn pass(&mut self, forecast: Forecast, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        let mut lasting = JoinSet::new();
        for Forewarning {
            after,
            who,
            at_holder,
            spell,
        } in forecast
        {
            let next = (Instant::now() + after).min(end);
            // Faults that last run in tasks of their own.
            tokio::time::sleep_until(next).await;
            if next == end {
                break;
            }
            let holder = self.recorder.last_granted().filter(|_| at_holder);
            let who = holder.unwrap_or(who);
            if spell == Spell::Restart {
                self.recorder
                    .record(who, What::Fault("server restarts".into()));
                self.engine.restart().await?;
                self.recorder
                    .record(who, What::Fault("server is back".into()));
            } else {
                let target = Arc::clone(&self.targets[who]);
                let recorder = self.recorder.clone();
                lasting.spawn(async move {
                    let note = |what| recorder.record(who, what);
                    target.befall(spell, note).await;
                });
            }
            while lasting.try_join_next().is_some() {}
        }
        while lasting.join_next().await.is_some() {}
        for target in self.targets {
            target.proxy.calm();
        }
        Ok(())
    }
}

/// Matches the request after `passing` others. Pings do not count: no caller waits for their replies.
fn after(passing: usize) -> impl Fn(&SeenRequest) -> bool {
    let left = AtomicUsize::new(passing);
    move |request| {
        request.op != Op::Ping
            && left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                .is_err()
    }
}

#[expect(clippy::disallowed_methods, reason = "the duration of the fault")]
async fn last(time: Duration) {
    tokio::time::sleep(time).await;
}
