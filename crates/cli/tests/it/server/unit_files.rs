//! The systemd units in `packaging`, checked by systemd itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::bellwether::{assert_code, text};

/// Checks a unit whose program is the one under test.
fn verify(unit: &Path, change: impl Fn(String) -> String) -> Output {
    let folder = TempDir::new().unwrap();
    let copy = folder.path().join(unit.file_name().unwrap());
    let content = std::fs::read_to_string(unit).unwrap();
    let program = env!("CARGO_BIN_EXE_bellwether");
    let content = content.replace("/usr/bin/bellwether", program);
    std::fs::write(&copy, change(content)).unwrap();
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "--recursive-errors=no"]);
    verify.arg(&copy).output().unwrap()
}

fn units() -> Vec<PathBuf> {
    let packaging = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging");
    let files = std::fs::read_dir(packaging).unwrap();
    let files = files.map(|file| file.unwrap().path());
    files
        .filter(|file| file.extension().is_some_and(|ending| ending == "service"))
        .collect()
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    let units = units();
    assert_eq!(units.len(), 2, "{units:?}");
    for unit in units {
        let output = verify(&unit, |content| content);
        assert_code(&output, 0);
        assert_eq!(text(&output.stderr), "", "{}", unit.display());
        // An error would be found.
        let output = verify(&unit, |content| {
            content.replace("ProtectHome=", "ProtectHom=")
        });
        assert!(text(&output.stderr).contains("ProtectHom"), "{output:?}");
    }
}

/// The system calls that a unit allows, as systemd applies its lines one after the other.
fn allowed(unit: &str) -> BTreeSet<String> {
    let filters = unit
        .lines()
        .filter_map(|line| line.strip_prefix("SystemCallFilter="));
    let mut allowed = BTreeSet::new();
    for filter in filters {
        let (denies, names) = match filter.strip_prefix('~') {
            Some(names) => (true, names),
            None => (false, filter),
        };
        for name in names.split_whitespace().flat_map(calls) {
            match denies {
                true => allowed.remove(&name),
                false => allowed.insert(name),
            };
        }
    }
    allowed
}

/// A system call, or those of a group.
fn calls(name: &str) -> Vec<String> {
    if !name.starts_with('@') {
        return vec![name.to_owned()];
    }
    let mut list = Command::new("systemd-analyze");
    let listed = list.args(["syscall-filter", name]).output().unwrap();
    assert_code(&listed, 0);
    let listed = text(&listed.stdout);
    let names = listed.lines().skip(1).map(str::trim);
    let names = names.filter(|name| !name.is_empty() && !name.starts_with('#'));
    names.flat_map(calls).collect()
}

#[test]
fn units_allow_the_server_to_lower_priorities_and_no_other_resource() {
    for unit in units() {
        let content = std::fs::read_to_string(unit).unwrap();
        let allowed = allowed(&content);
        let resources = calls("@resources");
        let resources: Vec<_> = resources
            .iter()
            .filter(|name| allowed.contains(*name))
            .collect();
        assert_eq!(resources, ["setpriority"]);
        assert!(allowed.contains("getpriority") && allowed.contains("fdatasync"));
        assert!(!allowed.contains("chroot"));
    }
}

#[test]
fn systemd_finds_little_exposure() {
    for unit in units() {
        let mut analyze = Command::new("systemd-analyze");
        // In tenths: "OK" ends at 5.
        analyze.args(["security", "--offline=yes", "--no-pager", "--threshold=20"]);
        let output = analyze.arg(&unit).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stdout));
    }
}
