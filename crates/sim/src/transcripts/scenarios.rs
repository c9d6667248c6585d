//! What each scenario does. A step is a verb, or what follows from the verb of another client.

use std::pin::pin;
use std::time::Duration;

use bellwether::inspect::{Contention, Survey};
use bellwether::line::Layout;
use bellwether::two_phase::{Form, Vote};
use bellwether::{
    Barrier, Cache, Client, Config, ConfigFolder, Counter, DelayQueue, DoubleBarrier, Election,
    Group, Lock, MultiLock, Names, PriorityQueue, Queue, ReentrantLock, RwLock, Semaphore,
    SimpleLock, Tasks, TwoPhase,
};
use futures_util::StreamExt as _;
use tokio::join;

use super::{Script, pass, settle};

const SECOND: Duration = Duration::from_secs(1);

pub(super) async fn session(script: Script) {
    let client = script.step("connect", script.client()).await;
    script.step("close", client.close()).await;
}

/// Two clients, and a directory that exists.
async fn pair(script: &Script) -> (Client, Client) {
    let (first, second) = (script.client().await, script.client().await);
    let lock = Lock::new(&first, "/jobs/nightly");
    lock.acquire().await.unwrap().release().await.unwrap();
    (first, second)
}

pub(super) async fn lock(script: Script) {
    let (first, second) = (script.client().await, script.client().await);
    let lock = Lock::new(&first, "/jobs/nightly");
    let other = Lock::new(&second, "/jobs/nightly");
    let title = "acquire, when the directories are missing";
    let guard = script.verb(title, lock.acquire()).await;
    guard.release().await.unwrap();

    let guard = script
        .verb("acquire, while nobody holds it", lock.acquire())
        .await;
    script.step("a hold of a second", pass(SECOND)).await;
    script.verb("release", guard.release()).await;

    let guard = script
        .verb("try_acquire, while nobody holds it", lock.try_acquire())
        .await;
    let tried = script
        .verb("try_acquire, while somebody holds it", other.try_acquire())
        .await;
    assert!(tried.is_none());
    let limited = other.acquire_timeout(SECOND);
    script
        .step("acquire_timeout, which runs out", limited)
        .await
        .unwrap_err();
    script
        .step("drop of the guard", async { drop(guard) })
        .await;

    let guard = lock.acquire().await.unwrap();
    let mut waiter = pin!(other.acquire());
    script
        .waits("acquire, behind the holder", &mut waiter)
        .await;
    let turn = async { join!(biased; guard.release(), waiter).1 };
    let guard = script.verb("release, with a waiter", turn).await;

    let mut waiter = Box::pin(lock.acquire());
    script
        .waits("acquire, behind the other holder", &mut waiter)
        .await;
    script
        .step("drop of a future that waits", async { drop(waiter) })
        .await;

    let waiting = lock.join().await.unwrap();
    let third = Lock::new(&script.client().await, "/jobs/nightly");
    let mut last = pin!(third.acquire());
    script
        .waits("acquire, behind the holder and a waiter", &mut last)
        .await;
    let turns = async {
        let (_, turn) = join!(biased; guard.release(), waiting.turn());
        join!(biased; turn.unwrap().release(), last).1
    };
    let title = "release and release, with two waiters";
    drop(script.verb(title, turns).await);
}

pub(super) async fn crash_mark(script: Script) {
    let (first, second) = pair(&script).await;
    let lock = Lock::new(&first, "/jobs/nightly").crash_mark();
    let other = Lock::new(&second, "/jobs/nightly").crash_mark();
    let guard = script
        .verb("acquire, with a crash mark", lock.acquire())
        .await;
    script.verb("note", guard.note("half of it")).await;
    script.verb("release", guard.release()).await;
    let guard = lock.acquire().await.unwrap();
    script
        .step("drop of the guard", async { drop(guard) })
        .await;

    let crashed = lock.acquire().await.unwrap();
    first.close().await;
    let guard = script.verb("acquire, after a crash", other.acquire()).await;
    drop(crashed);
    assert!(format!("{:?}", guard.previous()).starts_with("Crashed"));
    guard.release().await.unwrap();
    script
        .verb("clear_crash_mark", other.clear_crash_mark())
        .await;
}

