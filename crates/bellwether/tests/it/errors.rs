//! Which errors are transient, and whether the documentation names them.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bellwether::error::{ConnectError, OtherUse, PathError};
use bellwether::{ErrorKind, zk};

const LIMIT: Duration = Duration::from_secs(1);
const REFUSED: zk::Error = zk::Error::Refused(zk::ErrorCode::NoAuth);
const LOST: zk::Error = zk::Error::Unknown;

#[test]
fn kinds_are_transient_where_the_same_call_may_succeed() {
    use ErrorKind as E;
    let try_again = [
        E::NoSession(ConnectError::Lost(LOST)),
        E::SessionEnded,
        E::Disconnected(LOST),
        E::TimedOut { limit: LIMIT },
        E::Full { depth: 3 },
        E::Removed,
        E::Lost,
        E::Held { who: None },
        E::NameTaken,
        E::Undecided,
        E::NotDone { sites: Vec::new() },
    ];
    for kind in try_again {
        assert!(kind.is_transient(), "{kind:?}");
    }
    let others = [
        // Correct the call.
        E::BadPath(PathError::Root),
        E::BadSize {
            size: 0,
            size_max: 1,
        },
        E::TooLarge {
            bytes: 2,
            bytes_max: 1,
        },
        E::OutOfRange,
        E::NotEncodable(Arc::from(Box::from("no text"))),
        E::Unreadable(Arc::from(Box::from("no number"))),
        E::InUse(OtherUse::Recipe("a semaphore")),
        E::Unsupported { reason: "no mark" },
        E::AlreadyBegun,
        E::NotFound,
        E::NotASite {
            site: "a".to_owned(),
        },
        E::SequenceUsedUp,
        E::TooManyEphemerals { bytes: 2 },
        // The client has no further session.
        E::NoSession(ConnectError::Closed),
        // Stop the work.
        E::NotHeld,
        E::LostWithSession,
        // Read, then decide.
        E::OutcomeUnknown(LOST),
        E::Refused {
            index: None,
            source: REFUSED,
        },
        // An answer that is lost is not made transient by being refused.
        E::Refused {
            index: Some(1),
            source: LOST,
        },
        E::Handler(Arc::from(Box::from("disk full"))),
    ];
    for kind in others {
        assert!(!kind.is_transient(), "{kind:?}");
    }
}

/// The verbs of a source file: the doc comment and the signature of each public function that can fail with an error of the library.
fn verbs(source: &str) -> Vec<(String, String)> {
    let mut verbs = Vec::new();
    let mut docs = String::new();
    let mut lines = source.lines().map(str::trim);
    while let Some(line) = lines.next() {
        match line {
            _ if line.starts_with("///") => docs = format!("{docs}\n{line}"),
            _ if line.starts_with("#[") => {}
            _ if line.starts_with("pub fn ") || line.starts_with("pub async fn ") => {
                let mut signature = line.to_owned();
                while !signature.ends_with('{') && !signature.ends_with(';') {
                    let next = lines.next().expect("a signature ends");
                    signature = format!("{signature} {next}");
                }
                if signature.contains(", Error>") || signature.contains("error::Error>") {
                    verbs.push((docs, signature));
                }
                docs = String::new();
            }
            _ => docs.clear(),
        }
    }
    verbs
}

/// The names in backticks that are names of kinds.
fn kinds_in<'a>(text: &'a str, all: &BTreeSet<String>) -> BTreeSet<&'a str> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| all.contains(*word)).collect()
}

#[test]
fn every_verb_names_the_kinds_that_it_returns() {
    let sources = sources();
    let (_, errors) = sources
        .iter()
        .find(|(path, _)| path.ends_with("src/error.rs"))
        .expect("the file of the errors");
    let body = errors.split("pub enum ErrorKind {").nth(1).expect("kinds");
    let body = body.split("\n}\n").next().expect("the end of the kinds");
    let variants = body.lines().filter_map(|line| line.strip_prefix("    "));
    let variants = variants.filter(|line| line.starts_with(char::is_uppercase));
    let name = |line: &str| line.split([' ', '(', ',']).next().map(str::to_owned);
    let all: BTreeSet<String> = variants.filter_map(name).collect();
    assert!(all.len() > 20, "{all:?}");
    let mut named = BTreeSet::new();
    let mut count = 0;
    for (path, source) in &sources {
        for (docs, signature) in verbs(source) {
            let at = format!("{}: {signature}", path.display());
            let section = docs.split("# Errors").nth(1);
            let section = section.unwrap_or_else(|| panic!("{at} has no section about errors"));
            let section = section.split("\n/// # ").next().unwrap_or_default();
            let kinds = kinds_in(section, &all);
            let refers = section.contains("See [`")
                || section.contains(" as [`")
                || section.contains("As [`")
                || section.contains("The first error");
            assert!(refers || !kinds.is_empty(), "{at} names no kind");
            let has_limit = signature.contains("limit: Duration");
            assert!(
                !has_limit || refers || kinds.contains("TimedOut"),
                "{at} has a time limit"
            );
            // A verb that ends a hold tells whether it had ended before.
            if signature.contains("fn ack(self") || signature.contains("fn release(self") {
                assert!(
                    refers || (kinds.contains("NotHeld") && kinds.contains("LostWithSession")),
                    "{at}"
                );
            }
            named.extend(kinds.into_iter().map(str::to_owned));
            count += 1;
        }
        // A kind that a file makes is named in the documentation of some verb.
        for made in source.split("ErrorKind::").skip(1) {
            let kind = made
                .split(|c: char| !c.is_alphanumeric())
                .next()
                .unwrap_or_default();
            assert!(
                all.contains(kind) || !kind.starts_with(char::is_uppercase),
                "{}: there is no kind {kind}",
                path.display()
            );
        }
    }
    assert!(count > 90, "{count} verbs");
    let unnamed: Vec<_> = all.iter().filter(|kind| !named.contains(*kind)).collect();
    assert!(unnamed.is_empty(), "no verb names {unnamed:?}");
    // The groups: each kind is in one of them.
    let groups = errors
        .split("The kind of an [`Error`]")
        .nth(1)
        .expect("the groups");
    let groups = groups
        .split("pub enum ErrorKind")
        .next()
        .expect("their end");
    for kind in &all {
        let link = format!("[`{kind}`](Self::{kind})");
        assert_eq!(groups.matches(&link).count(), 1, "{kind} is in one group");
    }
}

/// The source files of the library.
fn sources() -> Vec<(PathBuf, String)> {
    let mut dirs = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src")];
    let mut sources = Vec::new();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            match path.extension() {
                None => dirs.push(path),
                Some(_) => sources.push((path.clone(), fs::read_to_string(&path).unwrap())),
            }
        }
    }
    sources
}
