//! How often a quiet hold wakes the thread of its session.

use std::time::Duration;

use bellwether::{Lock, connect};
use bellwether_testkit::TestServer;
use tokio::runtime::{Builder, Handle, Runtime};

/// On a single server no write is ever due.
#[test]
fn heartbeat_of_a_hold_on_a_single_server_wakes_its_thread_seldom() {
    const T: Duration = Duration::from_secs(4);
    let servers = Runtime::new().unwrap();
    let server = servers.block_on(TestServer::start()).unwrap();
    // With nothing but the session.
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let client = connect(server.connect_string())
            .session_timeout(T)
            .on_current_runtime();
        let client = client.await.unwrap();
        let guard = Lock::new(&client, "/quiet").acquire().await.unwrap();
        let wakes = || Handle::current().metrics().worker_park_count(0);
        let before = wakes();
        #[expect(clippy::disallowed_methods, reason = "wake-ups are counted meanwhile")]
        tokio::time::sleep(T / 2).await;
        // The heartbeat every T/12, the clock of the hold every T/20, and a ping every T/6.
        let wakes = wakes() - before;
        assert!(wakes < 60, "{wakes} wake-ups in {:?}", T / 2);
        guard.release().await.unwrap();
    });
}
