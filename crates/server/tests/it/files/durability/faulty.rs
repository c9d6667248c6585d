//! Disks that cannot be read, or only be read.

use std::collections::BTreeMap;
use std::io;

use anyhow::ensure;
use bellwether_testkit::disk::Operation;
use rand::Rng as _;

use super::disks::{Disks, Layout, Which};
use super::for_seed;
use super::world::World;

type Files = BTreeMap<String, Vec<u8>>;

/// A server is started from what other files have, or not at all. What it found is there afterwards.
#[tokio::test]
async fn a_read_error_at_a_start_loses_nothing() {
    let (mut started, mut refused) = (0, 0);
    for nth in 1..25 {
        for which in [Which::Snapshots, Which::Logs] {
            let has_started = for_seed(8_000_000 + nth, async |rng| {
                let disks = Disks::new(Layout::Apart, rng);
                let mut world = World::new();
                ensure!(world.live_on(&disks, rng, 120).await?);
                let disks = disks.kill();
                let before = files(&disks);
                disks
                    .get(which)
                    .fail(Operation::Read, nth, io::ErrorKind::Other);
                world.live_on(&disks, rng, 0).await?;
                if !world.started {
                    ensure!(files(&disks) == before, "files were changed");
                }
                let has_started = world.started;
                let disks = disks.after_a_fall(rng);
                ensure!(world.live_on(&disks, rng, 5).await?);
                Ok(has_started)
            })
            .await;
            match has_started {
                true => started += 1,
                false => refused += 1,
            }
        }
    }
    assert!(
        started > 5 && refused > 5,
        "started {started} times, refused {refused} times"
    );
}

/// As a file system is mounted after an error, or by mistake.
#[tokio::test]
async fn on_a_read_only_disk_nothing_is_lost() {
    for seed in 0..20 {
        for_seed(8_100_000 + seed, async |rng| {
            let disks = Disks::new(Layout::any(rng), rng);
            let mut world = World::new();
            ensure!(world.live_on(&disks, rng, 60).await?);
            let disks = disks.after_a_fall(rng);
            make_read_only(&disks, Which::Snapshots);
            make_read_only(&disks, Which::Logs);
            let completed = world.live_on(&disks, rng, 1).await?;
            ensure!(!completed, "a write was acknowledged");
            let disks = disks.after_a_fall(rng);
            let writes = rng.random_range(1..20);
            ensure!(world.live_on(&disks, rng, writes).await?);
            Ok(())
        })
        .await;
    }
}

fn make_read_only(disks: &Disks, which: Which) {
    for operation in [
        Operation::Create,
        Operation::Write,
        Operation::Reserve,
        Operation::Cut,
        Operation::Rename,
        Operation::Remove,
        Operation::Truncate,
    ] {
        let error = io::ErrorKind::ReadOnlyFilesystem;
        disks.get(which).fail_for_good(operation, 1, error);
    }
}

/// All data files, without what an interrupted start leaves.
fn files(disks: &Disks) -> [Files; 2] {
    [Which::Snapshots, Which::Logs].map(|which| {
        let mut files = disks.get(which).files();
        files.retain(|name, _| !name.starts_with("unfinished"));
        files
    })
}
