//! Messages that name what a user can change.

use std::fs::File;

use crate::support::bellwether::{
    Running, assert_code, bellwether, holding, job, text, user_and_host,
};
use crate::support::servers::Servers;

on_both_engines! {
    timeout_names_the_holder,
    chroot_that_does_not_exist_is_called_that,
    data_that_is_no_limit_is_called_that,
    another_size_says_how_to_change_it,
    short_session_timeout_names_the_minimum,
    output_that_cannot_be_written_is_named,
}

fn said(output: &std::process::Output, code: i32) -> String {
    assert_code(output, code);
    text(&output.stderr)
}

fn timeout_names_the_holder(address: &str) {
    let servers = Servers::at(address);
    let holder = holding(address, &["lock", "x"]);
    let waited = servers.run(&["lock", "x", "--wait", "200ms", "true"]);
    let who = format!("waiting for /x, held by {}", user_and_host());
    let told = said(&waited, 124);
    assert!(
        told.contains(&format!("{who} pid {} sh", holder.id())),
        "{told}"
    );
}

fn chroot_that_does_not_exist_is_called_that(address: &str) {
    let servers = Servers::at(&format!("{address}/renamed"));
    for arguments in [&["ls"][..], &["tree"], &["stat"]] {
        let told = said(&servers.run(arguments), 1);
        assert!(
            told.contains("the chroot in --connect does not exist"),
            "{told}"
        );
    }
}

fn data_that_is_no_limit_is_called_that(address: &str) {
    let servers = Servers::at(address);
    servers.done(&["put", "s", "many"]);
    let told = said(&servers.run(&["lock", "s", "--of", "3", "true"]), 2);
    assert!(
        told.contains("the data of /s is not a number of permits")
            && told.contains("bellwether set /s M"),
        "{told}"
    );
}

fn another_size_says_how_to_change_it(address: &str) {
    let servers = Servers::at(address);
    let mut first = Running::start(&mut job(address, &["rendezvous", "r", "-n", "2"], "true"));
    assert!(first.error_line().is_some());
    let told = said(&servers.run(&["rendezvous", "r", "-n", "3", "true"]), 2);
    assert!(told.contains("bellwether rm -r /r"), "{told}");
}

fn short_session_timeout_names_the_minimum(address: &str) {
    let servers = Servers::at(address);
    servers.done(&["put", "x", ""]);
    let told = said(&servers.run(&["stat", "x", "--session-timeout", "1ms"]), 0);
    assert!(
        told.contains("the session timeout is ")
            && told.contains("the minimum of the servers, and not 1ms"),
        "{told}"
    );
}

fn output_that_cannot_be_written_is_named(address: &str) {
    let servers = Servers::at(address);
    servers.done(&["put", "x", "data"]);
    for arguments in [
        &["ls"][..],
        &["get", "x"],
        &["tree"],
        &["stat", "x"],
        &["queue", "put", "q", "a"],
    ] {
        let mut command = servers.command(arguments);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let told = said(&command.stdout(full).output().unwrap(), 125);
        assert!(
            told.contains("cannot write the answer to stdout: No space left"),
            "{told}"
        );
    }
}

#[test]
fn file_in_place_of_a_folder_is_no_failing_disk() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "x").unwrap();
    let mut command = bellwether();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data"]);
    let told = said(&command.arg(&file).output().unwrap(), 2);
    assert!(
        told.contains("is a file") && !told.contains("disk"),
        "{told}"
    );
}

#[test]
fn errors_of_zoo_cfg_name_the_file_and_the_line() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("zoo.cfg");
    std::fs::write(&file, "dataDir=/nonexistent\ntickTime=often\n").unwrap();
    let output = bellwether().args(["serve", "--config"]).arg(&file).output();
    let told = text(&output.unwrap().stderr);
    let place = format!("{}: line 2: tickTime", file.display());
    assert!(told.contains(&place), "{told}");
}

#[test]
fn times_follow_the_zone() {
    let servers = Servers::local();
    servers.done(&["put", "x", ""]);
    let time = |zone: &str| {
        let mut command = servers.command(&["stat", "x"]);
        text(&command.env("TZ", zone).output().unwrap().stdout)
    };
    assert!(time("UTC0").contains('Z'), "{}", time("UTC0"));
    assert!(time("XYZ-5:30").contains("+05:30"), "{}", time("XYZ-5:30"));
}
