//! Processes that drop a guard and exit at once: the next holder does not wait for their session to expire.

use std::process::{Command, Stdio};
use std::time::Duration;

use bellwether::blocking::Wait;
use bellwether::{Lock, Queue, connect};

use crate::support::place::Place;

on_both_engines! {
    guard_that_is_dropped_at_exit_is_gone_before_its_session,
}

const SERVER: &str = "BELLWETHER_TEST_EXITS";

/// Number of processes. About one in ten used to leave its node behind.
const EXITS: usize = 40;

/// Each of them claims the item.
const ATTEMPTS_MAX: u32 = 1000;

/// Longer than any wait in a test.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

#[test]
#[ignore = "a process of its own"]
fn process_that_drops_and_exits() {
    let Ok(server) = std::env::var(SERVER) else {
        return;
    };
    let client = connect(server)
        .session_timeout(SESSION_TIMEOUT)
        .wait()
        .unwrap();
    let guard = Lock::new(&client, "/exits/lock").acquire().wait().unwrap();
    let queue = Queue::<Vec<u8>>::new(&client, "/exits/queue").attempts_max(ATTEMPTS_MAX);
    let claim = queue.take().wait().unwrap();
    drop(guard);
    drop(claim);
    std::process::exit(0);
}

async fn guard_that_is_dropped_at_exit_is_gone_before_its_session(place: Place) {
    let client = place.client().await;
    let queue = Queue::<Vec<u8>>::new(&client, "/exits/queue");
    queue.put(&b"item".to_vec()).await.unwrap();
    for _ in 0..EXITS {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "hold::exits::process_that_drops_and_exits"])
            .args(["--ignored", "--nocapture"])
            .env(SERVER, format!("{}{}", place.server(), place.chroot()))
            .stdout(Stdio::null());
        let exited = tokio::task::spawn_blocking(move || command.status());
        assert!(exited.await.unwrap().unwrap().success());
        place.until_children("/exits/lock", 0).await;
        place.until_children("/exits/queue/claims", 0).await;
    }
}
