//! `bellwether.toml`: keys for options that have a flag. Flags win.

use std::process::Output;

use tempfile::TempDir;

use crate::support::bellwether::{Running, assert_code, text};
use crate::support::home::Home;

/// Runs a command with these settings in the user's file.
fn run(home: &Home, settings: &str, arguments: &[&str]) -> Output {
    let config = TempDir::new().unwrap();
    std::fs::write(config.path().join("bellwether.toml"), settings).unwrap();
    let mut command = home.bellwether();
    command.env("XDG_CONFIG_HOME", config.path());
    command.args(arguments).output().unwrap()
}

#[test]
fn keys_stand_for_the_flags_of_a_job_and_flags_win() {
    let home = Home::new();
    let mut holder = Running::start(&mut home.lock("echo held; exec tail -f /dev/null"));
    assert_eq!(holder.line().as_deref(), Some("held"));
    let lock = ["lock", "/jobs/nightly", "--", "true"];
    let settings = "quiet = true\nwait = \"50ms\"\nconflict-exit-code = 75\n";
    let waited = run(&home, settings, &lock);
    assert_code(&waited, 75);
    assert_eq!(text(&waited.stderr), "");
    let other = run(
        &home,
        settings,
        &["lock", "-E", "76", "/jobs/nightly", "--", "true"],
    );
    assert_code(&other, 76);
    for settings in ["max-tim = 1\n", "wait = \"soon\"\n"] {
        let misunderstood = run(&home, settings, &lock);
        assert_code(&misunderstood, 125);
        let told = text(&misunderstood.stderr);
        assert!(told.contains("bellwether.toml"), "{told}");
        // A command that connects to no server needs no file.
        assert_code(&run(&home, settings, &["completions", "bash"]), 0);
    }
    let stopped = run(
        &home,
        "max-time = \"100ms\"\n",
        &["lock", "/other", "--", "tail", "-f", "/dev/null"],
    );
    assert_code(&stopped, 121);
    // This used to crash.
    let refused = run(
        &home,
        "on-crash = \"fail\"\n",
        &["lock", "/other", "--", "true"],
    );
    assert_code(&refused, 122);
    let timeout = run(
        &home,
        "session-timeout = \"5s\"\ngrace = \"2s\"\n",
        &["lock", "/third", "--", "true"],
    );
    assert_code(&timeout, 2);
    let told = text(&timeout.stderr);
    assert!(
        told.contains("more than a third of the session timeout, 5s"),
        "{told}"
    );
}

#[test]
fn file_may_name_the_folder_of_the_local_server() {
    let home = Home::new();
    let folder = home.0.path().join("named");
    let settings = format!("local = \"{}\"\n", folder.display());
    let config = TempDir::new_in(home.0.path()).unwrap();
    std::fs::write(config.path().join("bellwether.toml"), settings).unwrap();
    let mut command = home.bellwether();
    command
        .env_remove("BELLWETHER_LOCAL")
        .env("XDG_CONFIG_HOME", config.path());
    let output = command.args(["local", "path"]).output().unwrap();
    assert_eq!(text(&output.stdout), format!("{}\n", folder.display()));
}
