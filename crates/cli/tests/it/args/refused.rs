//! Calls that make no sense, and are refused before anything is done.

use crate::support::bellwether::{assert_code, bellwether, job, text};

on_both_engines! {
    lock_that_the_job_around_holds_is_refused,
    commands_of_one_job_wait_for_each_other,
    names_that_no_server_takes_are_refused_before_anything_is_created,
    t96_command_after_the_separator_is_never_taken_for_the_path,
}

/// Output of a job under the lock `a`.
#[track_caller]
fn under_a(address: &str, options: &[&str], script: &str) -> (String, String) {
    let mut command = job(address, &[&["lock", "a"], options].concat(), script);
    let output = command.output().unwrap();
    assert_code(&output, 0);
    (text(&output.stdout), text(&output.stderr))
}

fn lock_that_the_job_around_holds_is_refused(address: &str) {
    let script =
        "bellwether lock a -- echo ran; echo $?; bellwether lock --try a -- echo ran; echo $?";
    let (out, said) = under_a(address, &[], script);
    assert_eq!(out, "2\n2\n");
    assert!(
        said.contains("the job around this command holds /a"),
        "{said}"
    );
    assert!(said.contains("\nhint: "), "{said}");
    // With another lock in between, and for a command that is run once.
    let script = "bellwether lock b -- sh -c 'bellwether lock a -- echo ran; echo $?; bellwether once a -- echo ran; echo $?'";
    assert_eq!(under_a(address, &[], script).0, "2\n2\n");
    // A reader does not block another reader, but a writer.
    let script = "bellwether lock -s a -- echo ran; bellwether lock -x a -- echo never; echo $?";
    assert_eq!(under_a(address, &["-s"], script).0, "ran\n2\n");
}

fn commands_of_one_job_wait_for_each_other(address: &str) {
    let one = "bellwether lock -q b -- sh -c \"mkdir in && rmdir in && echo ran\"";
    let folder = tempfile::tempdir().unwrap();
    let script = format!("{one} & {one} & {one} & wait");
    let mut command = job(address, &["lock", "a"], &script);
    let output = command.current_dir(folder.path()).output().unwrap();
    assert_eq!(text(&output.stdout), "ran\nran\nran\n", "{output:?}");
}

fn names_that_no_server_takes_are_refused_before_anything_is_created(address: &str) {
    let run = |arguments: &[&str]| {
        let mut command = bellwether();
        command.env("BELLWETHER_CONNECT", address).args(arguments);
        command.output().unwrap()
    };
    assert_code(&run(&["create", "-p", "/there", ""]), 0);
    assert_code(&run(&["create", "-p", "/new/🐑"]), 2);
    // No recipe can be at the root, or use a name that another one needs.
    for arguments in [
        &["once", "/", "true"][..],
        &["lock", "/", "true"],
        &["elect", "/", "true"],
        &["rendezvous", "-n", "1", "/", "true"],
        &["barrier", "set", "/"],
        &["queue", "put", "/", "x"],
        &["queue", "take", "--try", "/"],
        &["tasks", "add", "/", "x"],
        &["tx", "begin", "/", "a", "b"],
        &["tx", "begin", "/new", "a/b"],
        &["group", "ls", "/"],
        &["name", "ls", "/"],
        &["config", "set", "/", "x"],
        &["counter", "add", "/"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
    assert_code(&run(&["tasks", "add", "/new", "🐑"]), 2);
    assert_eq!(
        text(&run(&["ls", "/"]).stdout)
            .lines()
            .filter(|name| *name == "new")
            .count(),
        0
    );
}

fn t96_command_after_the_separator_is_never_taken_for_the_path(address: &str) {
    let run = |arguments: &[&str]| {
        let mut command = bellwether();
        command.env("BELLWETHER_CONNECT", address).args(arguments);
        command.output().unwrap()
    };
    assert_code(&run(&["create", "-p", "/there"]), 0);
    // The path is an empty variable of a script, so that it is not among the words.
    for arguments in [
        &["lock"][..],
        &["lock", "--wait", "5s"],
        &["elect"],
        &["once"],
        &["rendezvous", "-n", "1"],
        &["queue", "take"],
        &["queue", "work"],
        &["tasks", "run"],
    ] {
        for command in [&["echo"][..], &["echo", "echo", "ran"]] {
            let output = run(&[arguments, &["--"], command].concat());
            assert_code(&output, 2);
            assert_eq!(text(&output.stdout), "");
            let said = text(&output.stderr);
            let expected = "the path before `--` is missing\nhint: `echo` stands after `--`";
            assert!(said.contains(expected), "{arguments:?}: {said}");
        }
    }
    assert_code(&run(&["lock", "--hold", "--", "echo"]), 2);
    let names = text(&run(&["ls", "/"]).stdout);
    let names: Vec<_> = names.lines().filter(|name| *name != "zookeeper").collect();
    assert_eq!(names, ["there"]);
}

#[test]
fn servers_that_cannot_exist_are_wrong_usage() {
    for (servers, why) in [
        ("zk1:99999", "a port is a number from 1 to 65535"),
        ("zk1:abc", "a port is a number"),
        (":2181", "a host is missing"),
        ("zk1,,zk2", "a host is missing"),
        ("zk1 zk2", "a host has a blank"),
    ] {
        let typed = bellwether().args(["ls", "--connect", servers]).output();
        let mut set = bellwether();
        let set = set.arg("ls").env("BELLWETHER_CONNECT", servers).output();
        for output in [typed, set].map(Result::unwrap) {
            assert_code(&output, 2);
            let said = text(&output.stderr);
            assert!(said.contains(why), "{said}");
        }
    }
}

#[test]
fn local_server_with_a_chroot_is_wrong_usage() {
    let output = bellwether()
        .args(["ls", "--connect", "local/x"])
        .output()
        .unwrap();
    assert_code(&output, 2);
    assert!(
        text(&output.stderr).contains("the local server has no chroot"),
        "{output:?}"
    );
}
