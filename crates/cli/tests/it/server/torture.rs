//! `bellwether torture`: a verdict on recipes under faults.

use std::path::Path;
use std::process::{Command, Output};

use rustix::process::Signal;
use serde_json::Value;

use crate::support::bellwether::{Running, assert_code, bellwether, serve, text};

/// Runs it with its own server, which it kills.
fn torture(arguments: &[&str]) -> Command {
    let mut command = bellwether();
    command.args(["torture", "--session-timeout", "1s"]);
    command.args(arguments);
    command
}

fn summary(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)))
}

#[test]
fn all_recipes_are_right_while_clients_connections_and_server_fail_under_faults() {
    let folder = tempfile::tempdir().unwrap();
    let report = folder.path().join("report");
    let output = torture(&["--embedded", "--for", "8s", "--json", "--report"])
        .arg(&report)
        .output()
        .unwrap();
    assert_code(&output, 0);
    let summary = summary(&output);
    assert_eq!(summary["right"], true);
    let recipes = summary["figures"]["recipes"].as_object().unwrap();
    assert_eq!(recipes.len(), 19, "{recipes:?}");
    for (recipe, counts) in recipes {
        assert!(counts["successes"].as_u64().unwrap() > 0, "{recipe}");
    }
    let faults = summary["figures"]["faults"].as_object().unwrap();
    for fault in ["killed", "paused", "server killed"] {
        assert!(faults.contains_key(fault), "{faults:?}");
    }
    assert_report(&report);
}

fn assert_report(folder: &Path) {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let page = read("index.html");
    assert!(page.contains("every guarantee was kept"));
    assert!(page.contains("<svg") && page.contains("<title>stopped</title>"));
    let first: Value = serde_json::from_str(read("history.jsonl").lines().next().unwrap()).unwrap();
    assert!(first["at"].is_u64() && first["who"].is_u64(), "{first}");
    let summary: Value = serde_json::from_str(&read("summary.json")).unwrap();
    assert_eq!(summary["right"], true);
}

/// An addition of another client, which no history explains.
#[test]
fn what_no_worker_did_is_a_violation() {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    let address = &addresses[0];
    let arguments = ["-c", address, "--recipes", "counter", "--no-faults"];
    let mut torture = Running::start(torture(&arguments).arg("--json"));
    while !torture.error_line().expect("progress").contains("to go") {}
    let run = bellwether()
        .args(["ls", "-c", address, "/torture"])
        .output()
        .unwrap();
    assert_code(&run, 0);
    let counter = format!("/torture/{}/counter", text(&run.stdout).trim());
    let added = bellwether()
        .args(["counter", "add", "-c", address, &counter, "1000000"])
        .output()
        .unwrap();
    assert_code(&added, 0);
    torture.signal(Signal::INT);
    let summary: Value = serde_json::from_str(&torture.line().unwrap()).unwrap();
    assert_eq!(summary["right"], false, "{summary}");
    assert_eq!(summary["violations"][0]["recipe"], "counter");
    let told = torture.errors().join("\n");
    assert!(told.contains("hint: --seed"), "{told}");
    assert_eq!(torture.code(), Some(1));
}

#[test]
fn interrupt_ends_the_faults_and_what_was_recorded_is_checked() {
    let (_server, addresses) = serve(bellwether().args(["serve", "--listen", "127.0.0.1:0"]));
    let address = format!("{}/below", addresses[0]);
    let arguments = ["-c", &address, "--recipes", "lock,counter", "--json"];
    let mut torture = Running::start(&mut torture(&arguments));
    let until = |torture: &mut Running, what: &str| {
        while !torture.error_line().expect(what).contains(what) {}
    };
    until(&mut torture, "to go");
    torture.signal(Signal::INT);
    until(&mut torture, "checked");
    assert_eq!(torture.code(), Some(0));
    let summary: Value = serde_json::from_str(&torture.line().unwrap()).unwrap();
    assert!(summary["figures"]["faults_seconds"].as_f64().unwrap() < 30.0);
    // It leaves nothing behind.
    let output = bellwether()
        .args(["ls", "-c", &address, "/torture"])
        .output();
    assert_eq!(text(&output.unwrap().stdout), "");
}

/// All recipes have a fallback for each of these features, and for all of them together.
#[test]
fn all_recipes_are_right_on_servers_without_newer_features_under_faults() {
    for without in [
        "create2,containers,ttl,persistent-watches,multi-read,remove-watches",
        "containers,ttl",
    ] {
        let output = torture(&["--embedded", "--for", "5s", "--json"])
            .args(["--without", without])
            .output()
            .unwrap();
        assert_code(&output, 0);
        let recipes = &summary(&output)["figures"]["recipes"];
        for (recipe, counts) in recipes.as_object().unwrap() {
            let successes = counts["successes"].as_u64().unwrap();
            assert!(successes > 0, "{recipe} without {without}");
        }
    }
}

/// Sessions move between members: their server is killed, stopped and cut off.
#[test]
fn all_recipes_are_right_on_an_ensemble_under_faults() {
    let output = bellwether()
        .args(["torture", "--ensemble", "3", "--for", "20s", "--json"])
        .output()
        .unwrap();
    assert_code(&output, 0);
    let summary = summary(&output);
    let recipes = summary["figures"]["recipes"].as_object().unwrap();
    assert_eq!(recipes.len(), 19, "{recipes:?}");
    for (recipe, counts) in recipes {
        assert!(counts["successes"].as_u64().unwrap() > 0, "{recipe}");
    }
    let faults = summary["figures"]["faults"].as_object().unwrap();
    assert!(
        faults.keys().any(|fault| fault.starts_with("member")),
        "{faults:?}"
    );
}
