//! Requests that take long: the other clients do not wait for them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_server::{Config, Server};
use bellwether_testkit::{Body, Frame, HeldDisk, RawClient, Request};

use crate::{data, ok, until};

/// The nodes that make a request take long.
const NODES: usize = 20_000;

/// How many requests of each kind are timed.
const TIMED: usize = 20;

/// How long a client may wait for a short request while long ones are under way. Those of these tests take many
/// seconds; the rest of the bound is for machines that are busy with other things.
const WAIT_MAX: Duration = Duration::from_millis(500);

/// How much longer than on an idle server it may wait in any case.
const RATIO_MAX: u32 = 20;

/// The longest that `client` waits for a ping, and for a write.
async fn longest_waits(client: &mut RawClient) -> [Duration; 2] {
    let mut longest = [Duration::ZERO; 2];
    for _ in 0..TIMED {
        let requests = [Request::Ping, Request::set_data("/", "x")];
        for (longest, request) in longest.iter_mut().zip(requests) {
            let asked = Instant::now();
            ok(client, request).await;
            *longest = asked.elapsed().max(*longest);
        }
    }
    longest
}

fn assert_not_longer(idle: [Duration; 2], busy: [Duration; 2]) {
    for (what, idle, busy) in [("ping", idle[0], busy[0]), ("write", idle[1], busy[1])] {
        let limit = WAIT_MAX.max(idle * RATIO_MAX);
        assert!(busy < limit, "a {what} took {busy:?}, idle {idle:?}");
    }
}

/// A server with many nodes below `/wide`, and a client of it.
struct Stage {
    server: Server,
    disk: HeldDisk,
    client: RawClient,
}

impl Stage {
    async fn new() -> Self {
        let disk = HeldDisk::new();
        let config = Config {
            // No session ends by itself.
            tick: Duration::from_secs(60),
            ..Config::default()
        };
        let held = Arc::new(disk.clone());
        let builder = Server::builder().config(config).disks(held.clone(), held);
        let server = builder.start().await.unwrap();
        let client = RawClient::connect(server.addresses()[0]).await.unwrap();
        let mut stage = Self {
            server,
            disk,
            client,
        };
        stage.fill().await;
        stage
    }

    async fn fill(&mut self) {
        ok(&mut self.client, Request::create("/wide", "")).await;
        let nodes: Vec<_> = (0..NODES)
            .map(|number| Request::create(format!("/wide/{number}"), "x"))
            .collect();
        for some in nodes.chunks(2000) {
            ok(&mut self.client, Request::Multi(some.to_vec())).await;
        }
    }

    async fn connect(&self) -> RawClient {
        let address = self.server.addresses()[0];
        RawClient::connect(address).await.unwrap()
    }

