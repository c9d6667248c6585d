//! Checks that doc comments of the library begin with what the thing is, so that a reader who skims first lines knows what stands there.

use std::fs;
use std::path::Path;

/// Words that point at something else, or ask: pronouns, prepositions and question words.
const VAGUE: &[&str] = &[
    "as", "at", "by", "for", "from", "he", "how", "if", "in", "into", "is", "it", "its", "of",
    "on", "such", "that", "their", "them", "these", "they", "this", "those", "to", "what", "when",
    "where", "whether", "which", "while", "who", "whose", "why", "with",
];

#[test]
fn doc_comments_of_the_library_begin_with_what_the_thing_is() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../bellwether/src");
    let mut found = Vec::new();
    collect(&sources, &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn first_lines_are_told_from_later_ones() {
    let source = "//! What it is.\n//! As before.\n\n/// Returns it.\n/// If any.\nfn a() {}\n    /// [`Why`] not.\n";
    assert_eq!(vague(source), [1, 7]);
    assert!(vague("/// The lock.\n///\n/// It locks.\n// Why: a comment.\n").is_empty());
}

fn collect(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let lines = vague(&source).into_iter();
            found.extend(lines.map(|line| format!("{}:{line}", path.display())));
        }
    }
}

/// The numbers of the lines with which a doc comment begins vaguely.
fn vague(source: &str) -> Vec<usize> {
    let mut before = None;
    let mut found = Vec::new();
    for (number, line) in source.lines().enumerate() {
        let marker = ["///", "//!"]
            .into_iter()
            .find(|marker| line.trim_start().starts_with(marker));
        if let Some(marker) = marker
            && before != Some(marker)
            && is_vague(&line.trim_start()[marker.len()..])
        {
            found.push(number + 1);
        }
        before = marker;
    }
    found
}

fn is_vague(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphabetic();
    let text = text.trim_start_matches(|letter| !is_letter(letter));
    let word = text.split(|letter| !is_letter(letter)).next();
    let word = word.unwrap_or_default().to_lowercase();
    VAGUE.contains(&word.as_str())
}
