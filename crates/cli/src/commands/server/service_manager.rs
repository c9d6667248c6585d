//! What systemd is told about a server.

use std::future::pending;
use std::time::Duration;

use bellwether_server::{Monitor, NotReady};
use sd_notify::NotifyState;
use tokio::time::{MissedTickBehavior, interval};

/// Notifies the service manager, if there is one.
pub(super) fn notify(state: NotifyState<'_>) {
    notify_all(&[state]);
}

/// Notifies it that the server is reading its settings again; [`NotifyState::Ready`] ends that.
pub(super) fn notify_reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify_all(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "no clock for the service manager"),
    }
}

/// Feeds the watchdog of the service manager, three times in its period, as long as the write pipeline of the server answers. Never ends.
pub(super) async fn feed_watchdog(server: Monitor) {
    let Some(period) = sd_notify::watchdog_enabled() else {
        return pending().await;
    };
    let mut ticks = interval((period / 3).max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match server.serves_writes().await {
            Err(NotReady::Stopping) => return pending().await,
            // A restart frees no disk.
            Ok(()) | Err(_) => notify(NotifyState::Watchdog),
        }
    }
}

fn notify_all(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}
