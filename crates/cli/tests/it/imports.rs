//! Checks which folder of a crate may import which. Without cycles, a newcomer can read a crate from the bottom up.
//!
//! A module is an entry right below `src`: a folder or a file. `lib.rs` and `main.rs` may import anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

type Imports = BTreeMap<String, BTreeSet<String>>;

/// What each module may import.
type Allowed = &'static [(&'static str, &'static [&'static str])];

/// The library: recipes import the line and the hold, those import requests, and requests import the session.
const LIBRARY: Allowed = &[
    ("events", &[]),
    ("node", &[]),
    ("error", &["node"]),
    ("session", &["error", "events", "node"]),
    ("blocking", &["session"]),
    ("request", &["error", "events", "node", "session"]),
    ("hold", &["error", "events", "node", "request", "session"]),
    (
        "line",
        &["error", "events", "hold", "node", "request", "session"],
    ),
    ("lock", RECIPE),
    ("election", RECIPE),
    ("barrier", RECIPE),
    ("queue", RECIPE),
    ("two_phase", RECIPE),
    ("cache", RECIPE),
    (
        "state",
        &["cache", "error", "events", "node", "request", "session"],
    ),
    (
        "inspect",
        &[
            "barrier",
            "error",
            "hold",
            "line",
            "node",
            "queue",
            "request",
            "session",
            "two_phase",
        ],
    ),
    ("fuzz", &["hold", "line", "node", "queue", "two_phase"]),
];

const RECIPE: &[&str] = &[
    "error", "events", "hold", "line", "node", "request", "session",
];

const WIRE: Allowed = &[
    ("jute", &[]),
    ("acl", &["jute"]),
    ("code", &["jute"]),
    ("connect", &["jute"]),
    ("event", &["jute"]),
    ("stat", &["jute"]),
    ("request", &["acl", "frame", "jute", "op"]),
    ("reply", &["code", "frame", "jute"]),
    ("multi", &["code", "jute", "op", "request"]),
];

const TESTKIT: Allowed = &[
    ("raw", &[]),
    ("model", &["raw"]),
    ("proxy", &["raw"]),
    ("servers", &["proxy", "raw"]),
    ("weather", &["history", "proxy", "servers"]),
];

#[test]
fn imports_of_the_library_go_one_way() {
    check("bellwether", LIBRARY);
}

#[test]
fn imports_of_the_protocol_records_go_one_way() {
    check("wire", WIRE);
}

#[test]
fn imports_of_the_testkit_go_one_way() {
    check("testkit", TESTKIT);
}

#[test]
fn no_folders_of_the_command_are_in_a_cycle() {
    assert_no_cycles("cli");
}

#[test]
fn no_modules_of_the_server_are_in_a_cycle() {
    assert_no_cycles("server");
}

#[test]
fn no_modules_of_the_client_are_in_a_cycle() {
    assert_no_cycles("client");
}

#[test]
fn no_modules_of_torture_dashboard_bench_and_sim_are_in_a_cycle() {
    for package in ["torture", "dashboard", "bench", "sim"] {
        assert_no_cycles(package);
    }
}

#[test]
fn imports_are_read_in_every_form() {
    let source = "
        use crate::error::Error; // not crate::comment::X
        /// See crate::document::Y.
        pub(crate) use crate::{clock, proto::{Op, Reply}, session::Session};
        let size = crate::limits::SIZE;
        macro_rules! m { () => { $crate::exported() } }
    ";
    let imported = imported(source);
    let expected = ["clock", "error", "limits", "proto", "session"];
    assert_eq!(imported, expected.map(str::to_owned).into());
}

#[test]
fn cycle_is_found() {
    let imports = imports_of(&[("a", "use crate::b::B;"), ("b", "use crate::c::C;")]);
    assert_eq!(in_cycles(&imports), BTreeSet::new());
    let imports = imports_of(&[
        ("a", "use crate::b::B;"),
        ("b", "use crate::c::C;"),
        ("c", "use crate::b::B;"),
    ]);
    assert_eq!(in_cycles(&imports), ["b", "c"].map(str::to_owned).into());
}

