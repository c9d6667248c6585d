//! `bellwether doctor`.

use std::net::TcpListener;
use std::process::{Output, Stdio};

use bellwether_server::{Config, SessionPasswords};
use bellwether_testkit::certificates::{Authority, Files};
use bellwether_testkit::{RawClient, TestServer};
use rustix::process::Signal;
use serde_json::Value;

use crate::support::bellwether::{Running, assert_code, bellwether, serve, text, until};
use crate::support::servers::Servers;

on_local_and_apache! {
    healthy_server_is_described_and_fine,
    crashes_and_dead_letters_are_warnings_with_advice,
    interrupt_by_the_user_is_no_warning,
    sessions_that_are_granted_otherwise_are_told,
    directory_that_is_hard_to_list_is_told,
    holds_that_were_not_looked_for_are_told,
    t94_mixed_layouts_are_critical_and_shown_by_locks,
}

fn doctor(servers: &Servers, options: &[&str]) -> Output {
    let mut command = servers.bellwether();
    command.arg("doctor");
    // The timeout that each of the servers grants.
    if !options.contains(&"--session-timeout") {
        command.args(["--session-timeout", "4s"]);
    }
    command.args(options).output().unwrap()
}

/// Severity, check and advice of the findings, without those that are fine.
fn wrong(output: &Output) -> Vec<(String, String, String)> {
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = report["findings"].as_array().unwrap();
    let wrong = findings.iter().filter(|one| one["severity"] != "fine");
    wrong
        .map(|one| {
            let text = |field: &str| one[field].as_str().unwrap_or_default().to_owned();
            (text("severity"), text("check"), text("advice"))
        })
        .collect()
}

/// Findings that do not depend on the load of the machine, or on the history of its server.
fn of_the_tree(output: &Output) -> Vec<(String, String, String)> {
    let mut wrong = wrong(output);
    wrong.retain(|(_, check, _)| ["holds", "queues", "nodes", "session"].contains(&&**check));
    wrong
}

fn healthy_server_is_described_and_fine(servers: &Servers) {
    assert_code(&servers.run(&["create", "-p", "x"]), 0);
    let output = doctor(servers, &[]);
    let said = text(&output.stdout);
    for line in [
        "fine     server   ",
        "session  the session timeout is 4s",
        "latency  answers take ",
        "pauses   the longest pause of this machine was ",
        "holds    0 recipes in use below /, no problems",
    ] {
        assert!(said.contains(line), "{line}: {said}");
    }
    let output = doctor(servers, &["--json"]);
    assert!(of_the_tree(&output).is_empty(), "{output:?}");
}

fn interrupt_by_the_user_is_no_warning(servers: &Servers) {
    let interrupted = servers.run(&["lock", "x", "--", "sh", "-c", "kill -INT $$"]);
    assert_code(&interrupted, 130);
    let output = doctor(servers, &[]);
    let said = text(&output.stdout);
    assert!(
        said.contains("fine     holds    ")
            && said.contains("sh held /x before and was interrupted (SIGINT) ")
            && said.contains("bellwether lock --clear /x"),
        "{said}"
    );
    assert!(of_the_tree(&doctor(servers, &["--json"])).is_empty());
    // Its work may be half done: the next job is told as after any crash.
    let next = ["lock", "x", "--", "sh", "-c", "echo $BELLWETHER_PREVIOUS"];
    assert_eq!(servers.done(&next), "crashed\n");
}

fn crashes_and_dead_letters_are_warnings_with_advice(servers: &Servers) {
    let script = "echo held; exec tail -f /dev/null";
    let arguments = ["lock", "--session-timeout", "4s", "x", "--"];
    let mut holder = servers.bellwether();
    holder.args(arguments).args(["sh", "-c", script]);
    let mut holder = Running::start(&mut holder);
    assert_eq!(holder.line().as_deref(), Some("held"));
    holder.signal(Signal::KILL);
    holder.code();
    assert_code(&servers.run(&["queue", "put", "q", "poison"]), 0);
    let take = ["queue", "take", "q", "--attempts", "1", "--", "false"];
    assert_code(&servers.run(&take), 1);
    let mut found = Vec::new();
    until("the session has ended", || {
        let output = doctor(servers, &["--json"]);
        assert!(matches!(output.status.code(), Some(1 | 3)), "{output:?}");
        found = of_the_tree(&output);
        found
            .iter()
            .any(|(_, _, advice)| advice.contains("bellwether lock --clear /x"))
    });
    let dead = (
        "warning".into(),
        "queues".into(),
        "`bellwether queue dead /q` shows the reasons".into(),
    );
    assert!(found.contains(&dead), "{found:?}");
    assert_eq!(found.len(), 2, "{found:?}");
}

