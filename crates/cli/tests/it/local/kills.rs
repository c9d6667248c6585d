//! Jobs whose local server is killed.

use std::path::Path;
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use rustix::process::{Signal, kill_process};

use crate::support::bellwether::{Running, assert_code, job, text, until};
use crate::support::home::{Home, until_none_left};

/// Kills the server, and waits until a session that lost it has started another.
fn kill_and_await_next(home: &Home) {
    let dead = home.server().unwrap();
    kill_process(dead, Signal::KILL).unwrap();
    until("another server is there", || {
        home.server().is_some_and(|server| server != dead)
    });
}

/// A script that prints `held` and ends when a file appears.
fn until_there(go: &Path) -> String {
    format!(
        "echo held; until test -e {}; do sleep 0.01; done",
        go.display()
    )
}

#[test]
fn job_goes_on_when_its_server_is_killed_and_the_next_in_line_is_served() {
    let home = Home::new();
    let go = home.0.path().join("go");
    let mut holder = Running::start(&mut home.lock(&until_there(&go)));
    assert_eq!(holder.line().as_deref(), Some("held"));
    let mut waiter = Running::start(&mut home.lock("echo next"));
    until("there is a line", || {
        waiter
            .error_line()
            .unwrap()
            .contains("waiting for /jobs/nightly")
    });
    kill_and_await_next(&home);
    // The next server knows both of them: a newcomer queues behind them.
    let mut last = home.bellwether();
    last.args(["lock", "/jobs/nightly", "--try", "--", "true"]);
    assert_code(&last.output().unwrap(), 124);
    std::fs::write(&go, "").unwrap();
    assert_eq!(holder.code(), Some(0), "{:?}", holder.errors());
    assert_eq!(waiter.line().as_deref(), Some("next"));
    assert_eq!(waiter.code(), Some(0), "{:?}", waiter.errors());
}

#[test]
fn leader_stays_leader_when_its_server_is_killed() {
    let home = Home::new();
    let mut command = job(
        "local",
        &["elect", "e", "--session-timeout", "4s"],
        "echo $$; exec tail -f /dev/null",
    );
    let mut leader = Running::start(command.envs([home.variable()]));
    let work = leader.line().unwrap();
    kill_and_await_next(&home);
    // The next server puts another candidate behind it.
    let mut second = job("local", &["elect", "e"], "true");
    let mut second = Running::start(second.envs([home.variable()]));
    let waits = second.error_line().unwrap();
    assert!(waits.contains("waiting for /e"), "{waits}");
    let work = std::fs::read(format!("/proc/{work}/cmdline")).unwrap_or_default();
    assert!(
        text(&work).starts_with("tail"),
        "the work of the leader was stopped"
    );
    leader.signal(Signal::TERM);
    assert_eq!(leader.code(), Some(143));
    assert_eq!(leader.line(), None, "it has led once");
    assert_eq!(second.code(), Some(0), "{:?}", second.errors());
}

#[test]
fn server_that_a_job_has_started_again_outlives_it() {
    let home = Home::new();
    let mut holder = Running::start(&mut home.lock("echo $$; exec tail -f /dev/null"));
    let work = holder.line().unwrap();
    kill_and_await_next(&home);
    let server = home.server();
    holder.signal(Signal::KILL);
    // The keeper kills everything that it has started, except the server.
    until("the job is killed", || {
        !Path::new(&format!("/proc/{work}")).exists()
    });
    assert_code(&home.lock("true").output().unwrap(), 0);
    assert_eq!(home.server(), server);
}

#[test]
fn jobs_are_not_stopped_by_a_server_that_is_killed_every_few_seconds() {
    jobs_survive_kills(6, Duration::from_secs(15));
}

#[test]
fn ten_jobs_are_not_stopped_by_a_server_that_is_killed_for_a_minute() {
    jobs_survive_kills(10, Duration::from_secs(60));
}

/// Runs jobs under two locks while their server is killed every few seconds: no job is stopped, no two jobs of one lock run at the same
/// time, and nothing is left behind.
#[expect(clippy::print_stdout, reason = "the seed of a failed run")]
fn jobs_survive_kills(workers: usize, killing: Duration) {
    let home = Home::new();
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let end = Instant::now() + killing;
    let mut kills = 0;
    let runs: usize = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|worker| (worker, &home))
            .map(|(worker, home)| scope.spawn(move || work(home, worker % 2, end)))
            .collect();
        while Instant::now() < end {
            pause(Duration::from_millis(random.random_range(500..3000)));
            // Only a running server can be killed; otherwise another one is starting.
            if let Some(server) = home.server() {
                kill_process(server, Signal::KILL).unwrap();
                kills += 1;
            }
        }
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum()
    });
    let expected = usize::try_from(killing.as_secs() / 4).unwrap();
    assert!(
        kills >= expected && runs >= 2 * workers,
        "{runs} jobs, {kills} kills"
    );
    // No command holds, waits or is connected any more.
    let mut locks = home.bellwether();
    let output = locks.args(["locks", "--json"]).output().unwrap();
    assert_code(&output, 0);
    let left = text(&output.stdout);
    assert!(!left.contains("\"pid\""), "{left}");
    assert_code(
        &home.bellwether().args(["local", "stop"]).output().unwrap(),
        0,
    );
    let files = std::fs::read_dir(home.folder()).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
    files.sort();
    assert_eq!(files, ["data", "log", "server.lock", "start.lock"]);
    // A process that gave up its lock on the folder may take a moment to exit.
    until_none_left(&home.folder(), |_| {});
}

/// Runs one job after the other under a lock, each of which fails if another is inside; returns how many ran.
fn work(home: &Home, lock: usize, end: Instant) -> usize {
    let busy = home.0.path().join(format!("busy-{lock}"));
    let script = format!("mkdir {0} && sleep 0.7 && rmdir {0}", busy.display());
    let mut runs = 0;
    while Instant::now() < end {
        let mut command = home.bellwether();
        command.args(["lock", &format!("/jobs/{lock}"), "--", "sh", "-c", &script]);
        assert_code(&command.output().unwrap(), 0);
        runs += 1;
    }
    runs
}

#[expect(
    clippy::disallowed_methods,
    reason = "time for jobs to run between kills"
)]
fn pause(time: Duration) {
    std::thread::sleep(time);
}
