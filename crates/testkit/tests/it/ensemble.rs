//! Faults of real ensembles: each of these tests shows that a fault does what it says.

use std::time::Duration;

use bellwether_testkit::{Apache, Ensemble, RawClient, Request};
use tokio::time::{interval, timeout};

/// Followers give up on a leader that is silent for 25 ticks.
const TICK: Duration = Duration::from_millis(50);

const LIMIT: Duration = Duration::from_secs(60);

async fn start(size: usize) -> Ensemble {
    Apache::builder().tick(TICK).ensemble(size).await.unwrap()
}

async fn write(ensemble: &Ensemble, index: usize, path: &str) -> anyhow::Result<()> {
    let mut client = RawClient::connect(ensemble.address(index)).await?;
    client.call(Request::create(path, "")).await?.ok()?;
    client.call(Request::CloseSession).await?.ok()?;
    Ok(())
}

fn is_running(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// Waits until the role of a member is as expected.
async fn until_role(ensemble: &Ensemble, index: usize, is_right: impl Fn(Option<&str>) -> bool) {
    let mut turns = interval(Duration::from_millis(50));
    timeout(LIMIT, async {
        while !is_right(ensemble.role(index).await.as_deref()) {
            turns.tick().await;
        }
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ensemble_without_its_leader_elects_another_and_takes_it_back_as_follower() {
    let mut ensemble = start(3).await;
    let old = ensemble.leader().await.unwrap();
    ensemble.partition(&[old]);
    let others: Vec<usize> = (0..3).filter(|index| *index != old).collect();
    timeout(LIMIT, async {
        let mut turns = interval(Duration::from_millis(50));
        loop {
            turns.tick().await;
            for index in &others {
                if ensemble.role(*index).await.as_deref() == Some("leader") {
                    return;
                }
            }
        }
    })
    .await
    .unwrap();
    // The old one notices that it has no majority, and serves no client.
    until_role(&ensemble, old, |role| role.is_none()).await;
    write(&ensemble, others[0], "/meanwhile").await.unwrap();
    ensemble.heal();
    until_role(&ensemble, old, |role| role == Some("follower")).await;
    let mut client = RawClient::connect(ensemble.address(old)).await.unwrap();
    client
        .call(Request::Sync { path: "/".into() })
        .await
        .unwrap()
        .ok()
        .unwrap();
    let found = client.call(Request::exists("/meanwhile")).await.unwrap();
    found.ok().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ensemble_of_five_survives_two_members_that_are_cut_off() {
    let mut ensemble = start(5).await;
    let leader = ensemble.leader().await.unwrap();
    let minority: Vec<usize> = (0..5).filter(|index| *index != leader).take(2).collect();
    ensemble.partition(&minority);
    for index in &minority {
        until_role(&ensemble, *index, |role| role.is_none()).await;
    }
    write(&ensemble, leader, "/meanwhile").await.unwrap();
    ensemble.heal();
    for index in &minority {
        until_role(&ensemble, *index, |role| role == Some("follower")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ensemble_member_that_hears_nothing_stops_serving_until_one_direction_is_open_again() {
    let mut ensemble = start(3).await;
    let leader = ensemble.leader().await.unwrap();
    let deaf = (leader + 1) % 3;
    for from in (0..3).filter(|index| *index != deaf) {
        ensemble.block(from, deaf);
    }
    until_role(&ensemble, deaf, |role| role.is_none()).await;
    write(&ensemble, leader, "/meanwhile").await.unwrap();
    ensemble.heal();
    until_role(&ensemble, deaf, |role| role == Some("follower")).await;
}

/// Apache's member does not end by itself then; it takes no further part.
#[tokio::test(flavor = "multi_thread")]
async fn ensemble_continues_without_a_member_whose_disk_is_full_until_it_is_restarted() {
    let mut ensemble = start(3).await;
    let leader = ensemble.leader().await.unwrap();
    let full = (leader + 1) % 3;
    ensemble.fill_disk(full).unwrap();
    for path in ["/one", "/two"] {
        write(&ensemble, leader, path).await.unwrap();
    }
    until_role(&ensemble, full, |role| role.is_none()).await;
    assert!(ensemble.pid(full).is_some_and(is_running));
    ensemble.restart(full).await.unwrap();
    write(&ensemble, full, "/three").await.unwrap();
    let mut client = RawClient::connect(ensemble.address(full)).await.unwrap();
    let found = client.call(Request::exists("/two")).await.unwrap();
    found.ok().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn ensemble_serves_through_a_rolling_restart_and_slow_links_with_an_observer() {
    let builder = Apache::builder().tick(TICK).observers(1);
    let mut ensemble = builder.ensemble(3).await.unwrap();
    assert_eq!(ensemble.role(3).await.as_deref(), Some("observer"));
    write(&ensemble, 3, "/before").await.unwrap();
    ensemble.rolling_restart().await.unwrap();
    let leader = ensemble.leader().await.unwrap();
    ensemble.slow((leader + 1) % 3, Duration::from_millis(20));
    for index in 0..4 {
        write(&ensemble, index, &format!("/after-{index}"))
            .await
            .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ensemble_member_whose_disk_was_replaced_copies_everything_from_the_leader() {
    let mut ensemble = start(3).await;
    let leader = ensemble.leader().await.unwrap();
    write(&ensemble, leader, "/kept").await.unwrap();
    let empty = (leader + 1) % 3;
    ensemble.kill(empty);
    std::fs::remove_dir_all(ensemble.data_dir(empty).join("version-2")).unwrap();
    ensemble.restart(empty).await.unwrap();
    let mut client = RawClient::connect(ensemble.address(empty)).await.unwrap();
    let found = client.call(Request::exists("/kept")).await.unwrap();
    found.ok().unwrap();
}