    /// Has a client send `requests` at once, the first of them a write that all others wait for, and checks that
    /// another client waits no longer than on an idle server. Returns the client, which has read nothing.
    async fn nobody_waits_for(&mut self, requests: &[Request]) -> RawClient {
        let mut greedy = self.connect().await;
        let idle = longest_waits(&mut self.client).await;
        self.disk.hold();
        greedy.send_all(requests).await.unwrap();
        let hooks = self.server.hooks();
        let count = requests.len() as u64;
        until("all requests wait", || hooks.outstanding() == count).await;
        self.disk.release();
        let busy = longest_waits(&mut self.client).await;
        assert_not_longer(idle, busy);
        greedy
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_while_nodes_are_counted_behind_a_write() {
    let mut stage = Stage::new().await;
    let path = "/wide".to_owned();
    let mut requests = vec![Request::set_data("/wide", "")];
    requests.extend(vec![Request::GetAllChildrenNumber { path }; 999]);
    let mut greedy = stage.nobody_waits_for(&requests).await;
    greedy.receive_reply().await.unwrap();
    for _ in 0..999 {
        let reply = greedy.receive_reply().await.unwrap();
        let count = i32::try_from(NODES).unwrap();
        assert_eq!(reply.ok().unwrap(), Body::Count(count));
    }
}

/// Each of these is refused in the end, for its results are too many, but that takes its time.
fn long_reads(count: usize) -> Vec<Request> {
    let lists = vec![Request::get_children("/wide"); 500];
    vec![Request::MultiRead(lists); count]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_long_reads_behind_a_write_and_those_of_a_lost_connection_are_skipped() {
    let mut stage = Stage::new().await;
    let mut requests = vec![Request::set_data("/wide", "")];
    requests.extend(long_reads(200));
    let greedy = stage.nobody_waits_for(&requests).await;
    let hooks = stage.server.hooks();
    let left = hooks.outstanding();
    assert!(left > 100, "only {left} are left: they did not take long");
    drop(greedy);
    until("nothing waits", || hooks.outstanding() == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_long_reads_of_a_connection_that_only_reads() {
    let mut stage = Stage::new().await;
    let idle = longest_waits(&mut stage.client).await;
    let mut greedy = stage.connect().await;
    greedy.send_all(&long_reads(200)).await.unwrap();
    let hooks = stage.server.hooks();
    until("one is under way", || hooks.outstanding() == 1).await;
    let busy = longest_waits(&mut stage.client).await;
    assert_not_longer(idle, busy);
    assert!(hooks.outstanding() <= 1, "more than one at a time");
    until("another is under way", || hooks.outstanding() == 1).await;
}

/// The reply that takes long keeps its place: before the event of its watch, and before what was asked later.
#[tokio::test]
async fn long_reads_are_answered_in_order() {
    let mut stage = Stage::new().await;
    stage.disk.hold();
    let requests = [
        Request::set_data("/", "x"),
        Request::get_children("/wide").watching(),
        Request::create("/wide/new", ""),
        Request::get_children("/wide"),
        Request::get_data("/wide/new"),
        Request::CloseSession,
    ];
    stage.client.send_all(&requests).await.unwrap();
    let hooks = stage.server.hooks();
    until("all wait", || hooks.outstanding() == 6).await;
    stage.disk.release();
    let mut seen = Vec::new();
    while let Some(frame) = stage.client.receive_or_close().await.unwrap() {
        seen.push(match frame {
            Frame::Event(event) => format!("{:?}", event.kind),
            Frame::Reply(reply) => match reply.ok().unwrap() {
                Body::Children(names) => format!("{} children", names.len()),
                Body::Path(path) => path,
                Body::DataStat(..) => "data".to_owned(),
                Body::Stat(_) => "set".to_owned(),
                _ => "closed".to_owned(),
            },
        });
    }
    let [before, after] = [NODES, NODES + 1].map(|count| format!("{count} children"));
    let expected = [
        "set",
        &before,
        "NodeChildrenChanged",
        "/wide/new",
        &after,
        "data",
        "closed",
    ];
    assert_eq!(seen, expected);
}

/// A transaction of a megabyte that makes and removes the statistics of a quota again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_statistics_of_quotas() {
    let mut stage = Stage::new().await;
    ok(
        &mut stage.client,
        Request::create("/zookeeper/quota/wide", ""),
    )
    .await;
    let stats = "/zookeeper/quota/wide/zookeeper_stats";
    let pair = [Request::create(stats, ""), Request::delete(stats)];
    let pairs = Request::Multi(vec![pair; 4000].concat());
    let mut greedy = stage.nobody_waits_for(&[pairs]).await;
    let body = greedy.receive_reply().await.unwrap().ok().unwrap();
    let Body::Multi(results) = body else {
        panic!("not the reply to a multi: {body:?}");
    };
    assert_eq!(results.len(), 8000);
    ok(&mut stage.client, Request::create(stats, "")).await;
    let usage = data(&mut stage.client, stats).await.unwrap();
    let expected = format!("count={},bytes={NODES}", NODES + 1);
    assert_eq!(String::from_utf8(usage).unwrap(), expected);
}