pub(super) async fn hold(script: Script) {
    let (first, _) = pair(&script).await;
    let guard = Lock::new(&first, "/jobs/nightly").acquire().await.unwrap();
    let write = guard.write().create("/result", "1").commit();
    script.verb("a fenced write: create", write).await;
    let write = guard.write().set("/result", "2", None).commit();
    script.verb("a fenced write: set", write).await;
    script
        .verb(
            "a fenced write: delete",
            guard.write().delete("/result", None).commit(),
        )
        .await;
}

pub(super) async fn foreign_layouts(script: Script) {
    let (client, _) = pair(&script).await;
    for layout in [Layout::Curator, Layout::Kazoo] {
        let lock = Lock::new(&client, "/jobs/nightly").layout(layout);
        let title = format!("acquire, in the layout of {layout:?}");
        let guard = script.verb(&title, lock.acquire()).await;
        script.verb("release", guard.release()).await;
        let lock = RwLock::new(&client, "/jobs/nightly").layout(layout);
        let title = format!("read, in the layout of {layout:?}");
        let guard = script.verb(&title, lock.read()).await;
        guard.release().await.unwrap();
    }
}

pub(super) async fn rwlock(script: Script) {
    let (first, second) = pair(&script).await;
    let lock = RwLock::new(&first, "/jobs/nightly");
    let other = RwLock::new(&second, "/jobs/nightly");
    let reading = script
        .verb("read, while nobody holds it", lock.read())
        .await;
    let also = script.verb("read, beside a reader", other.read()).await;
    script.verb("release of a reader", also.release()).await;
    assert!(
        script
            .verb("try_write, beside a reader", other.try_write())
            .await
            .is_none()
    );
    let writing = script
        .verb("try_upgrade, as the only reader", reading.try_upgrade())
        .await;
    assert!(
        script
            .verb("try_read, beside a writer", other.try_read())
            .await
            .is_none()
    );
    let mut waiter = pin!(other.read());
    script.waits("read, behind a writer", &mut waiter).await;
    let down = async { join!(biased; writing.downgrade(), waiter) };
    let (reading, also) = script.step("downgrade, with a reader behind", down).await;
    let reading = reading.unwrap();
    let mut waiter = pin!(lock.write());
    script.waits("write, behind two readers", &mut waiter).await;
    let turn = async {
        also.unwrap().release().await.unwrap();
        join!(biased; reading.release(), waiter).1
    };
    let writing = script
        .verb("release of both, with a writer behind", turn)
        .await;
    script.verb("release of a writer", writing.release()).await;
    let writing = script
        .verb("write, while nobody holds it", lock.write())
        .await;
    script
        .step("drop of a writer", async { drop(writing) })
        .await;
}

pub(super) async fn semaphore(script: Script) {
    let (first, second) = pair(&script).await;
    let semaphore = Semaphore::new(&first, "/licences", 3);
    let other = Semaphore::new(&second, "/licences", 3);
    let permit = script
        .verb(
            "acquire, when the directory is missing",
            semaphore.acquire(),
        )
        .await;
    let more = script
        .verb("acquire_many, of what is left", semaphore.acquire_many(2))
        .await;
    assert!(
        script
            .verb("try_acquire, when none is left", other.try_acquire())
            .await
            .is_none()
    );
    let mut waiter = pin!(other.acquire());
    script
        .waits("acquire, when none is left", &mut waiter)
        .await;
    let turn = async { join!(biased; permit.release(), waiter).1 };
    let permit = script.verb("release, with a waiter", turn).await;
    script.verb("release", more.release()).await;
    let more = script
        .verb("acquire, when some are left", semaphore.acquire())
        .await;
    script.step("drop of a permit", async { drop(more) }).await;
    script.verb("limit", semaphore.limit()).await;
    script.verb("set_limit", semaphore.set_limit(5)).await;
    permit.release().await.unwrap();
}

pub(super) async fn simple_lock(script: Script) {
    let (first, second) = pair(&script).await;
    let lock = SimpleLock::new(&first, "/jobs/plain");
    let other = SimpleLock::new(&second, "/jobs/plain");
    let guard = script
        .verb("acquire, while nobody holds it", lock.acquire())
        .await;
    assert!(
        script
            .verb("try_acquire, while somebody holds it", other.try_acquire())
            .await
            .is_none()
    );
    let mut waiter = pin!(other.acquire());
    script
        .waits("acquire, while somebody holds it", &mut waiter)
        .await;
    let turn = async { join!(biased; guard.release(), waiter).1 };
    let guard = script.verb("release, with a waiter", turn).await;
    script.verb("release", guard.release()).await;
    let guard = lock.acquire().await.unwrap();
    script
        .step("drop of the guard", async { drop(guard) })
        .await;
}

