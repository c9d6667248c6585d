//! The commands on the tree: `ls`, `tree`, `get`, `set`, `create`, `rm`, `stat` and `acl`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

use bellwether_wire::op::Op;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::runtime::Runtime;

use crate::support::bellwether::{assert_code, bellwether, text};
use crate::support::home::Home;
use crate::support::on_tree::{answer, command, json, make_many, proxy, run};

on_both_engines! {
    node_is_created_read_set_and_deleted,
    missing_node_is_1_with_its_path_and_a_hint,
    compare_and_set_refuses_another_version,
    data_comes_unchanged_from_arguments_files_and_stdin,
    children_are_listed_in_order_with_their_numbers,
    tree_is_drawn_to_the_depth,
    lost_reply_is_125_and_says_that_it_may_be_done,
    data_that_is_too_long_is_told,
    create_numbers_makes_parents_and_containers,
    ephemeral_node_stays_as_long_as_the_command,
    ephemeral_node_that_others_delete_is_123,
    subtree_is_deleted_in_batches,
    nodes_that_come_meanwhile_are_deleted_too,
    root_and_the_nodes_of_the_server_are_not_deleted,
    access_lists_are_set_and_obeyed,
}

fn node_is_created_read_set_and_deleted(address: &str) {
    assert_eq!(answer(address, &["create", "-p", "a/b", "one"]), "/a/b\n");
    assert_eq!(answer(address, &["get", "/a/b"]), "one");
    assert_eq!(answer(address, &["set", "/a/b", "zwei é"]), "");
    let node = json(address, &["get", "/a/b", "--json"]);
    assert_eq!(node["path"], "/a/b");
    assert_eq!(node["data"]["text"], "zwei é");
    assert_eq!(node["version"], 1);
    let stat = json(address, &["stat", "/a/b", "--json"]);
    assert_eq!(
        (&stat["bytes"], &stat["kind"]),
        (&7.into(), &"persistent".into())
    );
    let shown = answer(address, &["stat", "/a/b"]);
    assert!(shown.contains("version   1\nbytes     7\n"), "{shown}");
    assert_eq!(answer(address, &["rm", "/a/b"]), "");
    assert_eq!(answer(address, &["ls", "/a"]), "");
}

fn missing_node_is_1_with_its_path_and_a_hint(address: &str) {
    answer(address, &["create", "-p", "/there"]);
    for arguments in [
        &["get", "/not/there"][..],
        &["ls", "/not/there"],
        &["tree", "/not/there"],
        &["stat", "/not/there"],
        &["set", "/not/there", "x"],
        &["rm", "/not/there"],
        &["rm", "-r", "/not/there"],
        &["acl", "get", "/not/there"],
        &["export", "/not/there"],
        &["create", "/not/there/either"],
    ] {
        let output = run(address, arguments);
        assert_code(&output, 1);
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
        let said = text(&output.stderr);
        assert!(said.contains("/not/there"), "{said}");
        assert!(said.contains("\nhint: "), "{said}");
    }
    let again = run(address, &["create", "/there"]);
    assert_code(&again, 1);
    assert!(text(&again.stderr).contains("/there: the node exists already"));
}

fn compare_and_set_refuses_another_version(address: &str) {
    answer(address, &["create", "-p", "/config"]);
    let set = json(address, &["set", "/config", "1", "--expect", "0", "--json"]);
    assert_eq!(set["version"], 1);
    for arguments in [
        &["set", "/config", "2", "--expect", "0"][..],
        &["rm", "/config", "--expect", "0"],
        &["acl", "set", "/config", "world:anyone:r", "--expect", "4"],
    ] {
        let late = run(address, arguments);
        assert_code(&late, 1);
        let said = text(&late.stderr);
        assert!(said.contains("its version differs"), "{said}");
    }
    assert_eq!(answer(address, &["get", "/config"]), "1");
    answer(address, &["rm", "/config", "--expect", "1"]);
}

