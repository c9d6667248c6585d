use std::collections::BTreeSet;

use super::*;

/// All possible disks after a crash, by a few hundred seeds.
fn left(disk: &CrashDisk) -> BTreeSet<BTreeMap<String, Vec<u8>>> {
    (0..500).map(|seed| disk.crash(seed).files()).collect()
}

fn files<const N: usize>(files: [(&str, &[u8]); N]) -> BTreeMap<String, Vec<u8>> {
    files
        .into_iter()
        .map(|(name, bytes)| (name.to_owned(), bytes.to_vec()))
        .collect()
}

#[test]
fn what_is_synced_stays() {
    let disk = CrashDisk::new();
    let mut file = disk.create("a").unwrap();
    file.write_all(b"bytes").unwrap();
    file.sync().unwrap();
    disk.sync_names().unwrap();
    assert_eq!(left(&disk), BTreeSet::from([files([("a", b"bytes")])]));
    assert_eq!(disk.sync_points(), 2);
}

#[test]
fn a_first_part_of_what_is_not_synced_stays_or_its_sector_is_missing() {
    let disk = CrashDisk::new();
    let mut file = disk.create("a").unwrap();
    file.write_all(b"ab").unwrap();
    file.sync().unwrap();
    disk.sync_names().unwrap();
    file.write_all(b"cd").unwrap();
    let expected: [&[u8]; 7] = [
        b"ab", b"abc", b"abcd", b"ab\0", b"ab\0\0", b"abc\0", b"ab\0\0",
    ];
    let expected: BTreeSet<_> = expected.map(|bytes| files([("a", bytes)])).into();
    assert!(left(&disk).is_subset(&expected), "{:?}", left(&disk));
    assert!(left(&disk).len() > 4);
}

#[test]
fn within_a_file_sectors_are_whole() {
    let disk = CrashDisk::new();
    let mut file = disk.create("a").unwrap();
    file.reserve(4096).unwrap();
    file.sync().unwrap();
    disk.sync_names().unwrap();
    file.write_all(&[1; 1200]).unwrap();
    for files in left(&disk) {
        let bytes = &files["a"];
        assert_eq!(bytes.len(), 4096);
        for sector in [0..512, 512..1024, 1024..1200, 1200..4096] {
            let sector = &bytes[sector];
            assert!(sector.iter().all(|byte| *byte == sector[0]));
        }
    }
}

#[test]
fn names_change_in_their_order() {
    let disk = CrashDisk::new();
    disk.create("new").unwrap().sync().unwrap();
    disk.sync_names().unwrap();
    disk.rename("new", "a").unwrap();
    disk.create("b").unwrap().sync().unwrap();
    disk.remove("a").unwrap();
    let expected = [
        files([("new", b"")]),
        files([("a", b"")]),
        files([("a", b""), ("b", b"")]),
        files([("b", b"")]),
    ];
    assert_eq!(left(&disk), BTreeSet::from(expected));
}

#[test]
fn a_killed_process_writes_no_more_and_what_it_wrote_is_seen() {
    let disk = CrashDisk::new();
    let mut file = disk.create("a").unwrap();
    file.write_all(b"seen").unwrap();
    let next = disk.kill();
    assert!(file.write_all(b"x").is_err());
    assert!(disk.list().is_err());
    assert_eq!(next.contents("a").as_deref(), Some(&b"seen"[..]));
    next.sync("a").unwrap();
    next.sync_names().unwrap();
    assert_eq!(left(&next), BTreeSet::from([files([("a", b"seen")])]));
}

#[test]
fn the_power_goes_off_at_the_sync_that_was_asked_for() {
    let disk = CrashDisk::new();
    disk.crash_at_sync(2);
    let mut file = disk.create("a").unwrap();
    file.sync().unwrap();
    assert!(!disk.is_down());
    assert!(disk.sync_names().is_err());
    assert!(disk.is_down());
    assert!(file.write(b"x").is_err());
    assert!(disk.crash(1).list().is_ok());
}

#[test]
fn operations_fail_when_they_are_told_to() {
    let disk = CrashDisk::new();
    disk.fail(Operation::Write, 2, io::ErrorKind::Other);
    let mut file = disk.create("a").unwrap();
    file.write_all(b"1").unwrap();
    assert!(file.write_all(b"2").is_err());
    file.write_all(b"3").unwrap();
    assert_eq!(disk.contents("a").as_deref(), Some(&b"13"[..]));
}

#[test]
fn a_full_disk_takes_what_it_has_room_for() {
    let disk = CrashDisk::new();
    disk.limit_space(3);
    let mut file = disk.create("a").unwrap();
    file.reserve(100).unwrap();
    let error = file.write_all(b"12345").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.contents("a").unwrap()[..5], *b"123\0\0");
}

#[test]
fn what_a_failed_sync_did_not_write_is_seen_and_never_written() {
    let disk = CrashDisk::new();
    let mut file = disk.create("a").unwrap();
    file.write_all(b"kept").unwrap();
    file.sync().unwrap();
    disk.sync_names().unwrap();
    disk.fail(Operation::Sync, 1, io::ErrorKind::Other);
    file.write_all(b" lost").unwrap();
    assert!(file.sync().is_err());
    let next = disk.kill();
    assert_eq!(next.contents("a").as_deref(), Some(&b"kept lost"[..]));
    next.sync("a").unwrap();
    let expected = files([("a", b"kept\0\0\0\0\0")]);
    assert_eq!(left(&next), BTreeSet::from([expected]));
}

#[test]
fn what_a_failed_sync_did_not_write_can_be_cut_off() {
    let disk = CrashDisk::new();
    let mut file = disk.create("a").unwrap();
    file.write_all(&[1; 2000]).unwrap();
    disk.fail(Operation::Sync, 1, io::ErrorKind::Other);
    assert!(file.sync().is_err());
    disk.sync_names().unwrap();
    let lengths = |disk: &CrashDisk| {
        let left = left(disk).into_iter();
        let lengths = left.map(|files| files["a"].iter().filter(|byte| **byte == 1).count());
        lengths.collect::<BTreeSet<_>>()
    };
    let next = disk.kill();
    assert_eq!(
        lengths(&next.clone()),
        [512].into(),
        "a first part was written"
    );
    let next = next.kill();
    next.truncate("a", 100).unwrap();
    assert_eq!(lengths(&next), [100].into());
}

#[test]
fn a_disk_that_fails_for_good_is_read_only() {
    let disk = CrashDisk::new();
    let mut file = disk.create("a").unwrap();
    file.write_all(b"seen").unwrap();
    disk.fail_for_good(Operation::Sync, 1, io::ErrorKind::Other);
    assert!(file.sync().is_err());
    assert!(file.reserve(0).is_err() && disk.remove("a").is_err());
    assert_eq!(disk.contents("a").as_deref(), Some(&b"seen"[..]));
    assert!(disk.kill().remove("a").is_ok());
}
