//! A process that forks after it has connected.
//!
//! Each test starts a parent, which is one of the ignored tests of this file, as a process of its own. It forks children, and both
//! check what they see.

use std::collections::BTreeMap;
use std::error::Error as _;
use std::process::exit;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use bellwether::blocking::{Wait, iter};
use bellwether::error::ConnectError;
use bellwether::{
    Client, ClientState, Config, Connect, Counter, Election, Error, ErrorKind, HoldState, Lock,
    LockGuard, Queue, ReentrantLock, connect, zk,
};
use fork::{Fork, fork};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::process::Command;
use tokio::runtime::Builder;

use crate::support::place::Place;

on_both_engines! {
    t91_child_that_drops_what_it_inherited_does_not_disturb_its_parent,
    t91_child_that_exits_or_returns_does_not_disturb_its_parent,
    t91_child_connects_and_waits_behind_its_parent,
    t91_child_of_a_runtime_with_a_session_does_not_disturb_its_parent,
    t91_child_of_a_busy_parent_does_not_hang,
}

const SERVER: &str = "BELLWETHER_TEST_FORKED";

const FORKED: zk::Error = zk::Error::SessionEnded(zk::SessionEnd::Forked);

/// Longer than any wait in a test.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs one of the ignored tests of this file, on the main thread of a process of its own.
async fn run(place: &Place, parent: &str) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", &format!("session::forked::{parent}")])
        .args(["--ignored", "--nocapture", "--test-threads=1"])
        .env(SERVER, format!("{}{}", place.server(), place.chroot()))
        .kill_on_drop(true);
    let ended = tokio::time::timeout(3 * PATIENCE, command.output()).await;
    let ended = ended.unwrap().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let errors = String::from_utf8_lossy(&ended.stderr);
    assert!(
        ended.status.success() && said.contains("1 passed"),
        "{said}{errors}"
    );
}

fn options() -> Connect {
    connect(std::env::var(SERVER).unwrap()).session_timeout(SESSION_TIMEOUT)
}

/// Forks. Returns the child, in its parent.
fn forked() -> Option<Pid> {
    match fork().unwrap() {
        Fork::Child => None,
        Fork::Parent(pid) => Pid::from_raw(pid),
    }
}

/// Waits until a child has ended well. One that hangs is killed.
fn until_ended(child: Pid) {
    let (tell, ended) = channel();
    std::thread::spawn(move || tell.send(waitpid(Some(child), WaitOptions::empty())));
    let Ok(ended) = ended.recv_timeout(PATIENCE) else {
        kill_process(child, Signal::KILL).unwrap();
        panic!("the child hangs");
    };
    let (_, status) = ended.unwrap().unwrap();
    assert_eq!(status.exit_status(), Some(0));
}

/// How often each event descriptor of this process was written: a runtime is woken through one.
fn wake_ups() -> BTreeMap<String, String> {
    let counts = std::fs::read_dir("/proc/self/fdinfo").unwrap();
    let counts = counts.filter_map(|entry| {
        let path = entry.unwrap().path();
        let info = std::fs::read_to_string(&path).ok()?;
        let count = info
            .lines()
            .find(|line| line.starts_with("eventfd-count"))?;
        Some((path.display().to_string(), count.to_owned()))
    });
    counts.collect()
}

/// The error says what to do.
fn assert_forked(error: Error) {
    let reason = error.source().unwrap().to_string();
    assert!(reason.contains("connect again in this process"), "{reason}");
    let ErrorKind::NoSession(source) = &error.kind else {
        panic!("{error:?}");
    };
    assert!(matches!(source, ConnectError::Forked));
}

