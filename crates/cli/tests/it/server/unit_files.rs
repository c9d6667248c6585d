//! The systemd units in `packaging`, checked by systemd itself.

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
