//! Calls of recipes as spans of the `tracing` crate: name, path, token and outcome.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use bellwether::blocking::Wait;
use bellwether::inspect::Contention;
use bellwether::state::Instance;
use bellwether::two_phase::Vote;
use bellwether::{
    Barrier, Cache, Client, Config, ConfigFolder, Counter, DelayQueue, DoubleBarrier, Election,
    Group, Lock, MultiLock, Names, PriorityQueue, Queue, ReentrantLock, ReentrantRwLock, RwLock,
    Semaphore, SimpleLock, Tasks, TwoPhase,
};
use bellwether_testkit::BlockedLog;

use crate::support::place::{Place, soon};
use crate::support::spans::{Calls, Ended};

/// Asserts which calls have ended since the last look, each as `name path outcome`.
#[track_caller]
fn assert_calls(calls: &Calls, expected: &[&str]) -> Vec<Ended> {
    let ended = calls.take();
    let shown: Vec<String> = ended.iter().map(ToString::to_string).collect();
    assert_eq!(shown, expected);
    ended
}

#[tokio::test]
async fn locks_elections_and_semaphores_are_spans_with_their_token() {
    let place = Place::embedded().await;
    let client = place.client().await;
    let calls = Calls::install();

    let lock = Lock::new(&client, "/lock").crash_mark();
    let guard = lock.acquire().await.unwrap();
    let token = Some(guard.token().number());
    assert!(lock.try_acquire().await.unwrap().is_none());
    guard.note("halfway").await.unwrap();
    guard.release().await.unwrap();
    assert!(!lock.clear_crash_mark().await.unwrap());
    let ended = assert_calls(
        &calls,
        &[
            "lock.acquire /lock held",
            "lock.try_acquire /lock none",
            "hold.note /lock done",
            "hold.release /lock done",
            "lock.clear_crash_mark /lock no",
        ],
    );
    let tokens: Vec<_> = ended.iter().map(|ended| ended.token).collect();
    assert_eq!(tokens, [token, None, token, token, None]);

    let guard = (lock.acquire_timeout(Duration::from_secs(9)).await).unwrap();
    let waiting = lock.join().await.unwrap();
    guard.release().await.unwrap();
    let guard = waiting.turn().await.unwrap();
    let token = Some(guard.token().number());
    guard.release().await.unwrap();
    let ended = assert_calls(
        &calls,
        &[
            "lock.acquire /lock held",
            "lock.join /lock done",
            "hold.release /lock done",
            "line.turn /lock held",
            "hold.release /lock done",
        ],
    );
    assert_eq!(ended[3].token, token);

    let lock = RwLock::new(&client, "/rwlock");
    let guard = lock.write().await.unwrap().downgrade().await.unwrap();
    let guard = guard.try_upgrade().await.unwrap();
    assert!(lock.try_read().await.unwrap().is_none());
    assert!(lock.try_write().await.unwrap().is_none());
    guard.release().await.unwrap();
    (lock.read().await.unwrap().release().await).unwrap();
    drop(lock.join_write().await.unwrap());
    drop(lock.join_read().await.unwrap());
    assert_calls(
        &calls,
        &[
            "rwlock.write /rwlock held",
            "rwlock.downgrade /rwlock held",
            "rwlock.try_upgrade /rwlock held",
            "rwlock.try_read /rwlock none",
            "rwlock.try_write /rwlock none",
            "hold.release /rwlock done",
            "rwlock.read /rwlock held",
            "hold.release /rwlock done",
            "rwlock.join_write /rwlock done",
            "rwlock.join_read /rwlock done",
        ],
    );

    let semaphore = Semaphore::new(&client, "/permits", 2);
    let permit = semaphore.acquire_many(2).await.unwrap();
    assert!(semaphore.try_acquire().await.unwrap().is_none());
    semaphore.set_limit(3).await.unwrap();
    assert_eq!(semaphore.limit().await.unwrap(), 3);
    drop(semaphore.join().await.unwrap());
    permit.release().await.unwrap();
    assert_calls(
        &calls,
        &[
            "semaphore.acquire /permits held",
            "semaphore.try_acquire /permits none",
            "semaphore.set_limit /permits done",
            "semaphore.limit /permits done",
            "semaphore.join /permits done",
            "hold.release /permits done",
        ],
    );

    let election = Election::new(&client, "/election");
    let leadership = election.campaign().await.unwrap();
    let token = Some(leadership.token().number());
    leadership.set_value("here").await.unwrap();
    assert!(election.leader().await.unwrap().is_some());
    assert_eq!(election.candidates().await.unwrap().len(), 1);
    assert!(election.try_campaign().await.unwrap().is_none());
    drop(election.join().await.unwrap());
    leadership.resign().await.unwrap();
    let ended = assert_calls(
        &calls,
        &[
            "election.campaign /election held",
            "election.set_value /election done",
            "election.leader /election found",
            "election.candidates /election done",
            "election.try_campaign /election none",
            "election.join /election done",
            "hold.release /election done",
        ],
    );
    assert_eq!((ended[0].token, ended[1].token), (token, token));
}

