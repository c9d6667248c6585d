//! docs/failure-modes.md lists exactly the tests that are named after its rows.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::{files_below, page, root};

/// A test named after a row, and its file.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Test {
    row: u32,
    name: String,
    file: PathBuf,
}

impl Test {
    /// `None` if the name is not that of a test of a row: `t`, two or three digits, an underscore, words.
    fn named(name: &str, file: PathBuf) -> Option<Self> {
        let (row, words) = name.strip_prefix('t')?.split_once('_')?;
        let is_row = matches!(row.len(), 2 | 3) && row.bytes().all(|byte| byte.is_ascii_digit());
        (is_row && !words.is_empty()).then(|| Self {
            row: row.parse().unwrap(),
            name: name.to_owned(),
            file,
        })
    }
}

/// One line of a table: number, fault, effect, tests.
struct Row {
    number: u32,
    tests: Vec<Test>,
}

impl Row {
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<_> = line.strip_prefix("| ")?.split(" | ").collect();
        let number = cells[0].parse().ok()?;
        let [_, wrong, seen, tests] = cells[..] else {
            panic!("row {number} has {} cells", cells.len());
        };
        assert!(wrong.ends_with('.') && seen.ends_with('.'), "row {number}");
        let groups = tests.trim_end_matches(" |").split("; ");
        let tests = groups.flat_map(|group| Self::group(number, group));
        Some(Self {
            number,
            tests: tests.collect(),
        })
    }

    /// Tests of one file, such as `` `t01_a`, `t01_b` in [lock.rs](../crates/…/lock.rs) ``.
    fn group(number: u32, group: &str) -> Vec<Test> {
        let (names, link) = group
            .split_once(" in [")
            .unwrap_or_else(|| panic!("row {number}: no file in {group}"));
        let (_, file) = link.split_once("](../").unwrap();
        let file = PathBuf::from(file.trim_end_matches(')'));
        let names = names.split(", ").map(|name| name.trim_matches('`'));
        let tests = names.map(|name| {
            let test = Test::named(name, file.clone());
            test.unwrap_or_else(|| panic!("row {number}: {name} is not named after a row"))
        });
        tests.collect()
    }
}

fn tests_of_the_tree() -> BTreeSet<Test> {
    let mut tests = BTreeSet::new();
    for file in files_below("crates") {
        if file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let source = std::fs::read_to_string(root().join(&file)).unwrap();
        let names = source.lines().filter_map(|line| {
            let line = line.trim_start();
            let line = line.strip_prefix("async ").unwrap_or(line);
            line.strip_prefix("fn ")?.split_once('(')
        });
        tests.extend(names.filter_map(|(name, _)| Test::named(name, file.clone())));
    }
    tests
}

#[test]
fn failure_modes_and_tests_agree() {
    let page = page("docs/failure-modes.md");
    let rows: Vec<_> = page.lines().filter_map(Row::parse).collect();
    let (mut numbers, mut of_the_page) = (BTreeSet::new(), BTreeSet::new());
    for row in rows {
        assert!(
            numbers.insert(row.number),
            "row {} is there twice",
            row.number
        );
        assert!(!row.tests.is_empty(), "row {} has no test", row.number);
        for test in row.tests {
            assert_eq!(test.row, row.number, "{} is in another row", test.name);
            of_the_page.insert(test);
        }
    }
    let of_the_tree = tests_of_the_tree();
    let missing: Vec<_> = of_the_tree.difference(&of_the_page).collect();
    assert!(missing.is_empty(), "not on the page: {missing:#?}");
    let stale: Vec<_> = of_the_page.difference(&of_the_tree).collect();
    assert!(stale.is_empty(), "not in the tree: {stale:#?}");
}
