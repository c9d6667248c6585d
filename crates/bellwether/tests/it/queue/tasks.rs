//! Run-once tasks.

use std::collections::BTreeMap;
use std::time::Duration;

use bellwether::queue::TaskCounts;
use bellwether::{Error, ErrorKind, Tasks, connect};
use bellwether_testkit::Cut;
use bellwether_wire::op::Op;
use futures_util::StreamExt;

use crate::support::place::{Place, SESSION_TIMEOUT, kill, soon};

on_both_engines! {
    each_task_is_done_once_by_one_of_the_workers,
    done_is_remembered,
    task_of_a_worker_that_dies_is_taken_again,
    worker_waits_for_what_others_are_at_and_ends_with_them,
    task_that_fails_too_often_is_set_aside,
    progress_tells_the_whole_and_ends,
    lost_reply_to_done_is_done_once,
    lost_reply_to_an_addition_adds_once,
    stale_worker_cannot_say_done,
    bad_names_are_refused,
    more_than_fits_a_request_is_refused_or_cut,
}

async fn tasks(place: &Place) -> Tasks<String> {
    Tasks::new(&place.client().await, "/tasks")
}

fn text(text: &str) -> String {
    text.to_owned()
}

/// The counts, without fields added later.
fn numbers(counts: TaskCounts) -> [usize; 4] {
    [counts.open, counts.running, counts.done, counts.failed]
}

async fn each_task_is_done_once_by_one_of_the_workers(place: Place) {
    let all = tasks(&place).await;
    for number in 0..30 {
        let name = format!("task-{number}");
        assert!(all.add(&name, &number.to_string()).await.unwrap());
    }
    let mut workers = Vec::new();
    for _ in 0..4 {
        let tasks = tasks(&place).await;
        workers.push(tokio::spawn(async move {
            let mut done = Vec::new();
            while let Some(task) = tasks.take().await.unwrap() {
                assert_eq!(task.attempts(), 1);
                assert_eq!(task.name(), format!("task-{}", task.payload()));
                done.push(task.payload().clone());
                let result = format!("{} done", task.payload());
                task.done_with(result).await.unwrap();
            }
            done
        }));
    }
    let mut times = BTreeMap::new();
    for worker in workers {
        for name in soon(worker).await.unwrap() {
            *times.entry(name).or_insert(0) += 1;
        }
    }
    assert_eq!(times.len(), 30);
    assert!(times.values().all(|&times| times == 1), "{times:?}");
    assert_eq!(numbers(all.counts().await.unwrap()), [0, 0, 30, 0]);
    let result = all.result("task-7").await.unwrap();
    assert_eq!(result.as_deref(), Some(&b"7 done"[..]));
    assert_eq!(all.result("no such task").await.unwrap(), None);
}

async fn done_is_remembered(place: Place) {
    let tasks = tasks(&place).await;
    assert!(tasks.add("a", &text("1")).await.unwrap());
    assert!(!tasks.add("a", &text("2")).await.unwrap(), "it is open");
    let task = soon(tasks.take()).await.unwrap().unwrap();
    assert!(!tasks.add("a", &text("2")).await.unwrap(), "it is running");
    assert_eq!(task.payload(), "1");
    task.done().await.unwrap();
    assert!(!tasks.add("a", &text("2")).await.unwrap(), "it is done");
    assert!(soon(tasks.take()).await.unwrap().is_none());
}

async fn task_of_a_worker_that_dies_is_taken_again(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let mortal = Tasks::<String>::new(&client, "/tasks");
    let tasks = tasks(&place).await;
    tasks.add("a", &text("1")).await.unwrap();
    let _task = soon(mortal.take()).await.unwrap().unwrap();
    let next = tokio::spawn(async move { tasks.take().await });
    place.until_children("/tasks/line", 1).await;
    kill(&proxy).await;
    let task = soon(next).await.unwrap().unwrap().unwrap();
    assert_eq!((task.name(), task.attempts()), ("a", 2));
    task.done().await.unwrap();
}

async fn worker_waits_for_what_others_are_at_and_ends_with_them(place: Place) {
    let tasks = tasks(&place).await;
    assert!(soon(tasks.take()).await.unwrap().is_none());
    tasks.add("a", &text("1")).await.unwrap();
    let task = soon(tasks.take()).await.unwrap().unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        let tasks = tasks.clone();
        waiters.push(tokio::spawn(async move { tasks.take().await }));
    }
    // The third has no place in the line yet: it waits for a slot of its session.
    place.until_children("/tasks/line", 2).await;
    task.done().await.unwrap();
    for waiter in waiters {
        assert!(soon(waiter).await.unwrap().unwrap().is_none());
    }
}