pub(super) async fn multi_lock(script: Script) {
    let (first, second) = pair(&script).await;
    let paths = ["/accounts/alice", "/accounts/bob"];
    let lock = MultiLock::new(paths.map(|path| Lock::new(&first, path)));
    lock.acquire().await.unwrap().release().await.unwrap();
    let guard = script.verb("acquire, of two", lock.acquire()).await;
    script.verb("release, of two", guard.release()).await;
    let guard = script.verb("try_acquire, of two", lock.try_acquire()).await;
    script.step("drop, of two", async { drop(guard) }).await;
    let other = Lock::new(&second, paths[1]).acquire().await.unwrap();
    let tried = script
        .verb("try_acquire, when one of two is taken", lock.try_acquire())
        .await;
    assert!(tried.is_none());
    other.release().await.unwrap();
}

pub(super) async fn reentrant(script: Script) {
    let (client, _) = pair(&script).await;
    let lock = ReentrantLock::new(Lock::new(&client, "/jobs/nightly"));
    let outer = script.verb("acquire", lock.acquire()).await;
    let inner = script
        .verb("acquire, of what is held", lock.acquire())
        .await;
    script
        .verb("release, of the inner guard", inner.release())
        .await;
    script
        .verb("release, of the outer guard", outer.release())
        .await;
}

pub(super) async fn election(script: Script) {
    let (first, second) = pair(&script).await;
    let election = Election::new(&first, "/leader").value("first");
    let other = Election::new(&second, "/leader").value("second");
    let title = "campaign, when the directory is missing";
    let leading = script.verb(title, election.campaign()).await;
    script.verb("set_value", leading.set_value("busy")).await;
    script.verb("leader", other.leader()).await;
    let mut waiter = pin!(other.campaign());
    script
        .waits("campaign, behind the leader", &mut waiter)
        .await;
    script.verb("candidates", election.candidates()).await;
    let observer = script.client().await;
    let mut leaders = Election::new(&observer, "/leader").observe();
    script.step("observe: the first item", leaders.next()).await;
    let turn = async { join!(biased; leading.resign(), waiter, leaders.next()).1 };
    let leading = script
        .verb("resign, with a candidate and an observer", turn)
        .await;
    script
        .step("drop of the stream of the observer", async {
            drop(leaders)
        })
        .await;
    let mut candidacy = election.candidacy();
    script.step("stand: the first item", candidacy.next()).await;
    let elected = async { join!(biased; leading.resign(), candidacy.next()) };
    let (_, standing) = script
        .step("resign, with a permanent candidate", elected)
        .await;
    drop(standing);
    script
        .step("drop of the candidacy", async { drop(candidacy) })
        .await;
}

pub(super) async fn barrier(script: Script) {
    let (first, second) = pair(&script).await;
    let barrier = Barrier::new(&first, "/gates/open");
    let other = Barrier::new(&second, "/gates/open");
    script.verb("set", barrier.set()).await;
    script.verb("set_by", barrier.set_by()).await;
    let mut waiter = pin!(other.wait());
    script.waits("wait", &mut waiter).await;
    let lifted = async { join!(biased; barrier.lift(), waiter).1 };
    script.verb("lift, with a waiter", lifted).await;
    script.verb("wait, at an open gate", other.wait()).await;
}

pub(super) async fn double_barrier(script: Script) {
    let (first, second) = pair(&script).await;
    let barrier = DoubleBarrier::new(&first, "/rounds", 2);
    let other = DoubleBarrier::new(&second, "/rounds", 2);
    let mut waiter = pin!(barrier.enter());
    script
        .waits("enter, as the first of two", &mut waiter)
        .await;
    script.verb("members", other.members()).await;
    let both = async { join!(biased; other.enter(), waiter) };
    let (other, one) = script.step("enter, as the second of two", both).await;
    let mut leaving = pin!(one.unwrap().leave());
    script
        .waits("leave, as the first of two", &mut leaving)
        .await;
    let both = async { join!(biased; other.unwrap().leave(), leaving).1 };
    script.verb("leave, as the second of two", both).await;
}

