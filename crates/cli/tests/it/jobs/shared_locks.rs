//! `bellwether lock` with shared holds: `--read`, `--of`, `--layout`.

use ::bellwether::line::Layout;
use bellwether::{Lock, RwLock, connect};
use tokio::runtime::Runtime;

use crate::support::bellwether::{Running, assert_code, holding, job, text};

on_both_engines! {
    readers_share_and_writers_do_not,
    so_many_run_at_a_time,
    limit_of_who_came_first_counts,
    lines_of_other_libraries_are_shared,
    another_kind_of_lock_on_the_path_is_refused_by_name,
    t94_another_layout_on_the_path_is_refused_by_name,
}

fn t94_another_layout_on_the_path_is_refused_by_name(address: &str) {
    let layouts = [
        (&["--layout", "curator"][..], "Curator"),
        (&["--layout", "kazoo"], "kazoo"),
        (&[], "bellwether"),
    ];
    for (held, library) in layouts {
        let path = format!("mixed-{library}");
        let _holder = holding(address, &[&["lock", &path], held].concat());
        for (other, _) in layouts.into_iter().filter(|(other, _)| *other != held) {
            for more in [&[][..], &["--try"], &["-x"], &["-s"]] {
                let options = [&["lock", &path], other, more].concat();
                let output = job(address, &options, "echo ran").output().unwrap();
                assert_code(&output, 2);
                assert_eq!(text(&output.stdout), "");
                let said = text(&output.stderr);
                let named = format!("/{path} is in use in the layout of {library}\nhint: ");
                assert!(said.contains(&named), "{said}");
            }
        }
    }
}

/// A holder that runs until it is dropped.
#[track_caller]
fn holder(address: &str, options: &[&str]) -> Running {
    holding(address, &[&["lock", "x"], options].concat())
}

/// Exit code of an attempt.
fn attempt(address: &str, options: &[&str]) -> i32 {
    let options = [&["lock", "x", "--try"], options].concat();
    let output = job(address, &options, "true").output().unwrap();
    output.status.code().unwrap()
}

fn readers_share_and_writers_do_not(address: &str) {
    let first = holder(address, &["--read"]);
    let second = holder(address, &["--read"]);
    assert_eq!(attempt(address, &["--write"]), 124);
    drop((first, second));
    // Their keepers notice the kill and close their sessions.
    let output = job(address, &["lock", "x", "--write"], "echo ran").output();
    assert_eq!(text(&output.unwrap().stdout), "ran\n");
    let _writer = holder(address, &["--write"]);
    assert_eq!(attempt(address, &["--read"]), 124);
    assert_eq!(attempt(address, &["--write"]), 124);
}

fn so_many_run_at_a_time(address: &str) {
    let _two = holder(address, &["--of", "3", "--permits", "2"]);
    assert_eq!(attempt(address, &["--of", "3", "--permits", "2"]), 124);
    let _one = holder(address, &["--of", "3"]);
    assert_eq!(attempt(address, &["--of", "3"]), 124);
    let mut waiter = Running::start(&mut job(address, &["lock", "x", "--of", "3"], "true"));
    let told = waiter.error_line().unwrap();
    assert!(
        told.contains("waiting for /x: next in line, held by"),
        "{told}"
    );
    assert!(told.contains(", and one other"), "{told}");
}

fn limit_of_who_came_first_counts(address: &str) {
    let first = job(address, &["lock", "x", "--of", "2"], "true").output();
    assert_eq!(text(&first.unwrap().stderr), "");
    let second = job(address, &["lock", "x", "--of", "5"], "true").output();
    let second = second.unwrap();
    assert_code(&second, 0);
    let told = text(&second.stderr);
    assert!(told.contains("the limit of /x is 2"), "{told}");
}

fn lines_of_other_libraries_are_shared(address: &str) {
    for (name, layout) in [("curator", Layout::Curator), ("kazoo", Layout::Kazoo)] {
        let exclusive = holder(address, &["--layout", name]);
        let runtime = Runtime::new().unwrap();
        let client = runtime.block_on(connect(address).into_future()).unwrap();
        // Also with a contender of the other library in the line.
        let other = Lock::new(&client, "/x").layout(layout);
        assert!(runtime.block_on(other.try_acquire()).unwrap().is_none());
        drop(exclusive);
        drop(runtime.block_on(other.acquire()).unwrap());

        let reader = holder(address, &["--layout", name, "--read"]);
        let other = RwLock::new(&client, "/x").layout(layout);
        assert!(runtime.block_on(other.try_write()).unwrap().is_none());
        drop(runtime.block_on(other.try_read()).unwrap().unwrap());
        drop(reader);
        drop(runtime.block_on(other.write()).unwrap());

        // Their semaphores keep the limit in each program.
        let permits = ["lock", "y", "--layout", name, "--of", "2"];
        let refused = job(address, &permits, "echo ran").output().unwrap();
        assert_code(&refused, 2);
    }
}

fn another_kind_of_lock_on_the_path_is_refused_by_name(address: &str) {
    for (path, held, name, others) in [
        (
            "a",
            &[][..],
            "a lock",
            &[&["--of", "2"][..], &["--read"]][..],
        ),
        ("b", &["--of", "2"], "a semaphore", &[&[], &["--write"]]),
        (
            "c",
            &["--write"],
            "a read/write lock",
            &[&[], &["--of", "2"]],
        ),
    ] {
        let _holder = holding(address, &[&["lock", path], held].concat());
        for other in others {
            for wait in [&[][..], &["--try"]] {
                let arguments = [&["lock", path], *other, wait].concat();
                let output = job(address, &arguments, "echo ran").output().unwrap();
                assert_code(&output, 2);
                assert_eq!(text(&output.stdout), "", "{arguments:?}");
                let said = text(&output.stderr);
                assert!(
                    said.contains(&format!("/{path} is in use as {name}")),
                    "{said}"
                );
                assert!(said.contains("\nhint: "), "{said}");
            }
        }
    }
}
