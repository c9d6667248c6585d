//! `--acl`: recipes for the users of a group only.

use std::fs;
use std::process::{Command, Output, Stdio};

use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::bellwether::{Running, assert_code, text};
use crate::support::servers::{Servers, json};

on_both_engines! {
    lock_with_an_access_list_lets_the_group_in_and_no_stranger,
    every_command_gives_its_nodes_the_access_list,
    access_list_without_an_identity_is_explained,
}

/// A user with the credential of the group, whose `bellwether.toml` sets the access list.
struct Member {
    config: TempDir,
    servers: Servers,
}

impl Member {
    fn at(address: &str) -> Self {
        let config = tempfile::tempdir().unwrap();
        fs::write(config.path().join("auth"), "digest:ops:swordfish\n").unwrap();
        let settings = "auth-file = \"auth\"\nacl = \"auth::cdrwa\"\n";
        fs::write(config.path().join("bellwether.toml"), settings).unwrap();
        Self {
            config,
            servers: Servers::at(address),
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.servers.command(arguments);
        command.env("XDG_CONFIG_HOME", self.config.path());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = self.command(arguments);
        command.stdin(Stdio::null()).output().unwrap()
    }

    #[track_caller]
    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert_code(&output, 0);
        text(&output.stdout)
    }
}

fn lock_with_an_access_list_lets_the_group_in_and_no_stranger(address: &str) {
    let servers = Servers::at(address);
    let folder = tempfile::tempdir().unwrap();
    let auth = folder.path().join("auth");
    fs::write(&auth, "digest:ops:swordfish\n").unwrap();
    let group = [
        "--auth-file",
        auth.to_str().unwrap(),
        "--acl",
        "auth::cdrwa",
    ];
    let job = ["--", "sh", "-c", "echo held; exec tail -f /dev/null"];
    let holder = [&["lock", "jobs/nightly"][..], &group, &job].concat();
    let mut holder = Running::start(&mut servers.command(&holder));
    assert_eq!(holder.line().as_deref(), Some("held"));

    let try_lock = ["lock", "jobs/nightly", "--try", "--", "true"];
    let stranger = servers.run(&try_lock);
    assert_code(&stranger, 125);
    let said = text(&stranger.stderr);
    assert!(said.contains("hint: authenticate with --auth"), "{said}");
    // The group gets an answer: the lock is held.
    let member = [&["lock", "jobs/nightly"][..], &group, &["--try", "true"]].concat();
    assert_code(&servers.run(&member), 124);
    holder.signal(Signal::TERM);
    assert_eq!(holder.code(), Some(128 + 15));
    assert_code(&servers.run(&member), 0);
    // The lock's directory has outlived its holders.
    assert_code(&servers.run(&try_lock), 125);
}

fn every_command_gives_its_nodes_the_access_list(address: &str) {
    let member = Member::at(address);
    let run = |line: &str| member.done(&line.split_whitespace().collect::<Vec<_>>());
    let mut holding = Vec::new();
    for (path, options) in [("lock", ""), ("rw", "--read"), ("semaphore", "--of 2")] {
        let line = format!("lock {path} --hold {options}");
        let words: Vec<_> = line.split_whitespace().collect();
        let mut command = member.command(&words);
        let mut hold = Running::start_with(command.stdin(Stdio::piped()));
        assert!(hold.line().is_some());
        holding.push(hold);
    }
    run("lock marked --on-crash run -- true");
    run("elect election -- true");
    run("once once -- true");
    run("rendezvous rendezvous --size 1 -- true");
    run("barrier set barrier");
    run("queue put queue item");
    run("queue put queue another");
    run("queue take queue -- true");
    run("tasks add tasks one");
    run("tasks run tasks -- true");
    run("counter add counter");
    run("config set config value");
    run("name register names one 10.0.0.7 --lasting");
    let id = run("tx begin transactions site");
    run(&format!("tx vote transactions {} site commit", id.trim()));

    let export = json(&member.run(&["export", "/"]));
    let nodes = export["nodes"].as_array().unwrap();
    let mut closed = 0;
    for node in nodes {
        // The chroot itself is above the recipes.
        if node["path"] != "/" {
            assert_eq!(node["acl"][0]["scheme"], "digest", "{node}");
            closed += 1;
        }
    }
    assert!(closed > 20, "{nodes:?}");
    // And a stranger may not even look.
    assert_code(&member.servers.run(&["counter", "get", "counter"]), 125);
    assert_code(&member.servers.run(&["get", "config"]), 1);
}

fn access_list_without_an_identity_is_explained(address: &str) {
    let servers = Servers::at(address);
    let refused = servers.run(&["lock", "jobs/nightly", "--acl", "auth::cdrwa", "true"]);
    assert_code(&refused, 125);
    let said = text(&refused.stderr);
    assert!(
        said.contains("hint: the scheme `auth` needs an identity"),
        "{said}"
    );
    let wrong = servers.run(&["lock", "jobs/nightly", "--acl", "ops", "true"]);
    assert_code(&wrong, 2);
}