pub(super) async fn queue(script: Script) {
    let (first, second) = pair(&script).await;
    let queue = Queue::<String>::new(&first, "/mail").attempts_max(2);
    let other = Queue::<String>::new(&second, "/mail").attempts_max(2);
    let text = |text: &str| text.to_owned();
    script
        .verb(
            "put, when the directories are missing",
            queue.put(&text("one")),
        )
        .await;
    script.verb("put", queue.put(&text("two"))).await;
    script
        .verb(
            "put_all, of three",
            queue.put_all(&["3", "4", "5"].map(text)),
        )
        .await;
    script.verb("depth", other.depth()).await;
    script.verb("peek", other.peek()).await;
    script.verb("oldest_age", other.oldest_age()).await;
    script.verb("list", other.list()).await;

    let claim = script
        .verb("take, the first of a handle", other.take())
        .await;
    script.verb("ack", claim.ack()).await;
    let claim = script
        .verb("take, of an item that was read ahead", other.take())
        .await;
    script.verb("give_back", claim.give_back("later")).await;
    let claim = other.take().await.unwrap();
    script
        .verb("give_back_uncounted", claim.give_back_uncounted("shutdown"))
        .await;
    let claim = other.take().await.unwrap();
    script
        .verb("give_back_after", claim.give_back_after(SECOND, "later"))
        .await;
    let claim = other.take().await.unwrap();
    script.verb("reject", claim.reject("no such address")).await;
    let claim = other.take().await.unwrap();
    script.step("drop of a claim", async { drop(claim) }).await;
    let claims = script.verb("take_many", other.take_many(2)).await;
    for claim in claims {
        claim.ack().await.unwrap();
    }
    let letters = script.verb("dead_letters", other.dead_letters()).await;
    script.verb("revive", other.revive(&letters[0])).await;
    pass(2 * SECOND).await;
    while let Some(claim) = other.try_take().await.unwrap() {
        claim.reject("no such address").await.unwrap();
    }
    let letters = other.dead_letters().await.unwrap();
    script.verb("forget", other.forget(&letters[0])).await;

    assert!(
        script
            .verb("try_take, of an empty queue", other.try_take())
            .await
            .is_none()
    );
    let mut consumer = other.consumer();
    let mut waiter = consumer.next();
    script
        .waits("consumer, of an empty queue", &mut waiter)
        .await;
    let item = text("six");
    let delivered = async { join!(biased; queue.put(&item), waiter).1.unwrap() };
    let claim = script
        .verb("put, with a consumer that waits", delivered)
        .await;
    claim.ack().await.unwrap();
    script
        .step("drop of the consumer", async { drop(consumer) })
        .await;
}

pub(super) async fn queue_orders(script: Script) {
    let (client, _) = pair(&script).await;
    let text = |text: &str| text.to_owned();
    let queue = PriorityQueue::<String>::new(&client, "/urgent");
    queue.put(5, &text("first")).await.unwrap();
    queue.take().await.unwrap().ack().await.unwrap();
    script
        .verb("put, with a priority", queue.put(5, &text("low")))
        .await;
    queue.put(1, &text("high")).await.unwrap();
    let claim = script.verb("take, by priority", queue.take()).await;
    assert_eq!(claim.payload(), "high");

    let queue = DelayQueue::<String>::new(&client, "/later");
    script
        .verb("put_after", queue.put_after(SECOND, &text("soon")))
        .await;
    let claim = script
        .verb("take, of an item that is not due", queue.take())
        .await;
    claim.ack().await.unwrap();
}

pub(super) async fn tasks(script: Script) {
    let (first, second) = pair(&script).await;
    let tasks = Tasks::<String>::new(&first, "/migrations");
    let other = Tasks::<String>::new(&second, "/migrations");
    let text = |text: &str| text.to_owned();
    tasks.add("zero", &text("0")).await.unwrap();
    tasks.take().await.unwrap().unwrap().done().await.unwrap();
    script
        .verb("add", tasks.add("users", &text("users.sql")))
        .await;
    script
        .verb(
            "add, of a known task",
            tasks.add("users", &text("users.sql")),
        )
        .await;
    tasks.add("orders", &text("orders.sql")).await.unwrap();
    let task = script.verb("take", other.take()).await.unwrap();
    script
        .verb("done_with a result", task.done_with("ok"))
        .await;
    let task = script
        .verb("take, of the second task", other.take())
        .await
        .unwrap();
    script.verb("fail", task.fail("no space")).await;
    let task = other.take().await.unwrap().unwrap();
    script.verb("reject", task.reject("no such table")).await;
    script.verb("counts", tasks.counts()).await;
    script.verb("result", tasks.result("users")).await;
    let failed = script.verb("failed", tasks.failed()).await;
    script.verb("retry", tasks.retry(&failed[0])).await;
    let task = other.take().await.unwrap().unwrap();
    script.verb("done", task.done()).await;
    assert!(
        script
            .verb("take, when all is done", other.take())
            .await
            .is_none()
    );
}

