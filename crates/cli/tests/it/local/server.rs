//! The local server: started by the first command, found by the next, and ended when it is idle.

use std::fs::File;
use std::os::unix::fs::PermissionsExt;

use rustix::process::{Signal, kill_process};

use crate::local::command::local;
use crate::support::bellwether::{Running, assert_code, bellwether, job, text, until};
use crate::support::home::{Home, processes_that_name};

#[test]
fn nothing_is_left_behind_when_a_home_goes_with_its_jobs() {
    let home = Home::new();
    let folder = home.folder();
    let mut job = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(job.line().as_deref(), Some("held"));
    // Front, keeper, job and server.
    assert_eq!(processes_that_name(&folder).len(), 4);
    drop(job);
    drop(home);
    assert_eq!(processes_that_name(&folder), []);
}

#[test]
fn first_command_starts_a_server_and_the_next_one_uses_it() {
    let home = Home::new();
    let first = home.lock("echo ran").output().unwrap();
    assert_code(&first, 0);
    assert_eq!(text(&first.stdout), "ran\n");
    // Not in the mail of every cron job.
    assert_eq!(text(&first.stderr), "");
    let server = home.server();
    assert!(server.is_some());
    assert_code(&home.lock("true").output().unwrap(), 0);
    assert_eq!(home.server(), server);
}

#[test]
fn ten_racing_commands_get_one_server_and_exclude_each_other() {
    let home = Home::new();
    let busy = home.0.path().join("busy");
    let script = format!("mkdir {0} && rmdir {0}", busy.display());
    let mut all: Vec<_> = (0..10)
        .map(|_| Running::start(&mut home.lock(&script)))
        .collect();
    for one in &mut all {
        let code = one.code();
        assert_eq!(code, Some(0), "{:?}", one.errors());
    }
    let starts = std::fs::read_to_string(home.folder().join("log")).unwrap();
    assert!(!starts.contains("another server"), "{starts}");
}

#[test]
fn every_command_that_runs_another_works_there() {
    let home = Home::new();
    let job = |arguments: &[&str], script: &str| {
        let mut command = job("local", arguments, script);
        let output = command.envs([home.variable()]).output();
        let output = output.unwrap();
        assert_code(&output, 0);
        text(&output.stdout)
    };
    let tell = "bellwether note x && echo $BELLWETHER_PATH $BELLWETHER_PREVIOUS";
    for (arguments, told) in [
        (&["lock", "a"][..], "/a clean\n"),
        (&["lock", "b", "--write"], "/b clean\n"),
        (&["elect", "c"], "/c clean\n"),
        (&["once", "d"], "/d clean\n"),
        (&["once", "d"], ""),
    ] {
        assert_eq!(job(arguments, tell), told, "{arguments:?}");
    }
    for (arguments, told) in [
        (&["lock", "b", "--read"][..], "/b clean\n"),
        (&["lock", "e", "--of", "2"], "/e unknown\n"),
        (&["lock", "f", "--layout", "kazoo"], "/f unknown\n"),
        (&["rendezvous", "g", "--size", "1"], "/g unknown\n"),
    ] {
        let tell = "echo $BELLWETHER_PATH $BELLWETHER_PREVIOUS";
        assert_eq!(job(arguments, tell), told, "{arguments:?}");
    }
}

#[test]
fn server_that_was_killed_is_replaced() {
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let dead = home.server().unwrap();
    kill_process(dead, Signal::KILL).unwrap();
    // Its socket still exists, and does not count.
    assert!(home.folder().join("socket").exists());
    assert_code(&home.lock("true").output().unwrap(), 0);
    assert_ne!(home.server().unwrap(), dead);
}

#[test]
fn server_outlives_the_group_of_the_command_and_leaves_on_sigterm() {
    let home = Home::new();
    let mut job = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(job.line().as_deref(), Some("held"));
    let server = home.server().unwrap();
    assert_eq!(rustix::process::getsid(Some(server)).unwrap(), server);
    job.signal(Signal::TERM);
    assert_eq!(job.code(), Some(143));
    kill_process(server, Signal::TERM).unwrap();
    until("the socket is gone", || {
        !home.folder().join("socket").exists()
    });
}

#[test]
fn server_that_nobody_uses_leaves_and_the_next_command_starts_another() {
    let home = Home::new();
    assert_code(&home.lock("true").output().unwrap(), 0);
    let folder = home.folder();
    kill_process(home.server().unwrap(), Signal::TERM).unwrap();
    until("the socket is gone", || !folder.join("socket").exists());
    let mut idle = bellwether();
    idle.args(["serve", "--idle-exit", "50ms", "--local"])
        .arg(&folder);
    assert_code(&idle.output().unwrap(), 0);
    assert!(!folder.join("socket").exists());
    assert_code(&home.lock("true").output().unwrap(), 0);
}

#[test]
fn server_that_leaves_while_commands_connect_fails_none_of_them() {
    let home = Home::new();
    for round in 0..10 {
        let mut all: Vec<_> = (0..3)
            .map(|_| Running::start(home.lock("true").env("BELLWETHER_IDLE_EXIT", "1ms")))
            .collect();
        for one in &mut all {
            assert_eq!(one.code(), Some(0), "round {round}: {:?}", one.errors());
        }
    }
}

#[test]
fn server_waits_for_data_that_a_killed_one_releases_a_moment_later() {
    let home = Home::new();
    assert_code(&local(&home, &["start"]), 0);
    assert_code(&local(&home, &["stop"]), 0);
    let data = File::open(home.folder().join("data/bellwether.lock")).unwrap();
    data.try_lock().unwrap();
    let mut command = Running::start(&mut home.lock("true"));
    // The server has locked its folder, and goes on to open its data.
    let folder = File::open(home.folder().join("server.lock")).unwrap();
    until("the next server is there", || {
        match folder.try_lock_shared() {
            Ok(()) => folder.unlock().is_err(),
            Err(_) => true,
        }
    });
    assert!(command.is_running());
    data.unlock().unwrap();
    assert_eq!(command.code(), Some(0), "{:?}", command.errors());
}

#[test]
fn server_that_cannot_start_is_reported_with_its_log() {
    let home = Home::new();
    std::fs::create_dir(home.folder()).unwrap();
    std::fs::set_permissions(home.folder(), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::fs::write(home.folder().join("data"), "no folder").unwrap();
    let output = home.lock("true").output().unwrap();
    assert_code(&output, 125);
    let errors = text(&output.stderr);
    assert!(errors.contains("the local server cannot start"), "{errors}");
    assert!(errors.contains("local/log"), "{errors}");
    assert!(text(&local(&home, &["log"]).stdout).contains("data"));
}
