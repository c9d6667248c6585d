//! `bellwether tx`.

use std::process::Output;

use serde_json::{Value, json};

use crate::support::bellwether::{Running, assert_code, text};
use crate::support::servers::Servers;

on_local_and_apache! {
    all_commit_when_all_have_voted_so,
    one_vote_to_abort_is_enough,
    transaction_in_doubt_is_seen_and_can_be_ended,
    every_site_decides_for_itself,
    sites_that_are_done_at_the_same_time_all_succeed,
    transaction_that_is_forgotten_is_no_abort,
}

fn run(servers: &Servers, arguments: &[&str]) -> Output {
    servers.run(&[&["tx"], arguments].concat())
}

fn begin(servers: &Servers, options: &[&str]) -> String {
    let output = run(
        servers,
        &[&["begin", "pay", "payer", "payee", "--data", "60"], options].concat(),
    );
    assert_code(&output, 0);
    text(&output.stdout).trim().to_owned()
}

/// A site that has joined.
fn site(servers: &Servers, id: &str, site: &str) -> Running {
    let mut running = Running::start(&mut servers.command(&["tx", "join", "pay", id, site]));
    assert_eq!(
        running.line().as_deref(),
        Some("\"60\""),
        "{:?}",
        running.is_running()
    );
    running
}

fn vote(servers: &Servers, id: &str, site: &str, vote: &str) -> Output {
    run(servers, &["vote", "pay", id, site, vote])
}

fn all_commit_when_all_have_voted_so(servers: &Servers) {
    let id = begin(servers, &[]);
    let mut sites = ["payer", "payee"].map(|name| site(servers, &id, name));
    for name in ["payer", "payee"] {
        assert_code(&vote(servers, &id, name, "commit"), 0);
    }
    let output = run(servers, &["decide", "pay", &id]);
    assert_code(&output, 0);
    assert_eq!(text(&output.stdout), "commit\n");
    for site in &mut sites {
        assert_eq!(site.line().as_deref(), Some("commit"));
        assert_eq!(site.code(), Some(0));
    }
    assert_code(&run(servers, &["wait", "pay", &id]), 0);
    let status = text(&run(servers, &["status", "pay", &id]).stdout);
    assert!(
        status.starts_with(&format!(
            "{id}  transaction, commit, not yet applied at 2 of 2 sites\n"
        )),
        "{status}"
    );
    for (name, forgotten) in [("payer", false), ("payee", true)] {
        let output = run(servers, &["applied", "--json", "pay", &id, name]);
        assert_code(&output, 0);
        let told: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(told["forgotten"], forgotten);
    }
    assert_code(&run(servers, &["status", "pay", &id]), 1);
}

fn one_vote_to_abort_is_enough(servers: &Servers) {
    let id = begin(servers, &["--id", "order-7"]);
    assert_eq!(id, "order-7");
    assert_code(&run(servers, &["begin", "pay", "a", "--id", "order-7"]), 1);
    assert_code(&vote(servers, &id, "payer", "abort"), 0);
    assert_code(&vote(servers, &id, "payer", "commit"), 1);
    assert_code(&vote(servers, &id, "nobody", "commit"), 1);
    let output = run(servers, &["decide", "pay", &id]);
    assert_code(&output, 1);
    assert_eq!(text(&output.stdout), "abort\n");
    assert_code(&run(servers, &["wait", "pay", &id]), 1);
}

fn transaction_in_doubt_is_seen_and_can_be_ended(servers: &Servers) {
    let id = begin(servers, &["--deadline", "1h"]);
    assert_code(&vote(servers, &id, "payer", "commit"), 0);
    assert_code(&run(servers, &["wait", "pay", &id, "--wait", "50ms"]), 124);
    let output = run(servers, &["status", "--in-doubt", "--json", "pay"]);
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    let sites = &status["transactions"][0]["sites"];
    assert_eq!(
        (&sites[0]["vote"], &sites[1]["vote"]),
        (&json!(null), &json!("commit"))
    );
    let seen = servers.bellwether().arg("locks").output().unwrap();
    let said = text(&seen.stdout);
    let title = format!("/pay/{id}  transaction in doubt: 1 of 2 votes are missing\n");
    assert!(
        said.contains(&title) && said.contains("  payee: no vote\n"),
        "{said}"
    );
    let output = run(
        servers,
        &["decide", "pay", &id, "--abort", "no longer wanted"],
    );
    assert_code(&output, 1);
    let seen = servers.bellwether().arg("locks").output().unwrap();
    assert_eq!(text(&seen.stdout), "", "it is decided");
}

fn every_site_decides_for_itself(servers: &Servers) {
    let id = begin(servers, &["--every-site"]);
    let mut sites = ["payer", "payee"].map(|name| site(servers, &id, name));
    for name in ["payer", "payee"] {
        assert_code(&vote(servers, &id, name, "commit"), 0);
    }
    for site in &mut sites {
        assert_eq!(site.line().as_deref(), Some("commit"));
        assert_eq!(site.code(), Some(0));
    }
}

/// One that is decided to commit.
fn committed(servers: &Servers) -> String {
    let id = begin(servers, &[]);
    for name in ["payer", "payee"] {
        assert_code(&vote(servers, &id, name, "commit"), 0);
    }
    assert_code(&run(servers, &["decide", "pay", &id]), 0);
    id
}

fn sites_that_are_done_at_the_same_time_all_succeed(servers: &Servers) {
    for _ in 0..10 {
        let id = committed(servers);
        let applied =
            |name| Running::start(&mut servers.command(&["tx", "applied", "pay", &id, name]));
        for mut site in ["payer", "payee"].map(applied) {
            assert_eq!(site.code(), Some(0), "{:?}", site.errors());
        }
        assert_code(&run(servers, &["status", "pay", &id]), 1);
    }
}

fn transaction_that_is_forgotten_is_no_abort(servers: &Servers) {
    let id = committed(servers);
    for name in ["payer", "payee"] {
        assert_code(&run(servers, &["applied", "pay", &id, name]), 0);
    }
    for arguments in [
        &["wait", "pay", &id][..],
        &["wait", "pay", &id, "--wait", "1s"],
        &["decide", "pay", &id],
        &["join", "pay", &id, "payer"],
    ] {
        let output = run(servers, arguments);
        assert_code(&output, 3);
        let said = text(&output.stderr);
        assert!(said.contains("there is no transaction"), "{said}");
    }
}