fn t94_mixed_layouts_are_critical_and_shown_by_locks(servers: &Servers) {
    let hold = |arguments: &[&str]| {
        let mut holder = Running::start_with(servers.command(arguments).stdin(Stdio::piped()));
        assert!(holder.line().is_some(), "{:?}", holder.errors());
        holder
    };
    let _ours = hold(&["lock", "--hold", "x"]);
    // As a program with Curator does, which knows nothing of other layouts.
    let theirs = "x/_c_3f0c5d1e-7a43-4f55-9b6e-0d4f8a1b2c3d-lock-";
    let _theirs = hold(&["create", "--ephemeral", "--sequential", theirs, ""]);
    let output = doctor(servers, &["--json"]);
    assert_code(&output, 3);
    let found = of_the_tree(&output);
    let [(severity, check, advice)] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((&**severity, &**check), ("critical", "holds"));
    assert!(advice.contains("--layout"), "{advice}");
    let seen = servers.run(&["locks", "x"]);
    let said = text(&seen.stdout);
    let mixed = "mixed layouts of Curator and bellwether, which do not exclude each other";
    assert!(said.contains(mixed), "{said}");
    assert_eq!(said.matches("  holds  ").count(), 2, "{said}");
    let seen: Value =
        serde_json::from_slice(&servers.run(&["locks", "--json", "x"]).stdout).unwrap();
    assert_eq!(seen["sights"][0]["mixed_layouts"], true, "{seen}");
}

fn sessions_that_are_granted_otherwise_are_told(servers: &Servers) {
    let output = doctor(servers, &["--json", "--session-timeout", "1h"]);
    let found = of_the_tree(&output);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].2.contains("maxSessionTimeout"), "{found:?}");
}

fn directory_that_is_hard_to_list_is_told(servers: &Servers) {
    let name = "x".repeat(60_000);
    for number in 0..9 {
        let path = format!("wide/{number}{name}");
        assert_code(&servers.run(&["create", "-p", &path]), 0);
    }
    let found = of_the_tree(&doctor(servers, &["--json", "wide"]));
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].2.contains("1 MiB of names"), "{found:?}");
}

fn holds_that_were_not_looked_for_are_told(servers: &Servers) {
    for path in ["a/b", "c/d"] {
        assert_code(&servers.run(&["create", "-p", path]), 0);
    }
    let output = doctor(servers, &["--json", "--max-directories", "2"]);
    let found = of_the_tree(&output);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].2.contains("raise --max-directories"), "{found:?}");
    let said = text(&output.stdout);
    assert!(!said.contains("no problems"), "{said}");
}

#[test]
fn server_whose_data_went_back_in_time_is_told() {
    for (flag, expected) in [(None, 0), (Some("--new-epoch"), 1)] {
        let mut command = bellwether();
        command.args(["serve", "-l", "127.0.0.1:0"]).args(flag);
        let (_server, addresses) = serve(&mut command);
        let said = text(&doctor(&Servers::at(&addresses[0]), &[]).stdout);
        let told = said.matches("continues above all earlier zxids").count();
        assert_eq!(told, expected, "{said}");
    }
}

#[test]
fn sequence_numbers_near_their_end_are_critical() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let server = runtime.block_on(TestServer::start()).unwrap();
    let servers = Servers::at(&server.connect_string());
    assert_code(&servers.run(&["create", "-p", "x/y"]), 0);
    for (next, is_near) in [(1 << 30, false), (i32::MAX - 1_000_000, true)] {
        runtime
            .block_on(server.set_child_counter("/x", next))
            .unwrap();
        let output = doctor(&servers, &["--json", "x"]);
        let found = of_the_tree(&output);
        assert_eq!(found.len(), usize::from(is_near), "{next}: {found:?}");
        if is_near {
            assert_code(&output, 3);
            let said = text(&output.stdout);
            let what = format!("the sequence numbers of /x have reached {next}");
            assert!(said.contains(&what), "{said}");
        }
    }
}

