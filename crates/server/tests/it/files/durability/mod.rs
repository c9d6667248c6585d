//! What a server keeps when its machine, its process or its disk fails at any moment.

mod comparison;
mod disks;
mod faulty;
mod world;

use std::io;

use anyhow::{Context as _, Result, ensure};
use bellwether_testkit::disk::Operation;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use self::disks::{Disks, Layout, Which};
use self::world::World;

pub(crate) use self::comparison::{compare_trees, last_zxid};

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_crash_at_any_sync() {
    let syncs = crash_at_every_sync(1_000_000, Layout::Together, Which::Logs).await;
    assert!(syncs > 30, "only {syncs} syncs in all");
}

#[tokio::test]
async fn nothing_acknowledged_is_lost_by_a_crash_at_any_sync_of_either_disk() {
    let syncs = crash_at_every_sync(2_000_000, Layout::Apart, Which::Logs).await;
    assert!(syncs > 30, "only {syncs} syncs of logs in all");
    let syncs = crash_at_every_sync(3_000_000, Layout::Apart, Which::Snapshots).await;
    assert!(syncs > 3, "only {syncs} syncs of snapshots in all");
}

/// Crashes a server at every sync of one of its disks, and its successors at random points.
async fn crash_at_every_sync(first_seed: u64, layout: Layout, which: Which) -> u64 {
    for nth in 1.. {
        let went_down = for_seed(first_seed + nth, async |rng| {
            let mut disks = Disks::new(layout, rng);
            let mut world = World::new();
            disks.get(which).crash_at_sync(nth);
            world.live_on(&disks, rng, 120).await?;
            let went_down = disks.get(which).is_down();
            // Recovered data must be as good as the original.
            for _ in 0..4 {
                disks = disks.after_a_fall(rng);
                if rng.random_bool(0.7) {
                    disks
                        .get(Which::any(rng))
                        .crash_at_sync(rng.random_range(1..12));
                }
                let writes = [0, 5, 40][rng.random_range(0..3)];
                world.live_on(&disks, rng, writes).await?;
            }
            world.live_on(&disks.after_a_fall(rng), rng, 5).await?;
            Ok(went_down)
        })
        .await;
        if !went_down {
            return nth;
        }
    }
    unreachable!("the writes come to an end")
}

#[tokio::test]
async fn a_start_that_is_interrupted_can_be_repeated() {
    for seed in 0..40 {
        for_seed(4_000_000 + seed, async |rng| {
            let mut disks = Disks::new(Layout::any(rng), rng);
            let mut world = World::new();
            disks.logs.crash_at_sync(rng.random_range(20..60));
            world.live_on(&disks, rng, 120).await?;
            for nth in 1..10 {
                disks = disks.after_a_fall(rng);
                disks.get(Which::any(rng)).crash_at_sync(nth);
                world.live_on(&disks, rng, 0).await?;
            }
            world.live_on(&disks.after_a_fall(rng), rng, 5).await
        })
        .await;
    }
}

/// The system may know a file whose name is not on disk yet.
#[tokio::test]
async fn files_of_a_killed_server_get_their_names_synced_before_anybody_relies_on_them() {
    for seed in 0..20 {
        for_seed(4_500_000 + seed, async |rng| {
            let disks = Disks::new(Layout::Apart, rng);
            let mut world = World::new();
            // The second sync of each disk is that of its first file's name.
            disks.snapshots.crash_at_sync(2);
            ensure!(!world.live_on(&disks, rng, 5).await?);
            let disks = disks.kill();
            disks.logs.crash_at_sync(2);
            ensure!(!world.live_on(&disks, rng, 5).await?);
            let disks = disks.kill();
            disks.snapshots.crash_at_sync(2);
            world.live_on(&disks, rng, 0).await?;
            world.live_on(&disks.crash(rng), rng, 5).await
        })
        .await;
    }
}

#[tokio::test]
async fn a_log_that_cannot_be_written_stops_the_server() {
    let operations = [
        Operation::Create,
        Operation::Write,
        Operation::Reserve,
        Operation::Sync,
        Operation::Rename,
        Operation::SyncNames,
    ];
    let errors = [io::ErrorKind::Other, io::ErrorKind::StorageFull];
    let mut seed = 5_000_000;
    for (operation, error) in operations
        .into_iter()
        .flat_map(|operation| errors.map(|error| (operation, error)))
    {
        for nth in [1, 2, 3, 7] {
            seed += 1;
            for_seed(seed, async |rng| {
                let disks = Disks::new(Layout::Apart, rng);
                disks.logs.fail(operation, nth, error);
                let mut world = World::new();
                let completed = world.live_on(&disks, rng, 2000).await?;
                let failure = world.failure.take();
                ensure!(!completed, "{operation:?} {nth} did not fail");
                if world.started {
                    let failure = failure.context("it stopped for no reason")?;
                    ensure!(failure.contains("a fault"), "{failure}");
                }
                world.live_on(&disks.after_a_fall(rng), rng, 20).await
            })
            .await;
        }
    }
}