/// Everything that a child has inherited is dead.
fn assert_dead(client: &Client, guard: &LockGuard) {
    assert!(!guard.is_held());
    assert_eq!(guard.state(), HoldState::Lost);
    assert_eq!(guard.time_left(), Duration::ZERO);
    assert_eq!(iter(guard.states()).collect::<Vec<_>>(), [HoldState::Lost]);
    guard.lost().wait();
    guard.watch().lost().wait();
    guard.expiring(Duration::ZERO).wait();
    assert!(guard.run(std::future::pending::<()>()).wait().is_err());
    assert!(guard.write().commit().wait().is_err());

    assert_eq!(client.state(), ClientState::Closed);
    assert_eq!(
        iter(client.states()).collect::<Vec<_>>(),
        [ClientState::Closed]
    );
    assert!(matches!(client.ready().wait(), Err(ConnectError::Forked)));
    for acquired in [
        Lock::new(client, "/other").acquire().wait(),
        Lock::new(client, "/other").acquire_timeout(PATIENCE).wait(),
        Lock::new(client, "/other")
            .try_acquire()
            .wait()
            .map(Option::unwrap),
    ] {
        assert_forked(acquired.unwrap_err());
    }
    let read = Config::<String>::new(client, "/config").get().wait();
    assert_fails!(read, ErrorKind::NoSession(ConnectError::Forked));
    let queue = Queue::<String>::new(client, "/queue");
    assert!(queue.put(&"item".to_owned()).wait().is_err());
    assert!(queue.take().wait().is_err());
    assert_eq!(iter(queue.consumer()).filter(Result::is_ok).count(), 0);
    let election = Election::new(client, "/election");
    assert_eq!(iter(election.candidacy()).count(), 1);
    assert_eq!(iter(election.observe()).count(), 1);

    let raw = client.raw();
    assert_eq!(raw.exists("/").wait().unwrap_err(), FORKED);
    assert_eq!(raw.state(), zk::SessionState::Ended(zk::SessionEnd::Forked));
    raw.close().wait();
    client.close().wait();
    assert!(!client.close_gently(PATIENCE).wait());
}

/// The parent still has its connection, its session and its hold.
fn assert_held(client: &Client, guard: &LockGuard) {
    let node = format!("{}/{}", guard.path(), guard.node());
    assert!(client.raw().exists(&node).wait().unwrap().is_some());
    assert!(guard.is_held());
    assert_eq!(client.raw().connections(), 1);
    assert_eq!(client.state(), ClientState::Connected);
}

fn acquired(client: &Client) -> LockGuard {
    let lock = Lock::new(client, "/lock").crash_mark();
    lock.acquire().wait().unwrap()
}

#[test]
#[ignore = "a process of its own"]
fn parent_of_children_that_drop() {
    let client = options().wait().unwrap();
    let guard = acquired(&client);
    let (_, watch) = client.raw().exists_watched("/").wait().unwrap();
    // A thread that waits is not in the children.
    let lost = std::thread::spawn({
        let watch = guard.watch();
        move || watch.lost().wait()
    });
    let Some(child) = forked() else {
        let before = wake_ups();
        assert!(!before.is_empty());
        assert_dead(&client, &guard);
        drop(guard);
        assert_eq!(watch.wait(), Err(FORKED));
        drop(client);
        assert_eq!(wake_ups(), before, "a runtime of the parent was woken");
        exit(0);
    };
    until_ended(child);
    assert_held(&client, &guard);

    let Some(child) = forked() else {
        let released = guard.release().wait();
        assert_fails!(released, ErrorKind::LostWithSession);
        exit(0);
    };
    until_ended(child);
    assert_held(&client, &guard);

    let Some(child) = forked() else {
        let Some(grandchild) = forked() else {
            assert_dead(&client, &guard);
            exit(0);
        };
        until_ended(grandchild);
        assert_dead(&client, &guard);
        exit(0);
    };
    until_ended(child);
    assert_held(&client, &guard);
    assert!(!lost.is_finished());
    guard.release().wait().unwrap();
    lost.join().unwrap();
    client.close().wait();
}

async fn t91_child_that_drops_what_it_inherited_does_not_disturb_its_parent(place: Place) {
    run(&place, "parent_of_children_that_drop").await;
    place.until_children("/lock", 0).await;
}

#[test]
#[ignore = "a process of its own"]
fn parent_of_children_that_end() {
    let client = options().wait().unwrap();
    let guard = acquired(&client);
    let Some(child) = forked() else {
        exit(0);
    };
    until_ended(child);
    assert_held(&client, &guard);
    // The last test of its process: it ends by the end of `main`.
    let Some(child) = forked() else {
        return;
    };
    until_ended(child);
    assert_held(&client, &guard);
    guard.release().wait().unwrap();
}

async fn t91_child_that_exits_or_returns_does_not_disturb_its_parent(place: Place) {
    run(&place, "parent_of_children_that_end").await;
    place.until_children("/lock", 0).await;
}

