//! `bellwether tx`.

use std::process::Output;

use serde_json::{Value, json};

use crate::bellwether::{Running, assert_code, bellwether, text};

on_both_engines! {
    all_commit_when_all_have_voted_so,
    one_vote_to_abort_is_enough,
    transaction_in_doubt_is_seen_and_can_be_ended,
    every_site_decides_for_itself,
}

fn command(address: &str, arguments: &[&str]) -> std::process::Command {
    let mut command = bellwether();
    command.args(["tx", arguments[0], "--connect", address]);
    command.args(&arguments[1..]);
    command
}

fn run(address: &str, arguments: &[&str]) -> Output {
    command(address, arguments).output().unwrap()
}

fn begin(address: &str, options: &[&str]) -> String {
    let output = run(
        address,
        &[&["begin", "pay", "payer", "payee", "--data", "60"], options].concat(),
    );
    assert_code(&output, 0);
    text(&output.stdout).trim().to_owned()
}

/// A site that has joined.
fn site(address: &str, id: &str, site: &str) -> Running {
    let mut running = Running::start(&mut command(address, &["join", "pay", id, site]));
    assert_eq!(
        running.line().as_deref(),
        Some("\"60\""),
        "{:?}",
        running.is_running()
    );
    running
}

fn vote(address: &str, id: &str, site: &str, vote: &str) -> Output {
    run(address, &["vote", "pay", id, site, vote])
}

fn all_commit_when_all_have_voted_so(address: &str) {
    let id = begin(address, &[]);
    let mut sites = ["payer", "payee"].map(|name| site(address, &id, name));
    for name in ["payer", "payee"] {
        assert_code(&vote(address, &id, name, "commit"), 0);
    }
    let output = run(address, &["decide", "pay", &id]);
    assert_code(&output, 0);
    assert_eq!(text(&output.stdout), "commit\n");
    for site in &mut sites {
        assert_eq!(site.line().as_deref(), Some("commit"));
        assert_eq!(site.code(), Some(0));
    }
    assert_code(&run(address, &["wait", "pay", &id]), 0);
    let status = text(&run(address, &["status", "pay", &id]).stdout);
    assert!(
        status.starts_with(&format!(
            "{id}  transaction, commit, not done yet at 2 of 2 sites\n"
        )),
        "{status}"
    );
    for (name, forgotten) in [("payer", false), ("payee", true)] {
        let output = run(address, &["applied", "--json", "pay", &id, name]);
        assert_code(&output, 0);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["forgotten"], forgotten);
    }
    assert_code(&run(address, &["status", "pay", &id]), 1);
}

fn one_vote_to_abort_is_enough(address: &str) {
    let id = begin(address, &["--id", "order-7"]);
    assert_eq!(id, "order-7");
    assert_code(&run(address, &["begin", "pay", "a", "--id", "order-7"]), 1);
    assert_code(&vote(address, &id, "payer", "abort"), 0);
    assert_code(&vote(address, &id, "payer", "commit"), 1);
    assert_code(&vote(address, &id, "nobody", "commit"), 1);
    let output = run(address, &["decide", "pay", &id]);
    assert_code(&output, 1);
    assert_eq!(text(&output.stdout), "abort\n");
    assert_code(&run(address, &["wait", "pay", &id]), 1);
}

fn transaction_in_doubt_is_seen_and_can_be_ended(address: &str) {
    let id = begin(address, &["--deadline", "1h"]);
    assert_code(&vote(address, &id, "payer", "commit"), 0);
    assert_code(&run(address, &["wait", "pay", &id, "--wait", "50ms"]), 124);
    let output = run(address, &["status", "--in-doubt", "--json", "pay"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sites = &status["transactions"][0]["sites"];
    assert_eq!(
        (&sites[0]["vote"], &sites[1]["vote"]),
        (&json!(null), &json!("commit"))
    );
    let seen = bellwether()
        .args(["locks", "-c", address])
        .output()
        .unwrap();
    let said = text(&seen.stdout);
    let title = format!("/pay/{id}  transaction in doubt, 1 of 2 votes are missing\n");
    assert!(
        said.contains(&title) && said.contains("  payee: no vote\n"),
        "{said}"
    );
    let output = run(
        address,
        &["decide", "pay", &id, "--abort", "no longer wanted"],
    );
    assert_code(&output, 1);
    let seen = bellwether()
        .args(["locks", "-c", address])
        .output()
        .unwrap();
    assert_eq!(text(&seen.stdout), "", "it is decided");
}

fn every_site_decides_for_itself(address: &str) {
    let id = begin(address, &["--every-site"]);
    let mut sites = ["payer", "payee"].map(|name| site(address, &id, name));
    for name in ["payer", "payee"] {
        assert_code(&vote(address, &id, name, "commit"), 0);
    }
    for site in &mut sites {
        assert_eq!(site.line().as_deref(), Some("commit"));
        assert_eq!(site.code(), Some(0));
    }
}
