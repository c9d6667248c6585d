//! Each row of the threat model in SECURITY.md names tests that exist, or says that the party can.

use std::path::{Path, PathBuf};

use super::{page, root};

/// Where the modules of the table are, unless it names a file.
const TESTS: &str = "crates/server/tests/it";

/// The rows, as cells. The title and the line below it are left out.
fn rows(page: &str) -> Vec<Vec<&str>> {
    let (_, table) = page.split_once("\n| Who | Cannot |").unwrap();
    let lines = table
        .lines()
        .skip(2)
        .take_while(|line| line.starts_with('|'));
    lines
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect()
}

/// The names of the tests in a file.
fn tests_in(file: &Path) -> Vec<String> {
    let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
    let mut names = Vec::new();
    let mut is_test = false;
    for line in source.lines().map(str::trim_start) {
        let line = line.strip_prefix("async ").unwrap_or(line);
        if line.starts_with("#[test]") || line.starts_with("#[tokio::test") {
            is_test = true;
        } else if let Some(function) = line.strip_prefix("fn ") {
            let name = function.split('(').next().unwrap_or_default();
            names.extend(std::mem::take(&mut is_test).then(|| name.to_owned()));
        }
    }
    names
}

/// The files of a module and of those below it.
fn files_of(module: &[&str]) -> Vec<PathBuf> {
    let base = module
        .iter()
        .fold(PathBuf::from(TESTS), |path, name| path.join(name));
    let mut files = vec![base.with_extension("rs")];
    if root().join(&base).is_dir() {
        files.extend(super::files_below(base.to_str().unwrap()));
    }
    files
}

/// Why a name in the table is that of no test.
fn fault(name: &str) -> Option<String> {
    let is_there = if name.contains('/') {
        let source = std::fs::read_to_string(root().join(name)).unwrap_or_default();
        source.contains("#[test]")
            || source.contains("#[tokio::test")
            || source.contains("on_both_engines!")
    } else {
        let mut module: Vec<_> = name.split("::").collect();
        let test = module.pop().unwrap();
        let names = files_of(&module);
        let mut names = names.iter().flat_map(|file| tests_in(file));
        match test {
            "" => names.next().is_some(),
            test => names.any(|name| name == test),
        }
    };
    (!is_there).then(|| format!("{name} is no test"))
}

#[test]
fn each_row_of_the_threat_model_has_its_tests() {
    let page = page("SECURITY.md");
    let rows = rows(&page);
    assert!(rows.len() > 15, "{rows:?}");
    let mut faults = Vec::new();
    for row in rows {
        let [who, cannot, _, _, tests] = row[..] else {
            panic!("{row:?} has {} cells", row.len());
        };
        let tests: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        let is_conceded = cannot.contains("can**");
        if tests.is_empty() != is_conceded {
            faults.push(format!("{who}: {cannot}: {} tests", tests.len()));
        }
        faults.extend(tests.into_iter().filter_map(fault));
    }
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn names_that_are_no_tests_are_noticed() {
    for name in [
        "hostile::abuse::nothing",
        "nowhere::",
        "crates/server/src/engine.rs",
    ] {
        assert!(fault(name).is_some(), "{name}");
    }
    assert_eq!(fault("hostile::abuse::greed::"), None);
}