pub(super) async fn two_phase(script: Script) {
    let (first, second) = pair(&script).await;
    let transfers = TwoPhase::new(&first, "/transfers");
    let others = TwoPhase::new(&second, "/transfers");
    script
        .verb(
            "begin, when the directory is missing",
            transfers.begin_as("t0", ["x"], ""),
        )
        .await;
    let sites = ["payer", "payee"];
    let begun = transfers.begin_as("t1", sites, "ten euros");
    let mut coordinator = script.verb("begin, with two sites", begun).await;
    let mut participation = script
        .verb("join, as a site", others.transaction("t1").join("payer"))
        .await;
    script
        .verb("vote, as a site", participation.vote(Vote::Commit))
        .await;
    let transaction = others.transaction("t1");
    script
        .verb(
            "vote, by its name alone",
            transaction.vote("payee", Vote::Commit),
        )
        .await;
    let mut waiter = Box::pin(participation.decision());
    script.waits("decision, as a site", &mut waiter).await;
    let decided = async { join!(biased; coordinator.decide(), waiter).1 };
    script.verb("decide, with a site that waits", decided).await;
    script
        .verb("applied, as a site", participation.applied())
        .await;
    script
        .verb("applied, by its name alone", transaction.applied("payee"))
        .await;
    script.verb("status", transaction.status()).await;
    script
        .verb("decision, of a decided transaction", transaction.decision())
        .await;
    script.verb("list", others.list()).await;
    script.verb("in_doubt", others.in_doubt()).await;
    script.verb("forget", coordinator.forget()).await;

    let mut coordinator = transfers.begin_as("t2", sites, "").await.unwrap();
    script
        .verb("abort", coordinator.abort("out of money"))
        .await;
    script
        .verb("forget_by_force", coordinator.forget_by_force())
        .await;
    script
        .verb("coordinate", others.transaction("t0").coordinate())
        .await;
}

pub(super) async fn two_phase_every_site(script: Script) {
    let (first, second) = pair(&script).await;
    let transfers = TwoPhase::new(&first, "/transfers").form(Form::EverySite);
    let others = TwoPhase::new(&second, "/transfers").form(Form::EverySite);
    transfers.begin_as("t0", ["x"], "").await.unwrap();
    let sites = ["payer", "payee"];
    let begun = transfers.begin_as("t1", sites, "ten euros");
    let coordinator = script.verb("begin, with two sites", begun).await;
    let transaction = transfers.transaction("t1");
    let mut payer = script
        .verb("join, as a site", transaction.join("payer"))
        .await;
    let mut payee = others.transaction("t1").join("payee").await.unwrap();
    script
        .verb("vote, as a site", payer.vote(Vote::Commit))
        .await;
    let mut waiter = Box::pin(payer.decision());
    script.waits("decision, as a site", &mut waiter).await;
    let voted = async { join!(biased; payee.vote(Vote::Commit), waiter).1 };
    script.verb("vote, as the last site", voted).await;
    script
        .verb("decision, as the last site", payee.decision())
        .await;
    script.verb("applied, as a site", payer.applied()).await;
    payee.applied().await.unwrap();
    script.verb("forget", coordinator.forget()).await;
}

pub(super) async fn counter(script: Script) {
    let (first, second) = pair(&script).await;
    let counter = Counter::new(&first, "/hits");
    let other = Counter::new(&second, "/hits");
    script.verb("add, when there is none", counter.add(1)).await;
    script.verb("get", other.get()).await;
    script.verb("add", counter.add(1)).await;
    script.verb("add, after another client", other.add(1)).await;
    script
        .verb("compare_and_set", counter.compare_and_set(3, 10))
        .await;
    let mut values = other.watch();
    script.step("watch: the first item", values.next()).await;
    let added = async { join!(biased; counter.add(1), values.next()).0 };
    script.verb("add, with a watcher", added).await;
    script
        .step("drop of the watch", async { drop(values) })
        .await;
}

