//! Checks that a type name has one meaning within a crate: no two modules define a type or trait of the same name, public or not.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn no_type_name_is_defined_twice_in_a_crate() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let folders = fs::read_dir(&crates).unwrap();
    let folders = folders.map(|folder| folder.unwrap().path());
    let sources_of = folders.map(|folder| folder.join("src"));
    let sources_of: Vec<PathBuf> = sources_of.filter(|folder| folder.is_dir()).collect();
    assert!(sources_of.len() > 1, "{crates:?} has all crates");
    for folder in sources_of {
        let doubled = doubled(&sources(&folder));
        assert!(
            doubled.is_empty(),
            "{}: one name, several types: {doubled:#?}",
            folder.display()
        );
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