#[test]
fn limits_that_are_near_and_passwords_that_can_be_computed_are_told() {
    const CONNECTIONS: usize = 10;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for (passwords, clients, is_told) in [
        (SessionPasswords::Apache, 7, true),
        (SessionPasswords::Secret, 1, false),
    ] {
        let config = Config {
            connections_max: CONNECTIONS,
            session_passwords: passwords,
            ..TestServer::config()
        };
        let server = runtime.block_on(TestServer::with(config)).unwrap();
        // The doctor has two more connections, one of them for words.
        let connect = || runtime.block_on(RawClient::connect(server.address()));
        let _clients: Vec<_> = (0..clients).map(|_| connect().unwrap()).collect();
        let servers = Servers::at(&server.connect_string());
        let said = text(&doctor(&servers, &[]).stdout);
        for finding in [
            format!(
                "critical limits   {} has 9 of 10 connections",
                server.address()
            ),
            "warning  sessions any client can compute the passwords of 8 sessions".to_owned(),
        ] {
            assert_eq!(said.contains(&finding), is_told, "{finding}: {said}");
        }
    }
}

#[test]
fn servers_introduce_themselves() {
    let said = |servers: &Servers| text(&doctor(servers, &[]).stdout);
    let apache = said(&Servers::apache());
    assert!(
        apache.contains(": 3.8.") && apache.contains(", standalone, "),
        "{apache}"
    );
    let local = Servers::local();
    let said_there = said(&local);
    assert!(
        said_there.contains(" is the local server, pid "),
        "{said_there}"
    );
    // The same server by the path of its socket.
    let path = local.bellwether().args(["local", "path"]).output().unwrap();
    let address = format!("unix:{}/socket", text(&path.stdout).trim());
    let named = said(&Servers::at(&address));
    assert!(
        named.contains(&format!("{address} answers in ")) && named.contains(", standalone, "),
        "{named}"
    );
}

#[test]
fn server_that_is_not_there_is_critical() {
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let output = doctor(
        &Servers::at(&format!("127.0.0.1:{port}")),
        &["--json", "--session-timeout", "500ms"],
    );
    assert_code(&output, 3);
    let found = wrong(&output);
    assert_eq!((&*found[0].0, &*found[0].1), ("critical", "connect"));
}

/// A server that listens only for TLS, or only on a Unix socket.
#[test]
fn servers_behind_tls_and_on_sockets_are_checked_as_others_are() {
    let (authority, files) = (Authority::new("authority"), Files::new());
    let ca = files.put("ca.pem", &authority.pem);
    let cert = files.put(
        "server.pem",
        &authority.issue("server", &["127.0.0.1"]).store(),
    );
    let socket = format!("unix:{}", files.path("socket").display());
    for words in [None, Some("*")] {
        let mut serving = bellwether();
        serving.args(["serve", "--listen", &socket, "--tls-listen", "127.0.0.1:0"]);
        serving.arg("--cert").arg(&cert);
        // Every request is slow.
        serving.args(["--slow-request", "0.001ms"]);
        serving.args(words.map(|words| format!("--words={words}")));
        let (mut server, addresses) = serve(&mut serving);
        let secure = addresses[0].strip_suffix(" (TLS)").unwrap();
        let by_tls = Servers::at(secure);
        let mut by_tls = by_tls.command(&["doctor", "--session-timeout", "4s", "--tls-ca"]);
        let by_tls = text(&by_tls.arg(&ca).output().unwrap().stdout);
        let by_socket = text(&doctor(&Servers::at(&socket), &[]).stdout);
        // The kernel says that this user runs the server, who needs no list.
        for (said, address, is_told) in [
            (by_tls, secure, words.is_some()),
            (by_socket, &*socket, true),
        ] {
            assert!(said.contains(&format!("{address} answers in ")), "{said}");
            let unseen = format!("{address} does not tell its counters: ");
            assert_eq!(said.contains(&unseen), !is_told, "{said}");
            for finding in [
                format!("requests of {address} were slow since it started\n"),
                "  operation=".to_owned(),
                format!("fine     clients  most requests of {address} come from "),
            ] {
                let finding = finding.trim_start();
                assert_eq!(said.contains(finding), is_told, "{finding}: {said}");
            }
        }
        server.signal(Signal::TERM);
        assert_eq!(server.code(), Some(0));
    }
}
