//! Faults of the members of an ensemble.

use std::time::Duration;

use anyhow::Result;
use bellwether_testkit::Ensemble;
use rand::Rng as _;
use rand::rngs::StdRng;

/// One fault, from its start until all members serve again.
pub(super) async fn disturb(
    ensemble: &mut Ensemble,
    random: &mut StdRng,
    session_timeout: Duration,
    note: impl Fn(String),
) -> Result<()> {
    let leader = ensemble.leader().await?;
    let others = ensemble.size() - 1;
    let follower = (leader + random.random_range(1..=others)) % ensemble.size();
    // From a time that no client notices to one that no session survives.
    let time = session_timeout.mul_f64(random.random_range(0.1..1.5));
    match random.random_range(0..10) {
        0 => {
            note(format!("member {leader} killed, the leader"));
            ensemble.kill(leader);
            last(time / 2).await;
            ensemble.restart(leader).await?;
        }
        1 => {
            note(format!("member {follower} killed"));
            ensemble.kill(follower);
            last(time / 2).await;
            ensemble.restart(follower).await?;
        }
        2 => {
            note(format!("member {leader} stopped, the leader"));
            ensemble.pause(leader)?;
            last(time).await;
            ensemble.resume(leader)?;
        }
        3 => {
            note(format!("member {follower} stopped"));
            ensemble.pause(follower)?;
            last(time).await;
            ensemble.resume(follower)?;
        }
        4 => {
            note(format!("member {leader} cut off, the leader"));
            ensemble.partition(&[leader]);
            last(time).await;
        }
        5 => {
            note(format!("member {follower} cut off"));
            ensemble.partition(&[follower]);
            last(time).await;
        }
        6 => {
            note(format!("member {follower} does not hear member {leader}"));
            ensemble.block(leader, follower);
            last(time).await;
        }
        7 => {
            note(format!("member {follower} has a full disk"));
            ensemble.fill_disk(follower)?;
            last(time).await;
            ensemble.restart(follower).await?;
        }
        8 => {
            note(format!("member {follower} is slow"));
            ensemble.slow(follower, Duration::from_millis(random.random_range(5..50)));
            last(time).await;
        }
        _ => {
            note("members restarted one after the other".into());
            ensemble.rolling_restart().await?;
        }
    }
    ensemble.heal();
    ensemble.ready().await?;
    note("members: everything is back".into());
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the duration of the fault")]
async fn last(time: Duration) {
    tokio::time::sleep(time).await;
}