#[test]
#[ignore = "a process of its own"]
fn parent_of_a_child_that_connects() {
    let client = options().wait().unwrap();
    let guard = acquired(&client);
    let Some(child) = forked() else {
        let client = options().wait().unwrap();
        assert_ne!(client.session_id().number(), 0);
        // It gets it from its parent.
        let own = acquired(&client);
        assert!(own.token() > guard.token());
        assert!(own.is_held() && !guard.is_held());
        drop(guard);
        assert_held(&client, &own);
        own.release().wait().unwrap();
        client.close().wait();
        exit(0);
    };
    let contenders = || client.raw().children("/lock").wait().unwrap();
    let is_waiting = |names: &Vec<String>| {
        names
            .iter()
            .any(|name| name != "held" && name != guard.node())
    };
    while !is_waiting(&contenders()) {}
    assert_held(&client, &guard);
    guard.release().wait().unwrap();
    until_ended(child);
    // And back.
    let guard = acquired(&client);
    assert_held(&client, &guard);
    guard.release().wait().unwrap();
}

async fn t91_child_connects_and_waits_behind_its_parent(place: Place) {
    run(&place, "parent_of_a_child_that_connects").await;
    place.until_children("/lock", 0).await;
}

#[test]
#[ignore = "a process of its own"]
fn parent_with_a_runtime() {
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (client, guard) = runtime.block_on(async {
        let client = options().on_current_runtime().await.unwrap();
        let lock = Lock::new(&client, "/lock").crash_mark();
        let guard = lock.acquire().await.unwrap();
        (client, guard)
    });
    // Options that name the runtime of the parent.
    let inherited = {
        let _inside = runtime.enter();
        options().on_current_runtime()
    };
    let Some(child) = forked() else {
        let before = wake_ups();
        assert!(!before.is_empty());
        assert_dead(&client, &guard);
        assert!(matches!(inherited.wait(), Err(ConnectError::Forked)));
        drop(guard);
        drop(client);
        assert_eq!(wake_ups(), before, "the runtime of the parent was woken");
        // With the tasks of the session. Its socket stays in the event queue that it shares with its parent.
        drop(runtime);
        let client = options().wait().unwrap();
        assert!(client.raw().exists("/").wait().is_ok());
        client.close().wait();
        exit(0);
    };
    until_ended(child);
    runtime.block_on(async {
        let node = format!("{}/{}", guard.path(), guard.node());
        assert!(client.raw().exists(&node).await.unwrap().is_some());
        assert!(guard.is_held());
        assert_eq!(client.raw().connections(), 1);

        // In the middle of asynchronous code.
        let Some(child) = forked() else {
            assert!(!guard.is_held());
            drop(guard);
            assert_eq!(client.raw().exists("/").await.unwrap_err(), FORKED);
            let acquired = Lock::new(&client, "/other").acquire().await;
            assert_forked(acquired.unwrap_err());
            drop(client);
            exit(0);
        };
        until_ended(child);
        assert!(client.raw().exists(&node).await.unwrap().is_some());
        assert!(guard.is_held());
        assert_eq!(client.raw().connections(), 1);
        guard.release().await.unwrap();
    });
}

async fn t91_child_of_a_runtime_with_a_session_does_not_disturb_its_parent(place: Place) {
    run(&place, "parent_with_a_runtime").await;
    place.until_children("/lock", 0).await;
}

/// At the moment of a fork, any lock in the process may be held by a thread that is not in the child.
#[test]
#[ignore = "a process of its own"]
fn parent_that_is_busy() {
    const CHILDREN: usize = 40;
    let client = options().wait().unwrap();
    let guard = acquired(&client);
    let counter = Counter::new(&client, "/counter");
    let lock = ReentrantLock::new(Lock::new(&client, "/busy"));
    let is_over = Arc::new(AtomicBool::new(false));
    let busy = (0..4).map(|_| {
        let (lock, counter, is_over) = (lock.clone(), counter.clone(), is_over.clone());
        std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let guard = lock.acquire().wait().unwrap();
                assert!(guard.is_held());
                drop(guard);
                counter.add(1).wait().unwrap();
            }
        })
    });
    let busy: Vec<_> = busy.collect();
    for _ in 0..CHILDREN {
        let Some(child) = forked() else {
            assert!(!guard.is_held());
            drop(guard);
            assert_forked(lock.acquire().wait().unwrap_err());
            assert!(counter.add(1).wait().is_err());
            drop((client, lock, counter));
            let client = options().wait().unwrap();
            let own = Lock::new(&client, "/own").acquire().wait().unwrap();
            own.release().wait().unwrap();
            exit(0);
        };
        until_ended(child);
    }
    assert_held(&client, &guard);
    is_over.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|thread| thread.join().unwrap());
    guard.release().wait().unwrap();
}

async fn t91_child_of_a_busy_parent_does_not_hang(place: Place) {
    run(&place, "parent_that_is_busy").await;
    place.until_children("/lock", 0).await;
}
