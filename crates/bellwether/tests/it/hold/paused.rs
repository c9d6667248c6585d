//! A holder whose process is stopped for longer than its session timeout, and then continues.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::time::Duration;

use bellwether::blocking::Wait;
use bellwether::{Fence, FencingToken, Lock, LockGuard, connect};
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::MissedTickBehavior;

use crate::support::place::{Place, SESSION_TIMEOUT, soon};

on_both_engines! {
    t02_paused_holder_is_fenced_off,
    work_under_run_does_nothing_after_a_pause,
    work_beside_lost_does_nothing_after_a_pause,
}

/// Passes the server's address to the process of a holder.
const SERVER: &str = "BELLWETHER_TEST_HOLDER";

/// A holder in a separate process, which is one of the ignored tests of this file.
struct Holder {
    child: Child,
    said: Lines<BufReader<ChildStderr>>,
}

impl Holder {
    fn start(place: &Place, test: &str) -> Self {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &format!("hold::paused::{test}")])
            .args(["--ignored", "--nocapture"])
            .env(SERVER, format!("{}{}", place.server(), place.chroot()))
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, said }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// The next line that begins with `what`.
    fn hear(&mut self, what: &str) -> String {
        let mut lines = self.said.by_ref().map(Result::unwrap);
        lines.find(|line| line.starts_with(what)).unwrap()
    }

    /// Its remaining output until it ends.
    fn rest(mut self) -> Vec<String> {
        let rest = self.said.by_ref().map(Result::unwrap).collect();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

async fn acquire_in_holder() -> LockGuard {
    let client = connect(std::env::var(SERVER).unwrap()).session_timeout(SESSION_TIMEOUT);
    let client = client.await.unwrap();
    let guard = Lock::new(&client, "/lost").acquire().await.unwrap();
    eprintln!("token {}", guard.token());
    guard
}

/// Acquires, prints its token, and prints it again when asked to write.
#[test]
#[ignore = "started by t02 as a process of its own"]
fn holder_that_writes_when_asked() {
    let guard = acquire_in_holder().wait();
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    eprintln!("write {} {}", guard.token(), guard.is_held());
}

async fn t02_paused_holder_is_fenced_off(place: Place) {
    let mut holder = Holder::start(&place, "holder_that_writes_when_asked");
    let store = Fence::new();
    let first: FencingToken = holder.hear("token")[6..].parse().unwrap();
    store.admit(first).unwrap();

    holder.signal(Signal::STOP);
    let next = soon(Lock::new(&place.client().await, "/lost").acquire())
        .await
        .unwrap();
    assert!(next.token() > first);
    store.admit(next.token()).unwrap();

    // It continues where it was.
    holder.signal(Signal::CONT);
    let mut asked = holder.child.stdin.take().unwrap();
    asked.write_all(b"write\n").unwrap();
    let late = holder.hear("write");
    assert_eq!(
        late,
        format!("write {first} false"),
        "it can know when it wakes"
    );
    assert!(
        store.admit(first).is_err(),
        "the store accepted a late write"
    );
    holder.rest();
    next.release().await.unwrap();
}

/// Acts all the time, and prints with each action whether the lock is held then.
async fn work(guard: &LockGuard) {
    let mut ticks = tokio::time::interval(Duration::from_millis(1));
    // Each step waits. Steps without a wait between them are one step for any observer.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        eprintln!("acts while held: {}", guard.is_held());
    }
}

#[tokio::test]
#[ignore = "a process of its own"]
async fn holder_that_works_beside_lost() {
    let guard = acquire_in_holder().await;
    tokio::select! {
        biased;
        () = guard.lost() => {}
        () = work(&guard) => {}
    }
}

#[tokio::test]
#[ignore = "a process of its own"]
async fn holder_that_works_under_run() {
    let guard = acquire_in_holder().await;
    let lost = guard.run(work(&guard)).await.unwrap_err();
    assert_eq!(lost.path, "/lost");
}

async fn work_under_run_does_nothing_after_a_pause(place: Place) {
    nothing_is_done_after_a_pause(place, "holder_that_works_under_run").await;
}

async fn work_beside_lost_does_nothing_after_a_pause(place: Place) {
    nothing_is_done_after_a_pause(place, "holder_that_works_beside_lost").await;
}

async fn nothing_is_done_after_a_pause(place: Place, holder: &str) {
    let mut holder = Holder::start(&place, holder);
    holder.hear("acts while held: true");
    holder.signal(Signal::STOP);
    let next = Lock::new(&place.client().await, "/lost");
    let next = soon(next.acquire()).await.unwrap();
    holder.signal(Signal::CONT);
    // One action may have begun before the pause.
    let late = holder.rest().into_iter();
    let late = late.filter(|line| line == "acts while held: false");
    assert!(late.count() <= 1, "it acts under a lock that it has lost");
    next.release().await.unwrap();
}
