//! Checks that ARCHITECTURE.md has every folder on its map, and names no file that does not exist.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{files_below, page, root};

/// The targets of the links in one line, relative to the root.
fn targets(line: &str) -> Vec<PathBuf> {
    let links = line.split("](").skip(1);
    let targets = links.filter_map(|rest| rest.split_once(')'));
    let targets = targets.filter(|(target, _)| !target.starts_with('#'));
    targets.map(|(target, _)| PathBuf::from(target)).collect()
}

/// All folders that contain files of the repository. Test folders mirror the sources, so their roots are enough.
fn folders() -> BTreeSet<PathBuf> {
    let mut folders = BTreeSet::new();
    for top in ["crates", "docs", "packaging"] {
        for file in files_below(top) {
            let folder = file.parent().unwrap();
            let folder = folder.ancestors().find(|above| above.ends_with("tests/it"));
            folders.insert(folder.unwrap_or(file.parent().unwrap()).to_owned());
        }
    }
    folders
}

#[test]
fn every_folder_is_on_the_map() {
    let page = page("ARCHITECTURE.md");
    let named: BTreeSet<_> = page.lines().flat_map(targets).collect();
    let folders = folders();
    assert!(
        folders.contains(Path::new("crates/cli/src/job")),
        "{folders:?}"
    );
    let missing: Vec<_> = folders.difference(&named).collect();
    assert!(missing.is_empty(), "not on the map: {missing:#?}");
}

/// The map names files by links, which another test follows, or by their names in the row of their folder.
#[test]
fn files_on_the_map_are_in_their_folders() {
    let page = page("ARCHITECTURE.md");
    let mut faults = Vec::new();
    let mut names_count = 0;
    for line in page.lines().filter(|line| line.starts_with("| [")) {
        let targets = targets(line);
        let names = line.split('`').skip(1).step_by(2);
        for name in names.filter(|name| name.ends_with(".rs")) {
            names_count += 1;
            let is_there = |folder: &PathBuf| {
                let folder = root().join(folder);
                // The tests of `warm.rs` are in the folder `warm`.
                folder.join(name).exists() || folder.parent().unwrap().join(name).exists()
            };
            if !targets.iter().any(is_there) {
                faults.push(format!("{name} is not in {targets:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(names_count > 100, "only {names_count} files are on the map");
}