pub(super) async fn config(script: Script) {
    let (first, second) = pair(&script).await;
    let config = Config::<String>::new(&first, "/settings/rate");
    let other = Config::<String>::new(&second, "/settings/rate");
    let text = |text: &str| text.to_owned();
    script.verb("get, of nothing", config.get()).await;
    script
        .verb(
            "set, when the directory is missing",
            config.set(&text("10")),
        )
        .await;
    script.verb("set", config.set(&text("20"))).await;
    let entry = script.verb("get", other.get()).await.unwrap();
    let value = text("30");
    let set = other.compare_and_set(entry.version, &value);
    script.verb("compare_and_set", set).await.unwrap();
    let mut live = script.verb("live", other.live()).await;
    let changed = async { join!(biased; config.set(&value), live.changed()).1 };
    script.verb("set, with a live copy", changed).await;
    script
        .step("drop of the live copy", async { drop(live) })
        .await;
    script.verb("delete", config.delete()).await;
    script.verb("create", config.create(&value)).await;

    let folder = ConfigFolder::new(&first, "/limits");
    folder.update(|_| {}).await.unwrap();
    let update = folder.update(|entries| {
        entries.insert("rate".to_owned(), b"1".to_vec());
        entries.insert("burst".to_owned(), b"2".to_vec());
    });
    script.verb("update, of a folder", update).await;
    script
        .verb(
            "get, of a folder",
            ConfigFolder::new(&second, "/limits").get(),
        )
        .await;
}

pub(super) async fn group(script: Script) {
    let (first, second) = pair(&script).await;
    let group = Group::new(&first, "/workers");
    let other = Group::new(&second, "/workers");
    group.join_as("zero", "").await.unwrap().leave().await;
    let member = script
        .verb("join_as", group.join_as("one", "10.0.0.1"))
        .await;
    script.verb("members", other.members()).await;
    let mut rosters = other.watch();
    script.step("watch: the first item", rosters.next()).await;
    let joined = async { join!(biased; group.join("10.0.0.2"), rosters.next()).0 };
    let second = script.verb("join, with a watcher", joined).await;
    script.verb("update", member.update("10.0.0.3")).await;
    script.step("leave", member.leave()).await;
    script
        .step("drop of a membership", async { drop(second) })
        .await;
    script
        .step("drop of the watch", async { drop(rosters) })
        .await;
}

pub(super) async fn names(script: Script) {
    let (first, second) = pair(&script).await;
    let names = Names::new(&first, "/hosts");
    let other = Names::new(&second, "/hosts");
    names.register("zero", "").await.unwrap().leave().await;
    let title = "register_lasting";
    script
        .verb(title, names.register_lasting("db1", "10.0.0.1"))
        .await;
    let member = script
        .verb("register", names.register("db2", "10.0.0.2"))
        .await;
    let taken = other.register("db2", "10.0.0.3");
    script
        .step("register, of a name that is taken", taken)
        .await
        .unwrap_err();
    script.verb("unique", names.unique("job-", "")).await;
    script.verb("resolve", other.resolve("db2")).await;
    script.verb("list", other.list()).await;
    script.step("leave", member.leave()).await;
    script.verb("remove", names.remove("db1")).await;
}

pub(super) async fn cache(script: Script) {
    let (first, second) = pair(&script).await;
    let config = Config::<String>::new(&first, "/settings/rate");
    config.set(&"10".to_owned()).await.unwrap();
    let tree = script
        .verb(
            "open, of two nodes",
            Cache::new(&second, "/settings").open(),
        )
        .await;
    let value = "20".to_owned();
    script.verb("a node changes", config.set(&value)).await;
    script.verb("a node is deleted", config.delete()).await;
    script.step("drop", async { drop(tree) }).await;
}

pub(super) async fn inspect(script: Script) {
    let (first, second) = pair(&script).await;
    let lock = Lock::new(&first, "/jobs/nightly");
    let guard = lock.acquire().await.unwrap();
    let waiting = lock.join().await.unwrap();
    let queue = Queue::<String>::new(&first, "/jobs/mail");
    queue.put(&"one".to_owned()).await.unwrap();
    let looker = Contention::new(&second, "/jobs/nightly").message("maintenance");
    settle().await;
    let line = script
        .verb("line, of a holder and a waiter", looker.line())
        .await;
    script
        .verb(
            "survey, of a lock and a queue",
            Survey::new(&second, "/jobs").look(),
        )
        .await;
    script.verb("deadlocks", looker.deadlocks()).await;
    script
        .verb("revoke", looker.revoke(&line[0].node, line[0].token))
        .await;
    let broken = looker.break_hold(&line[0].node, line[0].token, SECOND);
    script
        .verb("break_hold, after a grace of a second", broken)
        .await;
    script.verb("last_broken", looker.last_broken()).await;
    drop((guard, waiting));
}
