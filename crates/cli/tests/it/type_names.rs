//! Checks that a type name has one meaning within a crate: no two modules define a type or trait of the same name, public or not.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Names that two or more modules still define. A name that is no longer doubled has to be removed from here.
const DOUBLED: &[(&str, &[&str])] = &[
    ("bellwether", &[]),
    ("bench", &["Outcome"]),
    ("cli", &[]),
    ("client", &[]),
    ("dashboard", &[]),
    ("fuzz", &[]),
    ("server", &[]),
    (
        "sim",
        &[
            "Conn", "End", "Kind", "Link", "Member", "Notes", "State", "Step", "Sum",
        ],
    ),
    (
        "testkit",
        &[
            "Event",
            "Fault",
            "Gate",
            "Moment",
            "Operation",
            "State",
            "Stay",
            "Step",
            "What",
        ],
    ),
    ("torture", &[]),
    ("wire", &[]),
];

#[test]
fn no_further_type_name_is_defined_twice_in_a_crate() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = fs::read_dir(&crates).unwrap();
    let folders = folders.map(|folder| folder.unwrap().path());
    let packages: BTreeSet<String> = folders
        .filter(|folder| folder.join("src").is_dir())
        .map(|folder| folder.file_name().unwrap().to_str().unwrap().to_owned())
        .collect();
    let listed = DOUBLED.iter().map(|(package, _)| (*package).to_owned());
    assert_eq!(packages, listed.collect());
    for (package, listed) in DOUBLED {
        let places = doubled(&sources(&crates.join(package).join("src")));
        let found: BTreeSet<&str> = places.keys().map(String::as_str).collect();
        let listed: BTreeSet<&str> = listed.iter().copied().collect();
        let new: Vec<_> = found
            .difference(&listed)
            .map(|name| &places[*name])
            .collect();
        assert!(
            new.is_empty(),
            "{package}: one name, several types: {new:#?}"
        );
        let gone: Vec<_> = listed.difference(&found).collect();
        assert!(gone.is_empty(), "{package}: no longer doubled: {gone:?}");
    }
}

#[test]
fn types_of_all_kinds_are_found_and_those_of_tests_are_not() {
    let source = "pub struct A;\nenum B {}\npub(crate) trait C {}\ntype D<T> = T;\n    struct Inner;\n// struct Comment;
impl A {}\nstruct_like!(E);\n#[cfg(test)]\nmod tests {\nstruct F;\n}\n";
    assert_eq!(defined(source), ["A", "B", "C", "D"]);
    let module = |path: &str, source: &str| (PathBuf::from(path), source.to_owned());
    let sources = [
        module("src/lib.rs", "mod one;\n#[cfg(test)]\nmod two;\nstruct A;"),
        module("src/one.rs", "pub(super) enum A {}"),
        module("src/two.rs", "struct B;"),
        module("src/two/three.rs", "struct B;"),
        module("src/four.rs", "struct B;"),
    ];
    let names: Vec<String> = doubled(&sources).into_keys().collect();
    assert_eq!(names, ["A"]);
}

/// The sources of a crate, by their paths.
fn sources(folder: &Path) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            found.push((path, source));
        }
    }
    found
}

/// Names that are defined more than once, and where.
fn doubled(sources: &[(PathBuf, String)]) -> BTreeMap<String, Vec<String>> {
    let tests: Vec<PathBuf> = sources.iter().flat_map(test_modules).collect();
    let is_test = |path: &Path| {
        let in_one =
            |module: &PathBuf| path.with_extension("") == *module || path.starts_with(module);
        tests.iter().any(in_one)
    };
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, source) in sources.iter().filter(|(path, _)| !is_test(path)) {
        for name in defined(source) {
            let place = format!("{name} in {}", path.display());
            places.entry(name).or_default().push(place);
        }
    }
    places.retain(|_, places| places.len() > 1);
    places
}

/// The modules that a file declares for tests only: their paths without an extension.
fn test_modules((path, source): &(PathBuf, String)) -> Vec<PathBuf> {
    let folder = match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("lib" | "main" | "mod") => path.parent().unwrap().to_owned(),
        _ => path.with_extension(""),
    };
    let declared = source.split("#[cfg(test)]\n").skip(1);
    let names = declared.filter_map(|rest| rest.strip_prefix("mod ")?.split_once(';'));
    let names = names.filter(|(name, _)| !name.contains(char::is_whitespace));
    names.map(|(name, _)| folder.join(name)).collect()
}

/// The types and traits that a source defines at module level, without those of its tests.
fn defined(source: &str) -> Vec<String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next();
    code.unwrap_or_default()
        .lines()
        .filter_map(type_in)
        .collect()
}

/// The type that a line defines.
fn type_in(line: &str) -> Option<String> {
    let visible = line
        .strip_prefix("pub")
        .map(|rest| match rest.strip_prefix('(') {
            Some(scope) => scope.split_once(')').map_or(rest, |(_, rest)| rest),
            None => rest,
        });
    let (kind, rest) = visible
        .unwrap_or(line)
        .trim_start_matches(' ')
        .split_once(' ')?;
    let is_item = line.starts_with(|first: char| !first.is_whitespace());
    let is_type = matches!(kind, "struct" | "enum" | "trait" | "type" | "union");
    let is_end = |character: char| !character.is_alphanumeric() && character != '_';
    let name = rest.split(is_end).next()?;
    (is_item && is_type && !name.is_empty()).then(|| name.to_owned())
}
