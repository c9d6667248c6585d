//! Random faults from one seed.
//!
//! A [`Forecast`] says which fault comes when and to whom: the same for the same seed. [`Weather::pass`] makes them happen
//! to the contenders behind their proxies. What the contenders are doing at that moment is up to the machine, so
//! another run with the seed has the same faults and not the same history.

mod forecast;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::Result;
use bellwether_server::proto::op::Op;
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;
use tokio::time::Instant;

pub use forecast::{Climate, Forecast, Forewarning, Spell};

use crate::engine::Engine;
use crate::history::{Recorder, What};
use crate::proxy::{Cut, FaultProxy, SeenRequest};

/// A contender that faults happen to.
#[derive(Debug)]
pub struct Target {
    /// What it speaks to its server through.
    pub proxy: FaultProxy,
    /// The id of the process to pause, if it has one of its own.
    pub process: Option<u32>,
}

impl Target {
    /// Stops the process, if it has one of its own and that has not ended.
    fn pause(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets the process go on.
    fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let id = self.process.and_then(|id| i32::try_from(id).ok());
        if let Some(process) = id.and_then(Pid::from_raw) {
            // An error means that it has ended, and then it does nothing either.
            let _ = kill_process(process, signal);
        }
    }
}

/// The contenders and the server that faults happen to.
#[derive(Debug)]
pub struct Weather<'a> {
    /// By their numbers.
    pub targets: &'a [Arc<Target>],
    /// The server of all.
    pub engine: &'a mut Engine,
    /// Takes note.
    pub recorder: &'a Recorder,
}

impl Weather<'_> {
    /// Makes faults happen for a time, and ends them.
    ///
    /// # Errors
    ///
    /// If the server does not come back.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends no fault that has begun.
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
            // Whatever else goes on is in tasks of its own.
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
                lasting.spawn(befall(who, target, spell, self.recorder.clone()));
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

/// One fault, from its beginning to its end.
async fn befall(who: usize, target: Arc<Target>, spell: Spell, recorder: Recorder) {
    let proxy = &target.proxy;
    if !matches!(spell, Spell::Expire | Spell::Pause(_)) {
        recorder.record(who, What::Fault(format!("{spell:?}")));
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
            recorder.record(who, What::Expired);
            if let Err(error) = proxy.expire_session().await {
                // The server is away, or the client was quicker to take its session back.
                recorder.record(who, What::Fault(format!("not expired: {error:#}")));
            }
        }
        Spell::Pause(time) => {
            recorder.record(who, What::Paused);
            target.pause();
            last(time).await;
            target.resume();
            recorder.record(who, What::Resumed);
        }
        Spell::Restart => unreachable!("the server is not one contender's"),
    }
}

/// Picks the request after so many others. Pings do not count: nobody waits for their replies.
fn after(passing: usize) -> impl Fn(&SeenRequest) -> bool {
    let left = AtomicUsize::new(passing);
    move |request| {
        request.op != Op::Ping
            && left
                .fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1))
                .is_err()
    }
}

#[expect(clippy::disallowed_methods, reason = "so long is what the fault lasts")]
async fn last(time: Duration) {
    tokio::time::sleep(time).await;
}