fn data_comes_unchanged_from_arguments_files_and_stdin(address: &str) {
    let folder = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..=255).chain(*b"\n\n").collect();
    let file = folder.path().join("in");
    std::fs::write(&file, &bytes).unwrap();
    let file = file.to_str().unwrap();
    answer(address, &["create", "-p", "/data", "--file", file]);
    assert_eq!(run(address, &["get", "/data"]).stdout, bytes);
    let node = json(address, &["get", "/data", "--json"]);
    assert!(
        node["data"]["base64"].as_str().unwrap().starts_with("AAEC"),
        "{node}"
    );

    let mut set = command(address, &["set", "/data", "-"]);
    let mut set = set.stdin(Stdio::piped()).spawn().unwrap();
    set.stdin.take().unwrap().write_all(b"-\0-").unwrap();
    assert!(set.wait().unwrap().success());
    let out = folder.path().join("out");
    answer(address, &["get", "/data", "-o", out.to_str().unwrap()]);
    assert_eq!(std::fs::read(&out).unwrap(), b"-\0-");
    answer(address, &["set", "/data"]);
    assert_eq!(answer(address, &["get", "/data"]), "");
    assert_code(&run(address, &["set", "/data", "x", "--file", file]), 2);
}

fn children_are_listed_in_order_with_their_numbers(address: &str) {
    for (path, data) in [
        ("/l/b", "12345"),
        ("/l/a", ""),
        ("/l/a/x", ""),
        ("/l/c d", "é"),
    ] {
        answer(address, &["create", "-p", path, data]);
    }
    assert_eq!(answer(address, &["ls", "l/"]), "a\nb\nc d\n");
    let short = json(address, &["ls", "/l", "--json"]);
    assert_eq!(short["children"][2]["name"], "c d");
    let long = answer(address, &["ls", "-l", "/l"]);
    let lines: Vec<_> = long.lines().collect();
    assert!(
        lines[0].starts_with("- 0 1 0 2") && lines[0].ends_with("Z a"),
        "{long}"
    );
    assert!(
        lines[1].starts_with("- 0 0 5 2") && lines[1].ends_with("Z b"),
        "{long}"
    );
    let long = json(address, &["ls", "--stat", "/l", "--json"]);
    assert_eq!(long["children"][0]["children_count"], 1);
    assert_eq!(long["children"][2]["bytes"], 2);
}

fn tree_is_drawn_to_the_depth(address: &str) {
    for path in ["/t/a/deep/er", "/t/b"] {
        answer(address, &["create", "-p", path]);
    }
    assert_eq!(
        answer(address, &["tree", "/t"]),
        "/t\n├── a\n│   └── deep\n│       └── er\n└── b\n"
    );
    assert_eq!(
        answer(address, &["tree", "/t", "--depth", "1"]),
        "/t\n├── a (1 below)\n└── b\n"
    );
    let lines = answer(address, &["tree", "/t", "--json"]);
    let nodes: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let paths: Vec<_> = nodes.iter().map(|node| &node["path"]).collect();
    assert_eq!(paths, ["/t", "/t/a", "/t/a/deep", "/t/a/deep/er", "/t/b"]);
    assert_eq!(nodes[0]["children_count"], 2);
}

fn lost_reply_is_125_and_says_that_it_may_be_done(address: &str) {
    answer(address, &["create", "-p", "/lost"]);
    let runtime = Runtime::new().unwrap();
    let (proxy, through) = proxy(address, &runtime);
    let lost = proxy.swallow_reply(Op::SetData);
    let output = run(&through, &["set", "/lost", "done"]);
    runtime.block_on(lost.happened()).unwrap();
    assert_code(&output, 125);
    let said = text(&output.stderr);
    assert!(
        said.contains("may have been made or not") && said.contains("hint: look"),
        "{said}"
    );
    assert_eq!(answer(address, &["get", "/lost"]), "done");
}

