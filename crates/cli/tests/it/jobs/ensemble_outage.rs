//! Jobs under a lock while an ensemble has no leader that answers, with the default settings.

use std::time::{Duration, Instant};

use bellwether_testkit::Ensemble;

use crate::support::bellwether::{Running, assert_code, job};

#[test]
fn job_outlives_a_leader_that_is_paused_for_ten_seconds_and_one_that_is_killed() {
    const PAUSE: Duration = Duration::from_secs(10);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut ensemble = runtime.block_on(Ensemble::start(3)).unwrap();
    let leader = runtime.block_on(ensemble.leader()).unwrap();
    let followers = [1, 2].map(|next| ensemble.address((leader + next) % 3).to_string());
    let folder = tempfile::tempdir().unwrap();
    let running = folder.path().join("running");
    std::fs::write(&running, "").unwrap();
    let script = format!(
        "echo held; while [ -e {} ]; do sleep 0.1; done",
        running.display()
    );
    let mut holder = Running::start(&mut job(&followers.join(","), &["lock", "/job"], &script));
    assert_eq!(holder.line().as_deref(), Some("held"));

    ensemble.pause(leader).unwrap();
    let paused = Instant::now();
    // The others start an election after five seconds of silence.
    wait(PAUSE);
    ensemble.resume(leader).unwrap();
    runtime.block_on(ensemble.ready()).unwrap();
    let next = runtime.block_on(ensemble.leader()).unwrap();
    ensemble.kill(next);
    runtime.block_on(ensemble.leader()).unwrap();
    // What was proven before the pause was valid for less than this.
    wait(Duration::from_secs(20).saturating_sub(paused.elapsed()));
    std::fs::remove_file(&running).unwrap();
    assert_eq!(holder.code(), Some(0), "{:?}", holder.error_line());
}

/// A job that would not survive an election is warned, and runs.
#[test]
fn session_timeout_that_is_short_for_an_ensemble_is_warned_of() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let ensemble = runtime.block_on(Ensemble::start(3)).unwrap();
    let servers = ensemble.connect_string();
    for (options, is_short) in [
        (&["lock", "/job"][..], false),
        (&["lock", "/job", "--session-timeout", "15s"], true),
        (&["lock", "/job", "--grace", "10s"], false),
        (
            &["lock", "/job", "--session-timeout", "20s", "--grace", "6s"],
            true,
        ),
    ] {
        let output = job(&servers, options, "true").output().unwrap();
        assert_code(&output, 0);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let is_warned =
            said.contains("the command will be stopped if the servers have no leader for");
        assert_eq!(is_warned, is_short, "{options:?}: {said}");
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time itself is what is tested"
)]
fn wait(time: Duration) {
    std::thread::sleep(time);
}
