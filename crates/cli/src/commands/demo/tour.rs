//! The tour: what is explained, and the commands that show it.
//!
//! The jobs stand still at a barrier, or until they are killed, and not for a time: so each thing is seen as the text says, on any machine.

use super::stage::Stage;

pub(super) async fn play(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    welcome(stage)?;
    lock(stage).await?;
    crash(stage).await?;
    election(stage).await?;
    queue(stage).await?;
    stage.pause().await?;
    stage.say(
        "\nThat was the tour. Its server stops now, and its folder is deleted.\n\
         `bellwether --help` lists all commands; `bellwether lock PATH -- COMMAND` works without any server of yours.",
    )
}

fn welcome(stage: &Stage<'_>) -> anyhow::Result<()> {
    let (folder, address) = (stage.folder().display(), stage.address());
    stage.say(&format!(
        "A tour of bellwether, on a server of its own in {folder}.\n\
         Every command is real. To use the same server from another terminal meanwhile:\n\
         \n  export BELLWETHER_CONNECT={address}"
    ))?;
    match stage.is_on_terminal() {
        true => stage.say("\nEnter goes on, Ctrl-C ends the tour."),
        false => Ok(()),
    }
}

async fn lock(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.title("A lock, and a waiter").await?;
    stage
        .explain("First a barrier. The jobs of this tour will stand still there, so that there is time to look.")
        .await?;
    stage
        .run(&["bellwether", "barrier", "set", "gate"], 0)
        .await?;
    stage
        .explain("One command at a time runs under a lock, among all users and hosts that name the same servers.\nIt gets a fencing token, which rises from holder to holder.")
        .await?;
    let script = "echo \"deploying 1.4 under token $BELLWETHER_TOKEN\"; bellwether barrier wait gate; echo deployed 1.4";
    let first = stage.start(&[
        "bellwether",
        "lock",
        "deploy",
        "-m",
        "release 1.4",
        "--",
        "sh",
        "-c",
        script,
    ])?;
    stage.until_heard(first, "under token").await?;
    stage
        .explain("A second command wants the same lock. It waits in line, in order of arrival.")
        .await?;
    let script = "echo \"deploying 1.5 under token $BELLWETHER_TOKEN\"";
    let second = stage.start(&[
        "bellwether",
        "lock",
        "deploy",
        "-m",
        "release 1.5",
        "--",
        "sh",
        "-c",
        script,
    ])?;
    stage.until_in_line("/deploy", 2).await?;
    stage
        .explain("`locks` shows who holds and who waits, and since when.")
        .await?;
    stage.run(&["bellwether", "locks"], 0).await?;
    stage
        .explain("When the barrier is lifted, the first job ends, and the second runs at once.")
        .await?;
    stage
        .run(&["bellwether", "barrier", "lift", "gate"], 0)
        .await?;
    stage.until_ended(first).await?;
    stage.until_ended(second).await
}

async fn crash(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.title("A crash").await?;
    stage
        .explain("A job can note how far it is. This one stands still at the barrier again.")
        .await?;
    stage
        .run(&["bellwether", "barrier", "set", "gate"], 0)
        .await?;
    let script =
        "bellwether note \"table 3 of 7\"; echo copied 3 tables; bellwether barrier wait gate";
    let job = stage.start(&["bellwether", "lock", "backup", "--", "sh", "-c", script])?;
    stage.until_heard(job, "copied 3 tables").await?;
    stage
        .explain("Now bellwether itself is killed, half way through the job. Every process of the job is killed too,\nbefore the next command can get the lock.")
        .await?;
    stage.kill(job, "-9").await?;
    stage
        .explain("The next holder is told who did not finish, and how far it was. `--on-crash` can refuse to run instead, or repair first.")
        .await?;
    let script = "echo \"previous holder: $BELLWETHER_PREVIOUS, at $BELLWETHER_PREVIOUS_NOTE\"";
    stage
        .run(
            &["bellwether", "lock", "backup", "--", "sh", "-c", script],
            0,
        )
        .await
}

async fn election(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.title("An election").await?;
    stage
        .explain("Of several candidates one leads, and its service runs. It can proclaim a value, such as its address.")
        .await?;
    let candidate = |name: &str| {
        let script = format!("echo {name} leads; exec sleep 100000");
        let value = format!("{name}:8080");
        move |stage: &mut Stage<'_>| {
            stage.start(&[
                "bellwether",
                "elect",
                "scheduler",
                "--value",
                &value,
                "--",
                "sh",
                "-c",
                &script,
            ])
        }
    };
    let first = candidate("10.0.0.1")(stage)?;
    stage.until_heard(first, "10.0.0.1 leads").await?;
    stage
        .explain("Another candidate waits behind it, ready to take over.")
        .await?;
    let second = candidate("10.0.0.2")(stage)?;
    stage.until_in_line("/scheduler", 2).await?;
    stage.explain("Clients look up the leader.").await?;
    stage
        .run(&["bellwether", "leader", "scheduler", "--value"], 0)
        .await?;
    stage
        .explain("The leader is killed, and the other candidate takes over.")
        .await?;
    stage.kill(first, "-9").await?;
    stage.until_heard(second, "10.0.0.2 leads").await?;
    stage.explain("The same question has a new answer.").await?;
    stage
        .run(&["bellwether", "leader", "scheduler", "--value"], 0)
        .await?;
    stage
        .explain("SIGTERM is passed on to the service, and ends both.")
        .await?;
    stage.kill(second, "-TERM").await
}

async fn queue(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.title("A queue, and a dead letter").await?;
    stage
        .explain("A queue delivers each item to one consumer. `put` prints the ids of the items.")
        .await?;
    stage
        .run(
            &[
                "bellwether",
                "queue",
                "put",
                "mails",
                "alice",
                "bob@nowhere",
            ],
            0,
        )
        .await?;
    stage
        .explain(
            "The item is the stdin of the command. It is deleted when the command has succeeded.",
        )
        .await?;
    let send = "echo \"sent to $(cat)\"";
    stage
        .run(
            &[
                "bellwether",
                "queue",
                "take",
                "mails",
                "--",
                "sh",
                "-c",
                send,
            ],
            0,
        )
        .await?;
    stage
        .explain("The next command fails, and its item returns to the queue. After --attempts failures, it becomes a dead letter.")
        .await?;
    let fail = "echo \"no such address: $(cat)\"; exit 1";
    stage
        .run(
            &[
                "bellwether",
                "queue",
                "take",
                "mails",
                "--attempts",
                "1",
                "--",
                "sh",
                "-c",
                fail,
            ],
            1,
        )
        .await?;
    stage
        .explain("Dead letters block no other items, and are kept until a user decides.")
        .await?;
    stage
        .run(&["bellwether", "queue", "dead", "mails"], 0)
        .await?;
    stage
        .explain("The address is repaired, and the dead letter is put back for new attempts.")
        .await?;
    stage
        .run(
            &["bellwether", "queue", "dead", "mails", "--retry", "all"],
            0,
        )
        .await?;
    stage.explain("This time it is delivered.").await?;
    stage
        .run(
            &[
                "bellwether",
                "queue",
                "take",
                "mails",
                "--",
                "sh",
                "-c",
                send,
            ],
            0,
        )
        .await
}