fn data_that_is_too_long_is_told(address: &str) {
    answer(address, &["create", "-p", "/long"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("long");
    std::fs::write(&file, vec![b'x'; 2 << 20]).unwrap();
    let output = run(address, &["set", "/long", "--file", file.to_str().unwrap()]);
    assert_code(&output, 125);
    let said = text(&output.stderr);
    assert!(said.contains("hint: servers accept about 1 MiB"), "{said}");
}

fn create_numbers_makes_parents_and_containers(address: &str) {
    assert_eq!(answer(address, &["create", "-p", "/q/x"]), "/q/x\n");
    // As with `mkdir -p`: it exists, and stays unchanged.
    answer(address, &["set", "/q/x", "kept"]);
    assert_eq!(
        answer(address, &["create", "-p", "/q/x", "other"]),
        "/q/x\n"
    );
    assert_eq!(answer(address, &["get", "/q/x"]), "kept");
    let paths: Vec<_> = ["/q/item-", "/q/item-", "/q/"]
        .map(|prefix| answer(address, &["create", "--sequential", prefix, "data"]))
        .into();
    assert_eq!(
        paths,
        [
            "/q/item-0000000001\n",
            "/q/item-0000000002\n",
            "/q/0000000003\n"
        ]
    );
    answer(address, &["create", "--container", "/q/c"]);
    assert_code(
        &run(address, &["create", "--container", "--ephemeral", "/q/d"]),
        2,
    );
    assert_code(&run(address, &["create", "/"]), 2);
}

#[test]
fn time_to_live_wants_a_server_with_extended_types() {
    let serve = |options: &[&str]| {
        let mut command = bellwether();
        command
            .args(["serve", "--listen", "127.0.0.1:0"])
            .args(options);
        crate::support::bellwether::serve(&mut command)
    };
    let (_server, addresses) = serve(&[]);
    let refused = run(&addresses[0], &["create", "/t", "--ttl", "1h"]);
    assert_code(&refused, 1);
    let told = text(&refused.stderr);
    assert!(
        told.contains("nodes with a time to live also extended types"),
        "{told}"
    );
    let (_server, addresses) = serve(&["--extended-types"]);
    answer(&addresses[0], &["create", "/t", "--ttl", "1h"]);
}

/// `create --ephemeral` with an open stdin; returns when the node exists.
fn hold(address: &str, path: &str) -> Child {
    let mut command = command(address, &["create", "--ephemeral", path]);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line.trim_end(), path);
    child
}

fn ephemeral_node_stays_as_long_as_the_command(address: &str) {
    answer(address, &["create", "-p", "/e"]);
    let is_there = || run(address, &["stat", "/e/me"]).status.success();
    let mut held = hold(address, "/e/me");
    assert_eq!(
        json(address, &["stat", "/e/me", "--json"])["kind"],
        "ephemeral"
    );
    assert_eq!(answer(address, &["tree", "/e"]), "/e\n└── me (ephemeral)\n");
    assert!(answer(address, &["ls", "-l", "/e"]).starts_with("e "));
    drop(held.stdin.take());
    assert_eq!(held.wait().unwrap().code(), Some(0));
    assert!(!is_there());

    let mut held = hold(address, "/e/me");
    // Waiting would close it, and the end of the input also ends the command.
    let stdin = held.stdin.take();
    kill_process(Pid::from_child(&held), Signal::TERM).unwrap();
    assert_eq!(held.wait().unwrap().code(), Some(143));
    drop(stdin);
    assert!(!is_there());
}

fn ephemeral_node_that_others_delete_is_123(address: &str) {
    answer(address, &["create", "-p", "/e"]);
    let mut held = hold(address, "/e/me");
    answer(address, &["rm", "/e/me"]);
    let stdin = held.stdin.take();
    let output = held.wait_with_output().unwrap();
    drop(stdin);
    assert_code(&output, 123);
    assert!(text(&output.stderr).contains("/e/me is lost: the node was deleted"));
}

fn subtree_is_deleted_in_batches(address: &str) {
    make_many(address, 1203);
    let refused = run(address, &["rm", "/many"]);
    assert_code(&refused, 1);
    assert!(text(&refused.stderr).contains("the node has children"));
    let deleted = run(address, &["rm", "-r", "/many"]);
    assert_code(&deleted, 0);
    assert_eq!(text(&deleted.stderr), "bellwether: 1204 nodes deleted\n");
    assert_code(&run(address, &["stat", "/many"]), 1);

    make_many(address, 3);
    let deleted = json(address, &["rm", "-r", "--yes", "--json", "/many"]);
    assert_eq!(deleted["deleted"], 4);
}

fn nodes_that_come_meanwhile_are_deleted_too(address: &str) {
    make_many(address, 600);
    let runtime = Runtime::new().unwrap();
    let (proxy, through) = proxy(address, &runtime);
    let (direct, came) = (address.to_owned(), AtomicBool::new(false));
    // Loses nothing: this lets the test act between the list and the first transaction.
    let _fault = proxy.drop_request_where(move |request| {
        if request.op == Op::Multi && !came.swap(true, Ordering::SeqCst) {
            answer(&direct, &["create", "-p", "/many/dir/n1/new/comer"]);
        }
        false
    });
    let deleted = json(&through, &["rm", "-r", "--json", "/many"]);
    assert_eq!(deleted["deleted"], 601 + 2);
    assert_code(&run(address, &["stat", "/many"]), 1);
}

fn root_and_the_nodes_of_the_server_are_not_deleted(address: &str) {
    let root = run(address, &["rm", "-r", "--yes", "/"]);
    assert_code(&root, 2);
    // Where the chroot hides them, the path means another node.
    let servers = address.split('/').next().unwrap();
    for path in ["/zookeeper", "/zookeeper/quota"] {
        let refused = run(servers, &["rm", "-r", "--yes", path]);
        assert_code(&refused, 2);
        assert!(text(&refused.stderr).contains("belongs to the server"));
    }
    assert!(answer(servers, &["ls", "/zookeeper"]).contains("quota"));
}

fn access_lists_are_set_and_obeyed(address: &str) {
    let me = ["--auth", "digest:me:secret"];
    let with_me = |arguments: &[&str]| run(address, &[arguments, &me].concat());
    answer(address, &["create", "-p", "/acl"]);
    assert_eq!(
        answer(address, &["acl", "get", "/acl"]),
        "world:anyone:cdrwa\n"
    );
    assert_code(
        &with_me(&["create", "/acl/mine", "x", "--acl", "auth::cdrwa"]),
        0,
    );
    let refused = run(address, &["get", "/acl/mine"]);
    assert_code(&refused, 1);
    assert!(text(&refused.stderr).contains("hint: authenticate with --auth"));
    assert_eq!(text(&with_me(&["get", "/acl/mine"]).stdout), "x");
    let by_variable = command(address, &["get", "/acl/mine"])
        .env("BELLWETHER_AUTH", "digest:me:secret")
        .output();
    assert_eq!(text(&by_variable.unwrap().stdout), "x");
    // An unreadable node does not prevent others from being shown.
    let drawn = answer(address, &["tree", "/acl"]);
    assert_eq!(drawn, "/acl\n└── mine (may not be read)\n");

    // Nor is it shown as one without children.
    assert_code(&with_me(&["create", "/acl/mine/below"]), 0);
    let refused = run(address, &["rm", "-r", "/acl"]);
    assert_code(&refused, 1);
    let said = text(&refused.stderr);
    assert!(
        said.contains("cannot list /acl/mine: access denied"),
        "{said}"
    );
    assert_code(&with_me(&["rm", "/acl/mine/below"]), 0);

    let list = text(&with_me(&["acl", "get", "/acl/mine"]).stdout);
    assert!(
        list.starts_with("digest:me:") && list.ends_with("=:cdrwa\n"),
        "{list}"
    );
    assert_code(
        &with_me(&["acl", "set", "/acl/mine", "world:anyone:r,auth::a"]),
        0,
    );
    assert_eq!(answer(address, &["get", "/acl/mine"]), "x");
    assert_code(&run(address, &["set", "/acl/mine", "y"]), 1);
    // A client without admin permission does not see the digest, and could only export a list that matches no user.
    let export = run(address, &["export", "/acl"]);
    assert_code(&export, 1);
    assert!(text(&export.stderr).contains("hides its access list"));

    assert_code(
        &with_me(&["acl", "set", "-r", "/acl", "world:anyone:cdrwa"]),
        0,
    );
    let list = json(address, &["acl", "get", "/acl/mine", "--json"]);
    assert_eq!(list["acl"][0]["rights"], "cdrwa");
    assert_eq!(list["aversion"], 2);
    assert_code(&run(address, &["acl", "set", "/acl", "world:anyone"]), 2);
    assert_code(&run(address, &["acl", "set", "/acl", "auth::r"]), 1);
}

#[test]
fn every_command_works_on_the_local_default() {
    let home = Home::new();
    let run = |arguments: &[&str]| {
        let mut command = bellwether();
        command.envs([home.variable()]).stdin(Stdio::null());
        let output = command.args(arguments).output().unwrap();
        assert_code(&output, 0);
        text(&output.stdout)
    };
    assert_eq!(run(&["create", "-p", "/a/b", "x"]), "/a/b\n");
    assert_eq!(run(&["ls", "/a"]), "b\n");
    assert_eq!(run(&["tree", "/a"]), "/a\n└── b\n");
    run(&["set", "/a/b", "y"]);
    assert_eq!(run(&["get", "/a/b"]), "y");
    assert!(run(&["stat", "/a/b"]).contains("version   1"));
    assert_eq!(run(&["acl", "get", "/a"]), "world:anyone:cdrwa\n");
    run(&["acl", "set", "/a", "world:anyone:cdrw"]);
    let file = home.0.path().join("export.json");
    let file = file.to_str().unwrap();
    run(&["export", "/a", "-o", file]);
    run(&["import", "/c", file]);
    assert_eq!(run(&["get", "/c/b"]), "y");
    run(&["rm", "-r", "/a"]);
    assert_eq!(run(&["ls"]), "c\nzookeeper\n");
}
