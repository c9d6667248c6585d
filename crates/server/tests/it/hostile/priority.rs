//! Work that attackers can cause has a lower priority than the requests of sessions.

use std::fs;

use bellwether_server::{Config, Server};

use crate::until;

/// Name and nice value of each thread of this process.
fn threads() -> Vec<(String, i32)> {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end meanwhile.
    let stats =
        threads.filter_map(|thread| fs::read_to_string(thread.ok()?.path().join("stat")).ok());
    let parse = |stat: String| {
        let (before, after) = stat.rsplit_once(')').unwrap();
        let name = before.split_once('(').unwrap().1.to_owned();
        let nice = after.split_whitespace().nth(16).unwrap().parse().unwrap();
        (name, nice)
    };
    stats.map(parse).collect()
}

#[tokio::test]
async fn new_connections_and_long_reads_have_a_low_priority() {
    let usual = threads()[0].1;
    let low = (usual + 10).min(19);
    let server = Server::start(Config::default()).await.unwrap();
    for (thread, count) in [("door", 1), ("read", 2)] {
        until("the threads have begun", || {
            let threads = threads();
            let of_kind = threads.iter().filter(|(name, _)| name == thread);
            of_kind.filter(|(_, nice)| *nice == low).count() >= count
        })
        .await;
    }
    // What serves sessions keeps its priority.
    for thread in ["writer", "log"] {
        let nice = || threads().into_iter().find(|(name, _)| name == thread);
        // A thread has its name once it has begun.
        until("the thread has begun", || nice().is_some()).await;
        assert_eq!(nice().unwrap().1, usual, "{thread}");
    }
    server.shutdown().await;
}
