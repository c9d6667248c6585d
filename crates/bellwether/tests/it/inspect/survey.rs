//! All recipes in use below a path, seen from outside.

use std::time::Duration;

use bellwether::inspect::{Overview, QueueEntry, Recipe, Survey};
use bellwether::line::Layout;
use bellwether::{
    Barrier, Client, DoubleBarrier, Election, ErrorKind, Lock, Queue, RwLock, Semaphore,
    SimpleLock, Tasks, TwoPhase, zk,
};
use bellwether_wire::op::Op;

use crate::line::counts::{LONG, requests};
use crate::support::place::{Place, soon};

on_both_engines! {
    every_kind_of_line_is_seen_for_what_it_is,
    barriers_queues_and_tasks_are_seen_with_their_numbers,
    lines_of_other_libraries_are_seen_for_what_they_are,
    names_alone_make_no_queue,
    tasks_may_have_numbers_for_names,
    crash_is_seen_when_the_holder_is_gone,
    what_may_not_be_read_is_told,
    line_whose_holder_leaves_between_list_and_read_is_looked_at_again,
    more_than_can_be_looked_at_gives_what_was_found,
    only_lines_with_waiters_are_read_to_follow_a_chain,
    one_look_at_some_paths_reads_nothing_beside_them,
    survey_without_a_session_at_its_end_leaves_no_transaction_out,
    many_lines_cost_a_list_each_and_a_read_for_everybody_with_few_under_way,
}

/// Error code of a missing node.
const NO_NODE: i32 = -101;

async fn survey(client: &Client, path: &str) -> Overview {
    soon(Survey::new(client, path).look()).await.unwrap()
}

fn text(sight: &Recipe) -> String {
    let names = |list: Vec<&QueueEntry>| list.len();
    match sight {
        Recipe::Line(line) => format!(
            "{:?} {:?} {}+{}",
            line.layout,
            line.kind,
            names(line.holders().collect()),
            names(line.waiters().collect())
        ),
        Recipe::Barrier { set_by, .. } => {
            format!("barrier {:?}", set_by.as_ref().unwrap().message)
        }
        Recipe::DoubleBarrier(members) => {
            format!("{} of {}", members.here.len(), members.size)
        }
        Recipe::Queue(queue) => format!(
            "queue {}/{}/{} {}",
            queue.depth.items, queue.depth.claimed, queue.depth.dead, queue.consumers
        ),
        Recipe::Tasks { counts, claims } => format!(
            "tasks {}/{}/{}/{} {}",
            counts.open,
            counts.running,
            counts.done,
            counts.failed,
            claims.len()
        ),
        _ => String::new(),
    }
}

fn texts(overview: &Overview) -> Vec<(&str, String)> {
    let sights = overview.recipes.iter();
    sights
        .map(|sight| (sight.path.as_str(), text(&sight.what)))
        .collect()
}

async fn every_kind_of_line_is_seen_for_what_it_is(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, "/app/lock").message("first");
    let _lock = lock.acquire().await.unwrap();
    let _waiter = tokio::spawn(async move { lock.acquire().await });
    let shared = RwLock::new(&client, "/app/shared");
    let _read = (shared.read().await.unwrap(), shared.read().await.unwrap());
    let shared = shared.owner("writer");
    let _writer = tokio::spawn(async move { shared.write().await });
    let permits = Semaphore::new(&client, "/app/permits", 2);
    let _permit = permits.acquire().await.unwrap();
    let election = Election::new(&client, "/app/leader");
    let _leader = election.campaign().await.unwrap();
    let _simple = SimpleLock::new(&client, "/app/plain")
        .acquire()
        .await
        .unwrap();
    place.until_children("/app/lock", 2).await;
    place.until_children("/app/shared", 3).await;
    let overview = survey(&client, "/").await;
    assert_eq!(
        texts(&overview),
        [
            ("/app/leader", "Bellwether Election 1+0".to_owned()),
            ("/app/lock", "Bellwether Lock 1+1".to_owned()),
            ("/app/permits", "Bellwether Semaphore 1+0".to_owned()),
            ("/app/plain", "Bellwether SimpleLock 1+0".to_owned()),
            ("/app/shared", "Bellwether RwLock 2+1".to_owned()),
        ]
    );
    let Recipe::Line(line) = &overview.recipes[1].what else {
        panic!("{overview:?}");
    };
    let holder = &line.entries[0];
    assert_eq!(holder.path, format!("/app/lock/{}", holder.node));
    assert_eq!(
        holder.who.as_ref().unwrap().message.as_deref(),
        Some("first")
    );
    let Recipe::Line(line) = &overview.recipes[2].what else {
        panic!("{overview:?}");
    };
    assert_eq!(line.limit, Some(2));
    let waits = overview.waits();
    assert_eq!(waits.len(), 2, "one waits for two readers: {waits:?}");
    assert!(waits.iter().all(|wait| wait.owner == "writer"));
}

