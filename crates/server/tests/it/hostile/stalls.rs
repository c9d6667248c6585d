//! Requests that take long do not delay other clients.

use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bellwether_server::{Config, Server};
use bellwether_testkit::{Body, Frame, HeldDisk, RawClient, Request, WatchEvent, WatchLists};

use crate::{data, ok, until};

/// Number of nodes that makes a request take long.
const NODES: usize = 20_000;

/// Number of timed pings.
const TIMED: usize = 20;

/// Maximum latency of a ping while long requests run. Those of these tests take many seconds.
const WAIT_MAX: Duration = Duration::from_millis(100);

/// How many pings may take longer, and how long: another program may preempt the thread in the middle of one.
const LATE_MAX: usize = 2;
const LATE_WAIT_MAX: Duration = Duration::from_millis(500);

/// Maximum latency of an idle server on a machine that is not busy. If it takes longer, the machine is busy, and the measurement is
/// discarded.
const IDLE_MAX: Duration = Duration::from_millis(20);

/// How often a discarded measurement is repeated.
const REPEATS_MAX: usize = 200;

/// An idle server, as a reference.
struct Control {
    client: RawClient,
    _server: Server,
}

impl Control {
    async fn new() -> Self {
        let server = Server::start(config()).await.unwrap();
        let client = RawClient::connect(server.addresses()[0]).await.unwrap();
        Self {
            client,
            _server: server,
        }
    }

    /// Lets `client` write and ping repeatedly, and checks that pings are slow only when those of the idle server are slow too. A write
    /// waits for the disk, which may take any time: it only has to be answered.
    async fn check_waits(&mut self, client: &mut RawClient) {
        let (mut timed, mut late, mut repeats) = (0, 0, 0);
        while timed < TIMED {
            ok(client, Request::set_data("/", "x")).await;
            let is_over = Cell::new(false);
            let busy = async {
                let took = ping(client).await;
                is_over.set(true);
                took
            };
            let idle = async {
                let mut longest = Duration::ZERO;
                while !is_over.get() {
                    longest = ping(&mut self.client).await.max(longest);
                }
                longest
            };
            let (busy, idle) = tokio::join!(busy, idle);
            if busy >= WAIT_MAX && idle > IDLE_MAX {
                repeats += 1;
                assert!(repeats < REPEATS_MAX, "the machine is too busy to tell");
                continue;
            }
            timed += 1;
            late += usize::from(busy >= WAIT_MAX);
            assert!(
                late <= LATE_MAX && busy < LATE_WAIT_MAX,
                "a ping took {busy:?}, on an idle server {idle:?}, and {late} took too long"
            );
        }
    }
}

/// No session expires by itself.
fn config() -> Config {
    Config {
        tick: Duration::from_secs(60),
        ..Config::default()
    }
}

/// Latency of a ping of `client`.
async fn ping(client: &mut RawClient) -> Duration {
    let asked = Instant::now();
    ok(client, Request::Ping).await;
    asked.elapsed()
}

/// A server with many nodes below `/wide`, and a client of it.
struct Stage {
    server: Server,
    disk: HeldDisk,
    client: RawClient,
    control: Control,
}

impl Stage {
    async fn new() -> Self {
        let disk = HeldDisk::new();
        let held = Arc::new(disk.clone());
        let builder = Server::builder().config(config()).disks(held.clone(), held);
        let server = builder.start().await.unwrap();
        let client = RawClient::connect(server.addresses()[0]).await.unwrap();
        let mut stage = Self {
            server,
            disk,
            client,
            control: Control::new().await,
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

    /// Lets a client send `requests` at once, the first of them a write that all others wait for, and checks that another client does not
    /// wait. Returns the client, which has read nothing.
    async fn nobody_waits_for(&mut self, requests: &[Request]) -> RawClient {
        let mut greedy = self.connect().await;
        self.disk.hold();
        greedy.send_all(requests).await.unwrap();
        let hooks = self.server.hooks();
        let count = requests.len() as u64;
        until("all requests wait", || hooks.outstanding() == count).await;
        self.disk.release();
        self.control.check_waits(&mut self.client).await;
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

/// Each of these is refused in the end because its results are too large, but computing that takes long.
fn long_reads(count: usize) -> Vec<Request> {
    let lists = vec![Request::get_children("/wide"); 100];
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
    let mut greedy = stage.connect().await;
    greedy.send_all(&long_reads(200)).await.unwrap();
    let hooks = stage.server.hooks();
    until("one is under way", || hooks.outstanding() == 1).await;
    stage.control.check_waits(&mut stage.client).await;
    assert!(hooks.outstanding() <= 1, "more than one at a time");
    until("another is under way", || hooks.outstanding() == 1).await;
}

/// The slow reply keeps its place: before the event of its watch, and before replies to later requests.
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

/// A transaction of a megabyte that creates and deletes the statistics of a quota repeatedly.
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

/// Many watches are armed in parts, and writes pass between two parts. Whenever a node is created meanwhile, the client receives one event: none
/// falls between check and watch.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_pass_while_many_watches_are_armed_and_no_event_is_lost() {
    const WATCHES: usize = 80_000;
    let path = |number: usize| format!("/x{number}");
    let mut stage = Stage::new().await;
    ok(&mut stage.client, Request::create("/first", "")).await;
    let mut watcher = stage.connect().await;
    let lists = WatchLists {
        // In the future: the event of `/first` cannot be one that was missed.
        relative_zxid: i64::MAX,
        data: vec!["/first".to_owned()],
        exist: (0..WATCHES).map(path).collect(),
        ..WatchLists::default()
    };
    let is_answered = Cell::new(false);
    let rearming = async {
        watcher.send(&Request::SetWatches2(lists)).await.unwrap();
        let mut before_reply = Vec::new();
        loop {
            match watcher.receive_or_close().await.unwrap().unwrap() {
                Frame::Event(event) => before_reply.push(event),
                Frame::Reply(reply) => {
                    reply.ok().unwrap();
                    break;
                }
            }
        }
        is_answered.set(true);
        before_reply
    };
    let writing = async {
        let mut created = Vec::new();
        for number in (0..WATCHES).rev().step_by(WATCHES / 500) {
            if is_answered.get() {
                break;
            }
            ok(&mut stage.client, Request::set_data("/first", "x")).await;
            ok(&mut stage.client, Request::create(path(number), "")).await;
            created.push(path(number));
        }
        created
    };
    let (mut events, mut created) = tokio::join!(rearming, writing);
    let is_change = |event: &WatchEvent| event.path == "/first";
    assert!(
        events.iter().any(is_change),
        "no write passed before all watches were armed"
    );
    // All are armed: what was not created yet is reported too.
    ok(&mut stage.client, Request::create("/x1", "")).await;
    created.push("/x1".to_owned());
    while events.last().is_none_or(|event| event.path != "/x1") {
        match watcher.receive_or_close().await.unwrap().unwrap() {
            Frame::Event(event) => events.push(event),
            Frame::Reply(reply) => panic!("unexpected {reply:?}"),
        }
    }
    assert_eq!(events.iter().filter(|event| is_change(event)).count(), 1);
    let mut seen: Vec<String> = events.into_iter().map(|event| event.path).collect();
    seen.retain(|path| path != "/first");
    seen.sort();
    created.sort();
    assert_eq!(seen, created);
}
