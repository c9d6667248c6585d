//! The example that moves money between two databases: killed at each step, the sum stays the same.

use tokio::process::Command;

use crate::support::place::Place;

#[path = "../../../examples/move_money/main.rs"]
#[expect(dead_code, reason = "the example has a main of its own")]
mod example;

/// Makes this binary one of the processes of the example.
const ROLE: &str = "BELLWETHER_TEST_ROLE";

on_both_engines! {
    money_is_neither_lost_nor_made,
}

async fn money_is_neither_lost_nor_made(place: Place) {
    let address = format!("{}{}", place.server(), place.chroot());
    for scene in example::scenes() {
        let shown = example::show(&address, scene, |role| {
            let mut command = Command::new(std::env::current_exe()?);
            let process = "two_phase::money::process";
            command.args(["--exact", process, "--ignored", "--nocapture"]);
            command.env(ROLE, role.join("\n"));
            Ok(command)
        });
        eprintln!("{}", shown.await.unwrap());
    }
}

#[tokio::test]
#[ignore = "not a test, but the processes of the other one"]
async fn process() {
    if let Ok(role) = std::env::var(ROLE) {
        let role: Vec<String> = role.lines().map(str::to_owned).collect();
        example::play(&role).await.unwrap();
    }
}