async fn barriers_queues_and_tasks_are_seen_with_their_numbers(place: Place) {
    let client = place.client().await;
    let barrier = Barrier::new(&client, "/app/gate").message("migration");
    barrier.set().await.unwrap();
    let step = DoubleBarrier::new(&client, "/app/step", 3);
    let _entering = tokio::spawn(async move { step.enter().await.map(drop) });
    let queue = Queue::<String>::new(&client, "/app/queue");
    for item in ["a", "b", "c"] {
        queue.put(&item.to_owned()).await.unwrap();
    }
    queue.take().await.unwrap().reject("no").await.unwrap();
    let _claim = queue.take().await.unwrap();
    let tasks = Tasks::<String>::new(&client, "/app/tasks");
    for task in ["a", "b", "c"] {
        tasks.add(task, &String::new()).await.unwrap();
    }
    tasks.take().await.unwrap().unwrap().done().await.unwrap();
    let _task = tasks.take().await.unwrap();
    let empty = Queue::<String>::new(&client, "/app/empty");
    empty.put(&String::new()).await.unwrap();
    empty.take().await.unwrap().ack().await.unwrap();
    let _consumer = tokio::spawn(async move { empty.take().await.map(drop) });
    place.until_children("/app/step/members", 1).await;
    place.until_children("/app/empty/line", 1).await;
    let overview = survey(&client, "/app").await;
    assert_eq!(
        texts(&overview),
        [
            ("/app/empty", "queue 0/0/0 1".to_owned()),
            ("/app/gate", "barrier Some(\"migration\")".to_owned()),
            ("/app/queue", "queue 2/1/1 0".to_owned()),
            ("/app/step", "1 of 3".to_owned()),
            ("/app/tasks", "tasks 1/1/1/0 1".to_owned()),
        ]
    );
}

/// Nodes as other libraries create them; the interop tests show that they do.
async fn lines_of_other_libraries_are_seen_for_what_they_are(place: Place) {
    let client = place.client().await;
    let outside = place.outside();
    let access = [zk::Acl::open()];
    let kept = zk::CreateMode::Persistent.with_acl(access.clone());
    let ephemeral = zk::CreateMode::Ephemeral.with_acl(access.clone());
    let curator = Lock::new(&client, "/a/mutex").layout(Layout::Curator);
    let _mutex = curator.acquire().await.unwrap();
    let _write = RwLock::new(&client, "/a/shared")
        .layout(Layout::Kazoo)
        .read()
        .await
        .unwrap();
    let permits = ["/a/permits", "/a/permits/leases", "/a/permits/locks"];
    let dirs = ["/a/latch", "/a/leases", "/a/leases-__lock__"];
    for path in dirs.into_iter().chain(permits) {
        let data = if path == "/a/leases" { "1" } else { "" };
        outside.create(path, data.as_bytes(), &kept).await.unwrap();
    }
    let latch = "/a/latch/_c_3f0c5d1e-7a43-4f55-9b6e-0d4f8a1b2c3d-latch-0000000000";
    let lease = "/a/leases/3f0c5d1e7a434f559b6e0d4f8a1b2c3d";
    let turn = "/a/leases-__lock__/4f0c5d1e7a434f559b6e0d4f8a1b2c3d__lock__0000000000";
    let permit = "/a/permits/leases/_c_3f0c5d1e-7a43-4f55-9b6e-0d4f8a1b2c3d-lease-0000000000";
    let waiter = "/a/permits/locks/_c_4f0c5d1e-7a43-4f55-9b6e-0d4f8a1b2c3d-lock-0000000000";
    for path in [latch, lease, turn, permit, waiter] {
        outside.create(path, b"me", &ephemeral).await.unwrap();
    }
    let overview = survey(&client, "/").await;
    assert_eq!(
        texts(&overview),
        [
            ("/a/latch", "Curator Election 1+0".to_owned()),
            ("/a/leases", "Kazoo Semaphore 1+1".to_owned()),
            ("/a/mutex", "Curator Lock 1+0".to_owned()),
            ("/a/permits", "Curator Semaphore 1+1".to_owned()),
            ("/a/shared", "Kazoo RwLock 1+0".to_owned()),
        ]
    );
    let Recipe::Line(line) = &overview.recipes[1].what else {
        panic!("{overview:?}");
    };
    let said = line.entries.iter().map(|one| (&*one.path, &*one.data));
    assert_eq!(
        said.collect::<Vec<_>>(),
        [(lease, b"me".as_slice()), (turn, b"me".as_slice())]
    );
}