#[tokio::test]
async fn locks_made_of_locks_are_spans_around_theirs() {
    let place = Place::embedded().await;
    let client = place.client().await;
    let calls = Calls::install();

    let all = MultiLock::new(["/b", "/a"].map(|path| Lock::new(&client, path)));
    let guard = all.acquire().await.unwrap();
    assert!(all.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert_calls(
        &calls,
        &[
            "lock.acquire /a held",
            "lock.acquire /b held",
            "multi_lock.acquire /a /b done",
            "lock.try_acquire /a none",
            "multi_lock.try_acquire /a /b none",
            "hold.release /b done",
            "hold.release /a done",
            "multi_lock.release /a /b done",
        ],
    );

    let lock = ReentrantLock::new(Lock::new(&client, "/again"));
    let outer = lock.acquire().await.unwrap();
    let inner = lock.acquire().await.unwrap();
    drop((outer, inner));
    let lock = ReentrantRwLock::new(RwLock::new(&client, "/both"));
    drop(lock.read().await.unwrap());
    drop(lock.write().await.unwrap());
    let lock = SimpleLock::new(&client, "/simple");
    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert_calls(
        &calls,
        &[
            "reentrant_lock.acquire /again held",
            "reentrant_lock.acquire /again held",
            "reentrant_rwlock.read /both held",
            "reentrant_rwlock.write /both held",
            "simple_lock.acquire /simple held",
            "simple_lock.try_acquire /simple none",
            "hold.release /simple done",
        ],
    );
}

#[tokio::test]
async fn barriers_queues_and_tasks_are_spans() {
    let place = Place::embedded().await;
    let client = place.client().await;
    let calls = Calls::install();

    let barrier = Barrier::new(&client, "/barrier");
    assert!(barrier.set().await.unwrap());
    assert!(barrier.set_by().await.unwrap().is_some());
    assert!(barrier.lift().await.unwrap());
    barrier.wait().await.unwrap();
    let double = DoubleBarrier::new(&client, "/double", 1);
    let inside = double.enter().await.unwrap();
    let token = Some(inside.token().number());
    double.members().await.unwrap();
    inside.leave().await.unwrap();
    let ended = assert_calls(
        &calls,
        &[
            "barrier.set /barrier yes",
            "barrier.set_by /barrier found",
            "barrier.lift /barrier yes",
            "barrier.wait /barrier done",
            "double_barrier.enter /double held",
            "double_barrier.members /double done",
            "hold.release /double done",
            "double_barrier.leave /double done",
        ],
    );
    assert_eq!((ended[4].token, ended[7].token), (token, token));

    let queue = Queue::<String>::new(&client, "/queue");
    queue.put(&"one".to_owned()).await.unwrap();
    queue.put_all(&["two".to_owned()]).await.unwrap();
    let claim = queue.take().await.unwrap();
    let token = Some(claim.token().number());
    claim.ack().await.unwrap();
    let claim = queue.try_take().await.unwrap().unwrap();
    claim.reject("no").await.unwrap();
    assert!(queue.try_take().await.unwrap().is_none());
    let letters = queue.dead_letters().await.unwrap();
    assert!(queue.revive(&letters[0]).await.unwrap());
    assert_eq!(queue.depth().await.unwrap().items, 1);
    let ended = assert_calls(
        &calls,
        &[
            "queue.put /queue done",
            "queue.put_all /queue done",
            "queue.take /queue held",
            "queue.ack /queue done",
            "queue.try_take /queue held",
            "queue.reject /queue done",
            "queue.try_take /queue none",
            "queue.dead_letters /queue done",
            "queue.revive /queue yes",
            "queue.depth /queue done",
        ],
    );
    assert_eq!((ended[2].token, ended[3].token), (token, token));

    let queue = PriorityQueue::<String>::new(&client, "/ranks");
    queue.put(3, &"one".to_owned()).await.unwrap();
    let queue = DelayQueue::<String>::new(&client, "/times");
    let delay = Duration::from_secs(60);
    (queue.put_after(delay, &"later".to_owned()).await).unwrap();
    let tasks = Tasks::<String>::new(&client, "/tasks");
    assert!(tasks.add("a", &"work".to_owned()).await.unwrap());
    let task = tasks.take().await.unwrap().unwrap();
    let token = Some(task.token().number());
    task.done_with("result").await.unwrap();
    assert!(tasks.result("a").await.unwrap().is_some());
    assert_eq!(tasks.counts().await.unwrap().done, 1);
    let ended = assert_calls(
        &calls,
        &[
            "queue.put /ranks done",
            "queue.put /times done",
            "tasks.add /tasks yes",
            "tasks.take /tasks held",
            "tasks.done /tasks done",
            "tasks.result /tasks found",
            "tasks.counts /tasks done",
        ],
    );
    assert_eq!((ended[3].token, ended[4].token), (token, token));
}

#[tokio::test]
async fn transactions_and_shared_state_are_spans() {
    let place = Place::embedded().await;
    let client = place.client().await;
    let calls = Calls::install();
    transactions(&client, &calls).await;
    values(&client, &calls).await;
    members(&client, &calls).await;
}

async fn transactions(client: &Client, calls: &Calls) {
    let all = TwoPhase::new(client, "/transfers");
    let mut coordinator = all.begin_as("t1", ["bank"], "payload").await.unwrap();
    let mut participation = all.transaction("t1").join("bank").await.unwrap();
    participation.vote(Vote::Commit).await.unwrap();
    coordinator.decide().await.unwrap();
    participation.decision().await.unwrap();
    participation.applied().await.unwrap();
    all.transaction("t1").decision().await.unwrap();
    all.transaction("t1").forget().await.unwrap();
    assert_calls(
        calls,
        &[
            "transaction.begin /transfers done",
            "transaction.join /transfers/t1 done",
            "transaction.vote /transfers/t1 done",
            "transaction.decide /transfers/t1 commit",
            "transaction.decision /transfers/t1 commit",
            "transaction.applied /transfers/t1 done",
            "transaction.decision /transfers/t1 commit",
            "transaction.status /transfers/t1 done",
            "transaction.forget /transfers/t1 done",
        ],
    );
}

async fn values(client: &Client, calls: &Calls) {
    let counter = Counter::new(client, "/counter");
    counter.add(2).await.unwrap();
    assert!(!counter.compare_and_set(1, 5).await.unwrap());
    assert_eq!(counter.get().await.unwrap(), 2);
    let config = Config::<String>::new(client, "/config");
    assert!(config.get().await.unwrap().is_none());
    assert!(config.create(&"a".to_owned()).await.unwrap());
    config.set(&"b".to_owned()).await.unwrap();
    drop(config.live().await.unwrap());
    assert!(config.delete().await.unwrap());
    let folder = ConfigFolder::new(client, "/folder");
    let edit = |entries: &mut bellwether::state::Entries| {
        entries.insert("key".to_owned(), b"value".to_vec());
    };
    folder.update(edit).await.unwrap();
    folder.get().await.unwrap();
    drop(Cache::new(client, "/folder").open().await.unwrap());
    assert_calls(
        calls,
        &[
            "counter.add /counter done",
            "counter.compare_and_set /counter no",
            "counter.get /counter done",
            "config.get /config none",
            "config.create /config yes",
            "config.set /config done",
            "config.live /config done",
            "config.delete /config yes",
            "config_folder.update /folder done",
            "config_folder.get /folder done",
            "cache.open /folder done",
        ],
    );
}

async fn members(client: &Client, calls: &Calls) {
    let group = Group::new(client, "/group");
    let member = group.join_as("m", "data").await.unwrap();
    member.update("other").await.unwrap();
    group.members().await.unwrap();
    member.leave().await;
    let names = Names::new(client, "/names");
    let member = names.register("a", "here").await.unwrap();
    assert!(names.resolve("a").await.unwrap().is_some());
    member.leave().await;
    let instance = Instance::new("127.0.0.1:1");
    let member = names.announce("web", &instance).await.unwrap();
    assert_eq!(names.instances("web").await.unwrap().len(), 1);
    assert_calls(
        calls,
        &[
            "group.join /group done",
            "group.update /group/m done",
            "group.members /group done",
            "group.leave /group/m done",
            "group.join /names done",
            "names.register /names done",
            "config.get /names/a found",
            "names.resolve /names found",
            "group.leave /names/a done",
            "group.join /names/web done",
            "names.announce /names done",
            "group.members /names/web done",
            "names.instances /names done",
        ],
    );
    drop(member);
}

#[tokio::test]
async fn failed_and_cancelled_calls_say_so() {
    let place = Place::embedded().await;
    let client = place.client().await;
    let lock = Lock::new(&client, "/lock");
    let guard = lock.acquire().await.unwrap();
    let calls = Calls::install();

    let limit = Duration::from_millis(50);
    lock.acquire_timeout(limit).await.unwrap_err();
    let ended = assert_calls(&calls, &["lock.acquire /lock failed"]);
    let error = ended[0].error.as_deref().unwrap();
    assert!(error.contains("/lock") && error.contains("50ms"), "{error}");

    Lock::new(&client, "no path").acquire().await.unwrap_err();
    let ended = assert_calls(&calls, &["lock.acquire no path failed"]);
    // With its source.
    let error = ended[0].error.as_deref().unwrap();
    assert!(error.matches(": ").count() >= 1, "{error}");

    {
        let mut acquiring = Box::pin(lock.acquire());
        assert!(futures_util::poll!(&mut acquiring).is_pending());
    }
    assert_calls(&calls, &["lock.acquire /lock cancelled"]);

    let contention = Contention::new(&client, "/lock");
    let (node, token) = (guard.node().to_owned(), guard.token());
    contention.break_hold(&node, token, limit).await.unwrap();
    soon(guard.lost()).await;
    guard.release().await.unwrap_err();
    let ended = assert_calls(
        &calls,
        &[
            "contention.break_hold /lock done",
            "hold.release /lock failed",
        ],
    );
    assert_eq!(ended[1].token, Some(token.number()));
}

/// The steps of a call run on the thread of the sessions, where a span could block.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriber_that_blocks_on_a_call_stops_no_session() {
    let place = Place::embedded().await;
    let client = place.client().await;
    let kept = Lock::new(&client, "/kept").acquire().await.unwrap();
    let log = BlockedLog::install("bellwether", "/blocked").unwrap();
    let blocked = {
        let lock = Lock::new(&client, "/blocked");
        std::thread::spawn(move || lock.acquire().wait())
    };
    soon(log.blocks()).await;
    // Another call passes, through the same session.
    let other = Lock::new(&client, "/other").acquire().await.unwrap();
    assert!(kept.is_held() && other.is_held());
    drop(log);
    let guard = tokio::task::spawn_blocking(|| blocked.join())
        .await
        .unwrap();
    drop(guard.unwrap().unwrap());
}

/// `docs/traces.md` lists the calls that there are.
#[test]
fn page_lists_every_span() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut spans = BTreeSet::new();
    let mut folders = vec![crate_folder.join("src")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let source = std::fs::read_to_string(path).unwrap();
            let names = source.split("call!(").skip(1);
            let names =
                names.filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
            spans.extend(names.map(str::to_owned));
        }
    }
    let page = std::fs::read_to_string(crate_folder.join("../../docs/traces.md")).unwrap();
    let rows = page.lines().filter(|line| line.starts_with("| `"));
    let listed = rows.flat_map(|row| row.split('`').skip(1).step_by(2));
    let listed: BTreeSet<String> = listed
        .filter(|name| name.contains('.'))
        .map(str::to_owned)
        .collect();
    assert_eq!(listed, spans, "left: docs/traces.md, right: what there is");
}
