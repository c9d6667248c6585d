//! Accepts connections.

use std::fmt::Display;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::listener::Listener;
use crate::client::{Admitted, Socket};
use crate::descriptors;
use crate::engine::Engine;
use crate::metrics::Refused;

/// Pause after a failed accept, for example while the process has no free file descriptor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Interval of log lines about refused connections: a flood of connections must not become a flood of lines.
const REFUSED_INTERVAL: Duration = Duration::from_secs(1);

/// Accepts connections until `stop` changes, and serves each with `serve`. Then closes them, and returns when they have ended.
pub(super) async fn accept<S>(
    engine: &Engine,
    listener: Listener,
    mut stop: watch::Receiver<bool>,
    serve: impl Fn(Socket, Admitted) -> S,
) where
    S: Future<Output = ()> + Send + 'static,
{
    let mut serving = JoinSet::new();
    let mut refusals = Refusals::default();
    loop {
        tokio::select! {
            biased;
            _ = stop.changed() => break,
            Some(_) = serving.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((socket, address)) => match engine.connections.admit(address) {
                    Some(admitted) => drop(serving.spawn(serve(socket, admitted))),
                    None => {
                        engine.stats.connections_rejected.fetch_add(1, Relaxed);
                        refusals.log(&address, &"limit reached or server stopping");
                    }
                },
                Err(error) => {
                    if descriptors::is_shortage(&error) {
                        engine.stats.connections_rejected.fetch_add(1, Relaxed);
                        engine.connections.meters().refuse(Refused::NoDescriptor);
                    }
                    refusals.log(&"unknown", &error);
                    #[expect(clippy::disallowed_methods, reason = "a real pause: accept would fail again at once")]
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    engine.connections.close_all();
    while serving.join_next().await.is_some() {}
}

/// Refused connections that are not logged yet.
#[derive(Debug, Default)]
struct Refusals {
    count: u64,
    logged: Option<Instant>,
}

impl Refusals {
    fn log(&mut self, address: &dyn Display, why: &dyn Display) {
        self.count += 1;
        if self
            .logged
            .is_none_or(|at| at.elapsed() >= REFUSED_INTERVAL)
        {
            let count = std::mem::take(&mut self.count);
            tracing::warn!(%address, count, %why, "connections refused");
            self.logged = Some(Instant::now());
        }
    }
}