async fn names_alone_make_no_queue(place: Place) {
    let client = place.client().await;
    for path in ["/a/dead/lock", "/b/items/lock", "/c/done"] {
        let guard = Lock::new(&client, path).acquire().await.unwrap();
        let seen = survey(&client, "/").await;
        assert_eq!(texts(&seen), [(path, "Bellwether Lock 1+0".to_owned())]);
        guard.release().await.unwrap();
    }
    let queue = Queue::<String>::new(&client, "/queue");
    queue.put(&String::new()).await.unwrap();
    queue.take().await.unwrap().reject("no").await.unwrap();
    drop(queue);
    for part in ["items", "claims", "receipts"] {
        // As the servers do some time after a container became empty.
        let part = format!("/queue/{part}");
        soon(async {
            while place.outside().delete(&part, None).await == Err(zk::Error::NOT_EMPTY) {}
        })
        .await;
    }
    let seen = survey(&client, "/").await;
    assert_eq!(texts(&seen), [("/queue", "queue 0/0/1 0".to_owned())]);
}

async fn tasks_may_have_numbers_for_names(place: Place) {
    let client = place.client().await;
    let tasks = Tasks::<String>::new(&client, "/tasks");
    for name in ["0", "1"] {
        tasks.add(name, &String::new()).await.unwrap();
    }
    let seen = survey(&client, "/").await;
    assert_eq!(texts(&seen), [("/tasks", "tasks 2/0/0/0 0".to_owned())]);
}

async fn crash_is_seen_when_the_holder_is_gone(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, "/crash").crash_mark();
    let guard = lock.acquire().await.unwrap();
    guard.note("half").await.unwrap();
    let crash = |overview: &Overview| match &overview.recipes[..] {
        [sight] => match &sight.what {
            Recipe::Line(line) => line.crash.clone(),
            _ => panic!("{overview:?}"),
        },
        _ => panic!("{overview:?}"),
    };
    assert_eq!(crash(&survey(&client, "/").await), None);
    let token = guard.token();
    drop(guard);
    place.until_children("/crash", 1).await;
    let crash = crash(&survey(&client, "/").await).unwrap();
    assert_eq!(crash.token, Some(token));
    assert_eq!(crash.note.as_deref(), Some(b"half".as_slice()));
}

async fn line_whose_holder_leaves_between_list_and_read_is_looked_at_again(place: Place) {
    let client = place.client().await;
    let guard = Lock::new(&client, "/lock").acquire().await.unwrap();
    let (proxy, looking) = place.proxied(LONG).await;
    let node = guard.node().to_owned();
    let fault = proxy.answer_with(NO_NODE, move |request| {
        request.op == Op::GetData && request.path().is_some_and(|path| path.ends_with(&node))
    });
    let seen = survey(&looking, "/").await;
    soon(fault.happened()).await.unwrap();
    let lock = ("/lock", "Bellwether Lock 1+0".to_owned());
    assert_eq!(texts(&seen), [lock]);
}

async fn survey_without_a_session_at_its_end_leaves_no_transaction_out(place: Place) {
    let transactions = TwoPhase::new(&place.client().await, "/tx");
    let coordinator = transactions.begin(["site"], "").await.unwrap();
    let (proxy, looking) = place.proxied(LONG).await;
    // The status of a transaction begins with a sync. It gets no answer, however often it is sent.
    let lose = || {
        proxy.drop_request_where(|request| {
            request.op == Op::Sync && request.path().is_some_and(|path| path.contains("/tx/"))
        })
    };
    let mut lost: Vec<_> = std::iter::repeat_with(lose).take(1000).collect();
    let survey = Survey::new(&looking, "/");
    let looked = tokio::spawn(async move { survey.look().await });
    // Rules are tried in order.
    soon(lost.remove(0).happened()).await.unwrap();
    soon(looking.close()).await;
    let looked = soon(looked).await.unwrap();
    assert_fails!(looked, ErrorKind::NoSession(_));
    drop(coordinator);
}

async fn more_than_can_be_looked_at_gives_what_was_found(place: Place) {
    let client = place.client().await;
    let mut guards = Vec::new();
    for path in ["/a", "/b", "/c", "/d"] {
        guards.push(Lock::new(&client, path).acquire().await.unwrap());
    }
    // The root, and two of the locks.
    let few = Survey::new(&client, "/").directories_max(3);
    let seen = soon(few.look()).await.unwrap();
    assert_eq!(seen.recipes.len(), 2, "{seen:?}");
    assert!(seen.unexplored >= 2, "{seen:?}");
    let all = survey(&client, "/").await;
    assert_eq!((all.recipes.len(), all.unexplored), (4, 0));
}

