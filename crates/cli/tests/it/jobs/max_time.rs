//! `--max-time`: jobs that run too long.

use crate::support::bellwether::{assert_code, bellwether, job, text};

on_both_engines! {
    job_that_runs_too_long_is_stopped_and_the_next_is_told,
    job_that_does_not_listen_is_killed_after_the_grace,
    item_whose_command_runs_too_long_is_given_back,
}

fn job_that_runs_too_long_is_stopped_and_the_next_is_told(address: &str) {
    let arguments = ["lock", "x", "--max-time", "200ms"];
    let script = "trap 'echo asked; exit 3' TERM; tail -f /dev/null & wait";
    let output = job(address, &arguments, script).output().unwrap();
    assert_code(&output, 121);
    assert_eq!(text(&output.stdout), "asked\n");
    let told = text(&output.stderr);
    let how = "stopped after 200ms (--max-time)";
    assert!(told.contains(&format!("the command was {how}")), "{told}");
    let next = job(address, &["lock", "x"], "echo $BELLWETHER_PREVIOUS_END").output();
    assert_eq!(text(&next.unwrap().stdout), format!("{how}\n"));
    // A job that ends in time is not affected.
    let in_time = job(address, &["lock", "x", "--max-time", "60s"], "exit 4").output();
    assert_code(&in_time.unwrap(), 4);
    // As for `timeout`.
    let unlimited = job(address, &["lock", "x", "--max-time", "0"], "exit 5").output();
    assert_code(&unlimited.unwrap(), 5);
}

fn job_that_does_not_listen_is_killed_after_the_grace(address: &str) {
    let arguments = ["lock", "x", "--max-time", "100ms", "--grace", "200ms"];
    let script = "trap '' TERM; setsid tail -f /dev/null & tail -f /dev/null; echo never";
    // The output ends when all processes of the job have closed stdout.
    let output = job(address, &arguments, script).output().unwrap();
    assert_code(&output, 121);
    assert_eq!(text(&output.stdout), "");
    let free = job(address, &["lock", "x", "--try"], "true").output();
    assert_code(&free.unwrap(), 0);
}

fn item_whose_command_runs_too_long_is_given_back(address: &str) {
    let run = |arguments: &[&str]| {
        let mut command = bellwether();
        command.args(arguments).args(["--connect", address]);
        command.output().unwrap()
    };
    assert_code(&run(&["queue", "put", "q", "x"]), 0);
    let take = [
        "queue",
        "take",
        "q",
        "--attempts",
        "1",
        "--max-time",
        "100ms",
    ];
    let output = job(address, &take, "exec tail -f /dev/null").output();
    assert_code(&output.unwrap(), 121);
    let dead = text(&run(&["queue", "dead", "q"]).stdout);
    assert!(dead.contains("stopped after 100ms (--max-time)"), "{dead}");
}