/// Fails if a module imports what the table does not allow, or the table itself allows a cycle.
fn check(package: &str, allowed: Allowed) {
    let allowed: Imports = allowed
        .iter()
        .map(|(module, imports)| {
            let imports = imports.iter().map(|&name| name.to_owned()).collect();
            ((*module).to_owned(), imports)
        })
        .collect();
    assert_eq!(in_cycles(&allowed), BTreeSet::new());
    let nothing = BTreeSet::new();
    for (module, imports) in imports(package) {
        let allowed = allowed.get(&module).unwrap_or(&nothing);
        let surplus: Vec<_> = imports.difference(allowed).collect();
        assert!(
            surplus.is_empty(),
            "{package}: {module} may not import {surplus:?}"
        );
    }
}

fn assert_no_cycles(package: &str) {
    let found = in_cycles(&imports(package));
    assert!(
        found.is_empty(),
        "{package}: {found:?} import each other in a cycle"
    );
}

/// What each module of a crate imports from the others.
fn imports(package: &str) -> Imports {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("..")
        .join(package)
        .join("src");
    let mut imports = Imports::new();
    for entry in fs::read_dir(sources).unwrap() {
        let path = entry.unwrap().path();
        let module = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if module != "lib" && module != "main" {
            collect(&path, imports.entry(module).or_default());
        }
    }
    without_own(imports)
}

fn imports_of(sources: &[(&str, &str)]) -> Imports {
    let read = |&(module, source): &(&str, &str)| (module.to_owned(), imported(source));
    without_own(sources.iter().map(read).collect())
}

fn without_own(mut imports: Imports) -> Imports {
    for (module, imported) in &mut imports {
        imported.remove(module);
    }
    imports
}

/// Adds the imports of a file, or of the files in a folder.
fn collect(path: &Path, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            collect(&entry.unwrap().path(), found);
        }
    } else if path.ends_with("tests.rs") {
        // Unit tests may import anything.
    } else if path.extension().is_some_and(|extension| extension == "rs") {
        found.extend(imported(&fs::read_to_string(path).unwrap()));
    }
}

/// Modules that a source names after `crate::`. Names at the root of the crate count as modules too, so a module must import from others by
/// their own path, not through `lib.rs`. Unit tests, at the end of a file, may import anything.
fn imported(source: &str) -> BTreeSet<String> {
    let tested = source.split("#[cfg(test)]\nmod tests {").next();
    let code: Vec<&str> = tested
        .unwrap_or_default()
        .lines()
        .map(|line| line.split_once("//").map_or(line, |(code, _)| code))
        .collect();
    let code = code.join("\n");
    let mut found = BTreeSet::new();
    for (at, prefix) in code.match_indices("crate::") {
        if code[..at].ends_with('$') {
            continue;
        }
        let rest = &code[at + prefix.len()..];
        match rest.strip_prefix('{') {
            Some(group) => found.extend(first_names(group)),
            None => found.extend(first_name(rest)),
        }
    }
    found
}

/// The first name of each path in a group, up to the end of that group.
fn first_names(group: &str) -> Vec<String> {
    let mut depth = 0_usize;
    let mut names = Vec::from_iter(first_name(group));
    for (at, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => names.extend(first_name(&group[at + 1..])),
            _ => {}
        }
    }
    names
}

fn first_name(path: &str) -> Option<String> {
    let is_end = |character: char| !character.is_ascii_alphanumeric() && character != '_';
    let name = path.trim_start().split(is_end).next()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Modules that import themselves through others.
fn in_cycles(imports: &Imports) -> BTreeSet<String> {
    let modules = imports.keys().filter(|module| {
        let mut reached = BTreeSet::new();
        let mut next = vec![*module];
        while let Some(from) = next.pop() {
            for to in imports.get(from).into_iter().flatten() {
                if reached.insert(to) {
                    next.push(to);
                }
            }
        }
        reached.contains(module)
    });
    modules.cloned().collect()
}