async fn only_lines_with_waiters_are_read_to_follow_a_chain(place: Place) {
    let client = place.client().await;
    let mut guards = Vec::new();
    for number in 0..20 {
        let lock = Lock::new(&client, format!("/lone/{number}"));
        guards.push(lock.acquire().await.unwrap());
    }
    let wanted = Lock::new(&client, "/wanted");
    let _holder = wanted.acquire().await.unwrap();
    let _waiter = tokio::spawn(async move { wanted.acquire().await });
    place.until_children("/wanted", 2).await;
    let (proxy, looking) = place.proxied(LONG).await;
    proxy.reset_counts();
    let waits = Survey::new(&looking, "/").only_waits("/lone/7");
    let seen = soon(waits.look()).await.unwrap();
    let expected = [
        ("/lone/7", "Bellwether Lock 1+0".to_owned()),
        ("/wanted", "Bellwether Lock 1+1".to_owned()),
    ];
    assert_eq!(texts(&seen), expected);
    // The data of directories is read; of the contenders, only three.
    assert!(proxy.count(Op::GetData) < 20, "{:?}", proxy.counts());
}

async fn what_may_not_be_read_is_told(place: Place) {
    let client = place.client().await;
    let access = [zk::Acl::open()];
    let outside = place.outside();
    let kept = zk::CreateMode::Persistent.with_acl(access.clone());
    for level in ["/", "/open"] {
        // The first test creates the chroot.
        let _ = outside.create(level, b"", &kept).await;
    }
    Lock::new(&client, "/open/lock")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let secret = zk::Acl::new(zk::acl::CREATE, zk::Id::anyone());
    let hidden = [secret];
    let hidden = zk::CreateMode::Persistent.with_acl(hidden);
    outside.create("/open/hidden", b"", &hidden).await.unwrap();
    let overview = survey(&client, "/").await;
    assert_eq!(overview.unreadable, ["/open/hidden"]);
}

async fn many_lines_cost_a_list_each_and_a_read_for_everybody_with_few_under_way(place: Place) {
    const LINES: usize = 60;
    const DEEP: usize = 10;
    let client = place.client().await;
    for line in 0..LINES {
        let path = format!("/many/{line}");
        Lock::new(&client, &path)
            .acquire()
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        let zk = client.raw();
        let access = [zk::Acl::open()];
        let sequential = zk::CreateMode::EphemeralSequential.with_acl(access.clone());
        let node = format!("{path}/lock-1-{line:x}-");
        let created = (0..DEEP).map(|_| zk.create(&node, b"{\"version\":1}", &sequential));
        for created in created.collect::<Vec<_>>() {
            created.await.unwrap();
        }
    }
    let (proxy, counted) = place.proxied(LONG).await;
    proxy.reset_counts();
    let overview = survey(&counted, "/many").await;
    assert_eq!(overview.recipes.len(), LINES);
    let requests = requests(&proxy);
    let count = |op: Op| requests.get(&format!("{op:?}")).copied().unwrap_or(0);
    assert_eq!(
        (
            count(Op::Sync),
            count(Op::GetChildren2),
            count(Op::GetData),
            requests.len()
        ),
        (1, 1 + LINES, LINES * DEEP, 3),
        "{requests:?}"
    );
    let in_flight = proxy.in_flight_max();
    assert!((2..=128).contains(&in_flight), "{in_flight}");
    tokio::time::timeout(Duration::from_secs(30), client.close())
        .await
        .unwrap();
}

async fn one_look_at_some_paths_reads_nothing_beside_them(place: Place) {
    let client = place.client().await;
    let mut guards = Vec::new();
    for number in 0..20 {
        let lock = Lock::new(&client, format!("/some/{number}"));
        guards.push(lock.acquire().await.unwrap());
    }
    let (proxy, looking) = place.proxied(LONG).await;
    proxy.reset_counts();
    let some = Survey::new(&looking, "/some/3")
        .and("/some/7")
        .and("/some/gone");
    let seen = soon(some.look()).await.unwrap();
    let lock = || "Bellwether Lock 1+0".to_owned();
    assert_eq!(texts(&seen), [("/some/3", lock()), ("/some/7", lock())]);
    let counts = proxy.counts();
    assert_eq!(proxy.count(Op::Sync), 1, "{counts:?}");
    assert_eq!(proxy.count(Op::GetData), 2, "{counts:?}");
}
