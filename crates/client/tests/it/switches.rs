//! How often threads have to wake up for a request.

use std::fs;

use bellwether_client::Client;
use bellwether_testkit::TestServer;

const REQUESTS: u64 = 2_000;

/// The number of voluntary context switches of a thread.
fn waits(status: &str) -> u64 {
    let text = fs::read_to_string(status).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    line.unwrap().trim().parse().unwrap()
}

/// The status file of the session thread.
fn session_thread() -> String {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let mut paths = tasks.map(|task| task.unwrap().path());
    let is_session_thread = |path: &std::path::PathBuf| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "bellwether")
    };
    let path = paths.find(is_session_thread).expect("a session is open");
    path.join("status").display().to_string()
}

/// A server on threads of its own, so that its waits are not counted.
fn server() -> (tokio::runtime::Runtime, TestServer) {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(1).enable_all().build().unwrap();
    let server = runtime.block_on(TestServer::start()).unwrap();
    (runtime, server)
}

async fn ask(client: &Client) {
    for _ in 0..REQUESTS {
        client.exists("/").await.unwrap();
    }
}

fn current_thread() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().build().unwrap()
}

#[test]
fn a_request_on_the_current_runtime_wakes_one_thread_once() {
    let (_runtime, server) = server();
    current_thread().block_on(async {
        let connect = Client::connect(server.connect_string()).on_current_runtime();
        let client = connect.await.unwrap();
        ask(&client).await;
        let before = waits("/proc/thread-self/status");
        ask(&client).await;
        let waited = waits("/proc/thread-self/status") - before;
        eprintln!("{waited} waits for {REQUESTS} requests");
        // A heartbeat or a page fault may add some.
        assert!(waited <= REQUESTS + REQUESTS / 20, "{waited}");
    });
}

#[test]
fn a_request_on_the_session_thread_wakes_two_threads_once() {
    let (_runtime, server) = server();
    current_thread().block_on(async {
        let client = Client::connect(server.connect_string()).await.unwrap();
        ask(&client).await;
        let thread = session_thread();
        let before = (waits("/proc/thread-self/status"), waits(&thread));
        ask(&client).await;
        let caller = waits("/proc/thread-self/status") - before.0;
        let session = waits(&thread) - before.1;
        eprintln!("caller {caller}, session thread {session} waits for {REQUESTS} requests");
        assert!(caller <= REQUESTS + REQUESTS / 20, "{caller}");
        assert!(session <= REQUESTS + REQUESTS / 20, "{session}");
    });
}