/// After a failed fsync the cache may show data that is not on disk, and no later fsync writes it.
#[tokio::test]
async fn nothing_is_built_on_what_a_failed_sync_left_in_the_cache() {
    for seed in 0..60 {
        for_seed(5_500_000 + seed, async |rng| {
            let disks = Disks::new(Layout::Apart, rng);
            let mut world = World::new();
            let nth = rng.random_range(2..20);
            let error = io::ErrorKind::Other;
            // On a read-only file system the log cannot be truncated either.
            if rng.random_bool(0.5) {
                disks.logs.fail_for_good(Operation::Sync, nth, error);
            } else {
                disks.logs.fail(Operation::Sync, nth, error);
            }
            world.live_on(&disks, rng, 200).await?;
            let mut disks = disks.kill();
            for _ in 0..3 {
                // So only the log contains what was recovered from it.
                disks.snapshots.limit_space(0);
                let writes = [0, 1, 10][rng.random_range(0..3)];
                world.live_on(&disks, rng, writes).await?;
                disks = disks.after_a_fall(rng);
            }
            world.live_on(&disks.crash(rng), rng, 5).await
        })
        .await;
    }
}

/// Without space to write the last log anew, it is read again from the disk.
#[tokio::test]
async fn on_a_full_disk_nothing_is_built_on_the_cache_either() {
    let mut started = 0;
    for seed in 0..60 {
        started += for_seed(5_550_000 + seed, async |rng| {
            let disks = Disks::new(Layout::Apart, rng);
            let mut world = World::new();
            let nth = rng.random_range(2..20);
            let error = io::ErrorKind::Other;
            // On a read-only file system the log cannot be truncated either.
            if rng.random_bool(0.5) {
                disks.logs.fail_for_good(Operation::Sync, nth, error);
            } else {
                disks.logs.fail(Operation::Sync, nth, error);
            }
            world.live_on(&disks, rng, 200).await?;
            let disks = disks.kill();
            disks.snapshots.limit_space(0);
            disks.logs.limit_space(0);
            world.live_on(&disks, rng, 0).await?;
            let has_started = world.started;
            ensure!(world.live_on(&disks.after_a_fall(rng), rng, 5).await?);
            Ok(usize::from(has_started))
        })
        .await;
    }
    assert!(
        started > 10,
        "a full disk has prevented all but {started} starts"
    );
}

#[tokio::test]
async fn a_batch_that_could_not_be_synced_is_not_found_by_the_next_server() {
    for seed in 0..20 {
        for_seed(5_600_000 + seed, async |rng| {
            let disks = Disks::new(Layout::Apart, rng);
            let mut world = World::new();
            let nth = rng.random_range(1..20);
            disks.logs.fail(Operation::Sync, nth, io::ErrorKind::Other);
            ensure!(!world.live_on(&disks, rng, 200).await?);
            ensure!(!world.unanswered.is_empty());
            let acknowledged = world.model.zxid();
            let disks = disks.kill();
            let server = disks.start().await?;
            let found = last_zxid(server.addresses()[0]).await?;
            server.shutdown().await;
            ensure!(found == acknowledged, "{found:#x}, not {acknowledged:#x}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_full_disk_stops_the_server_before_anything_is_damaged() {
    for space in (0..4000).step_by(53) {
        for_seed(6_000_000 + space, async |rng| {
            let disks = Disks::new(Layout::Apart, rng);
            disks.logs.limit_space(usize::try_from(space)?);
            let mut world = World::new();
            let completed = world.live_on(&disks, rng, 2000).await?;
            ensure!(!completed, "there was room for everything in {space} bytes");
            world.live_on(&disks.after_a_fall(rng), rng, 20).await
        })
        .await;
    }
}

/// A snapshot that cannot be written only makes recovery longer.
#[tokio::test]
async fn a_snapshot_that_cannot_be_written_is_left_out() {
    for_seed(7_000_000, async |rng| {
        let disks = Disks::new(Layout::Apart, rng);
        let mut world = World::new();
        world.live_on(&disks, rng, 10).await?;
        let disks = disks.kill();
        disks.snapshots.limit_space(100);
        ensure!(world.live_on(&disks, rng, 100).await?);
        let names: Vec<_> = disks.snapshots.files().into_keys().collect();
        ensure!(names == ["snapshot.0"], "{names:?}");
        world.live_on(&disks.after_a_fall(rng), rng, 5).await
    })
    .await;
}

/// Runs a test with a random generator, and prints the seed if it fails.
async fn for_seed<T>(seed: u64, test: impl AsyncFnOnce(&mut StdRng) -> Result<T>) -> T {
    let mut rng = StdRng::seed_from_u64(seed);
    match test(&mut rng).await {
        Ok(value) => value,
        Err(error) => panic!("seed {seed}: {error:?}"),
    }
}
