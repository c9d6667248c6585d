//! `bellwether local`.

use std::path::PathBuf;

use crate::support::bellwether::{Running, assert_code, text, until};
use crate::support::home::Home;

/// Runs `bellwether local` with arguments.
pub(crate) fn local(home: &Home, arguments: &[&str]) -> std::process::Output {
    let mut command = home.bellwether();
    command.arg("local").args(arguments).output().unwrap()
}

fn local_json(home: &Home, arguments: &[&str]) -> serde_json::Value {
    let output = local(home, arguments);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[test]
fn status_start_stop_log_and_path_tell_of_the_server() {
    let home = Home::new();
    assert_code(&local(&home, &["status"]), 1);
    assert_eq!(local_json(&home, &["status", "--json"])["running"], false);
    assert_code(&local(&home, &["stop"]), 0);
    assert!(!home.folder().exists(), "a look makes no folder");
    assert_code(&local(&home, &["log"]), 0);
    assert_code(&local(&home, &["start"]), 0);
    let server = home.server().unwrap();
    let status = local_json(&home, &["--json", "status"]);
    assert_eq!(status["running"], true);
    assert_eq!(status["pid"], server.as_raw_pid());
    assert_code(&local(&home, &["status"]), 0);
    // It already exists.
    assert_eq!(
        local_json(&home, &["start", "--json"])["pid"],
        server.as_raw_pid()
    );
    let path = text(&local(&home, &["path"]).stdout);
    assert_eq!(PathBuf::from(path.trim()), home.folder());
    std::fs::write(home.folder().join("log"), "a warning\n").unwrap();
    assert_eq!(text(&local(&home, &["log"]).stdout), "a warning\n");
    assert_eq!(local_json(&home, &["stop", "--json"])["stopped"], true);
    assert_code(&local(&home, &["status"]), 1);
    assert_code(&local(&home, &["stop"]), 0);
}

#[test]
fn stop_refuses_while_a_job_runs_and_names_it_and_force_costs_the_job_nothing() {
    let home = Home::new();
    let go = home.0.path().join("go");
    let script = format!(
        "echo held; until test -e {}; do sleep 0.01; done",
        go.display()
    );
    let mut job = Running::start(&mut home.lock(&script));
    assert_eq!(job.line().as_deref(), Some("held"));
    let server = home.server();
    let refused = local(&home, &["stop"]);
    assert_code(&refused, 1);
    let told = text(&refused.stderr);
    // The process to `kill` in order to end the job.
    let who = format!("pid {} ", job.id());
    for part in ["in use", &who, "lock /jobs/nightly", "hint: --force"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let json = local_json(&home, &["stop", "--json"]);
    assert_eq!(json["stopped"], false);
    assert_eq!(json["users"][0]["pid"], job.id().as_raw_pid());
    assert_eq!(home.server(), server);
    assert_code(&local(&home, &["stop", "--force"]), 0);
    // The job has started another server.
    until("a server is back", || {
        home.server().is_some_and(|now| Some(now) != server)
    });
    std::fs::write(go, "").unwrap();
    assert_eq!(job.code(), Some(0), "{:?}", job.errors());
}