async fn task_that_fails_too_often_is_set_aside(place: Place) {
    let tasks = tasks(&place).await.attempts_max(2);
    tasks.add("a", &text("1")).await.unwrap();
    for attempt in 1..=2 {
        let task = soon(tasks.take()).await.unwrap().unwrap();
        assert_eq!(task.attempts(), attempt);
        task.fail(&format!("failed {attempt}")).await.unwrap();
    }
    assert!(soon(tasks.take()).await.unwrap().is_none());
    assert!(!tasks.add("a", &text("1")).await.unwrap(), "it has failed");
    let failed = tasks.failed().await.unwrap();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].id.to_string(), "a");
    assert_eq!(failed[0].reason, "failed 2");
    assert!(tasks.retry(&failed[0]).await.unwrap());
    let task = soon(tasks.take()).await.unwrap().unwrap();
    assert_eq!((task.payload().as_str(), task.attempts()), ("1", 1));
    task.reject("never").await.unwrap();
    assert_eq!(numbers(tasks.counts().await.unwrap()), [0, 0, 0, 1]);
}

async fn progress_tells_the_whole_and_ends(place: Place) {
    let tasks = tasks(&place).await;
    tasks.add("a", &text("1")).await.unwrap();
    tasks.add("b", &text("2")).await.unwrap();
    let mut progress = tasks.progress();
    let first = soon(progress.next()).await.unwrap();
    assert_eq!(numbers(first), [2, 0, 0, 0]);
    let a = soon(tasks.take()).await.unwrap().unwrap();
    let second = soon(progress.next()).await.unwrap();
    assert_eq!(numbers(second), [1, 1, 0, 0]);
    a.done().await.unwrap();
    let b = soon(tasks.take()).await.unwrap().unwrap();
    b.reject("no").await.unwrap();
    let last = soon(progress.next()).await.unwrap();
    assert_eq!(numbers(last), [0, 0, 1, 1]);
    assert!(soon(progress.next()).await.is_none());
}

async fn lost_reply_to_done_is_done_once(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(2)).await;
    let tasks = Tasks::<String>::new(&client, "/tasks");
    tasks.add("a", &text("1")).await.unwrap();
    let task = soon(tasks.take()).await.unwrap().unwrap();
    // The first try would find no directory, and change nothing.
    let lost = proxy.swallow_reply(Op::Multi);
    soon(task.done_with("result")).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(numbers(tasks.counts().await.unwrap()), [0, 0, 1, 0]);
    let result = tasks.result("a").await.unwrap();
    assert_eq!(result.as_deref(), Some(&b"result"[..]));
}

async fn lost_reply_to_an_addition_adds_once(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(2)).await;
    let tasks = Tasks::<String>::new(&client, "/tasks");
    tasks.add("a", &text("1")).await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    assert!(soon(tasks.add("b", &text("2"))).await.unwrap());
    lost.happened().await.unwrap();
    assert_eq!(numbers(tasks.counts().await.unwrap()), [2, 0, 0, 0]);
}

async fn stale_worker_cannot_say_done(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(2)).await;
    let mortal = Tasks::<String>::new(&client, "/tasks");
    let tasks = tasks(&place).await;
    tasks.add("a", &text("1")).await.unwrap();
    let stale = soon(mortal.take()).await.unwrap().unwrap();
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    let task = soon(tasks.take()).await.unwrap().unwrap();
    assert!(!stale.is_held(), "two are at it");
    proxy.refuse(false);
    let refused = soon(stale.done()).await;
    assert_fails!(refused, ErrorKind::LostWithSession);
    task.done().await.unwrap();
    // In the next session it sees that no task is left.
    assert!(soon(mortal.take()).await.unwrap().is_none());
}

async fn bad_names_are_refused(place: Place) {
    let all = tasks(&place).await;
    for name in ["", ".", "a/b", "a\u{1}"] {
        let refused = all.add(name, &text("1")).await;
        assert!(
            matches!(
                refused,
                Err(Error {
                    kind: ErrorKind::BadPath(_),
                    ..
                })
            ),
            "{name:?}: {refused:?}"
        );
    }
    let client = connect(format!("{}{}", place.server(), place.chroot()))
        .await
        .unwrap();
    let refused = Tasks::<Vec<u8>>::new(&client, "tasks").take().await;
    assert_fails!(refused, ErrorKind::BadPath(_));
}

async fn more_than_fits_a_request_is_refused_or_cut(place: Place) {
    let all = tasks(&place).await;
    let much = "m".repeat(2 << 20);
    let refused = soon(all.add(&much[..300_000], &text("1"))).await;
    assert_fails!(refused, ErrorKind::TooLarge { .. });
    all.add("a", &text("1")).await.unwrap();
    let task = soon(all.take()).await.unwrap().unwrap();
    let refused = soon(task.done_with(&much)).await;
    assert!(
        matches!(refused, Err(Error { kind: ErrorKind::TooLarge { bytes, .. }, .. }) if bytes > much.len()),
        "{refused:?}"
    );
    let task = soon(all.take()).await.unwrap().unwrap();
    assert_eq!(task.attempts(), 2);
    soon(task.reject(&much)).await.unwrap();
    let failed = all.failed().await.unwrap().remove(0);
    assert_eq!(failed.reason, much[..4 << 10]);
}
