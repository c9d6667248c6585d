//! Patches: each puts one deliberate mistake into the sources.
//!
//! A patch is a page `crates/sim/mistakes/NAME.toml`:
//!
//! ```toml
//! what = "Sends a deletion once and does not look whether it arrived."
//!
//! [[edit]]
//! file = "crates/bellwether/src/hold/ephemeral_node.rs"
//! # Occurs exactly once in the file.
//! text = "return Removal::Refused(refused);"
//! # What to do instead while the mistake is made.
//! broken = "break Removal::Done;"
//!
//! # A test that fails while the mistake is made, with these words in what it prints.
//! [[test]]
//! name = "lock::histories::scenes::release_reaches_the_server"
//! says = "no progress"
//! ```
//!
//! The text becomes `if MISTAKE { broken } else { text }`. Where that form does not fit, as in a match arm or in the fields of a struct, an edit has
//! `with` instead of `broken`: it replaces the text as it is, but for the word `MISTAKE`, which stands for the question whether the mistake is made.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::Path;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

/// A deliberate mistake as changes of the sources.
#[derive(Debug)]
pub struct Patch {
    /// The name of its page.
    pub name: String,
    page: Page,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Page {
    what: String,
    #[serde(rename = "edit")]
    edits: Vec<Edit>,
    #[serde(default, rename = "test")]
    tests: Vec<FailingTest>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    file: String,
    text: String,
    broken: Option<String>,
    with: Option<String>,
}

/// A test of the library that fails while the mistake is made.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FailingTest {
    /// Its name among the integration tests.
    pub name: String,
    /// Words in what it prints.
    pub says: String,
}

impl Patch {
    /// Reads all pages of a folder, sorted by their names.
    ///
    /// # Errors
    ///
    /// If a page cannot be read. The error names it, also in the other calls.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>> {
        let mut patches = Vec::new();
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|it| it == "toml") {
                let read = Self::read(&path);
                patches.push(read.with_context(|| path.display().to_string())?);
            }
        }
        patches.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(patches)
    }

    fn read(path: &Path) -> Result<Self> {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self::parse(&name, &fs::read_to_string(path)?)
    }

    fn parse(name: &str, page: &str) -> Result<Self> {
        let page: Page = toml::from_str(page)?;
        ensure!(page.what.ends_with('.'), "`what` is no sentence");
        let name = name.to_owned();
        Ok(Self { name, page })
    }

    /// What is wrong: a sentence.
    pub fn what(&self) -> &str {
        &self.page.what
    }

    /// The tests that fail while the mistake is made.
    pub fn tests(&self) -> &[FailingTest] {
        &self.page.tests
    }

    /// Makes all edits of all patches in the sources below `root`. Returns the changed files, by their paths below it.
    ///
    /// # Errors
    ///
    /// If a text is not in its file exactly once, or if two overlap.
    pub fn apply_all(patches: &[Self], root: &Path) -> Result<BTreeMap<String, String>> {
        let mut changes: BTreeMap<&str, Vec<(&Self, &Edit)>> = BTreeMap::new();
        for patch in patches {
            for edit in &patch.page.edits {
                changes.entry(&edit.file).or_default().push((patch, edit));
            }
        }
        let mut files = BTreeMap::new();
        for (file, edits) in changes {
            let of = &edits[0].0.name;
            let source = fs::read_to_string(root.join(file));
            let source = source.with_context(|| format!("{of}.toml: {file}"))?;
            files.insert(file.to_owned(), change(file, &source, &edits)?);
        }
        Ok(files)
    }
}

/// Makes the edits of one file.
fn change(file: &str, source: &str, edits: &[(&Patch, &Edit)]) -> Result<String> {
    let mut places = Vec::new();
    for (patch, edit) in edits {
        let context = || format!("{}.toml: {file}", patch.name);
        let place = edit.place(source).with_context(context)?;
        let replacement = edit.replacement(&patch.name).with_context(context)?;
        places.push((place, &patch.name, replacement));
    }
    places.sort_by_key(|(place, _, _)| place.start);
    let mut changed = String::new();
    let mut end = 0;
    let mut last = "";
    for (place, name, replacement) in places {
        ensure!(
            place.start >= end,
            "{last}.toml and {name}.toml overlap in {file}"
        );
        changed += &source[end..place.start];
        changed += &replacement;
        (end, last) = (place.end, name);
    }
    Ok(changed + &source[end..])
}

impl Edit {
    /// Where its text is.
    fn place(&self, source: &str) -> Result<Range<usize>> {
        let text = line_end_trimmed(&self.text);
        let mut found = source.match_indices(text);
        match (found.next(), found.next()) {
            (Some((start, _)), None) => Ok(start..start + text.len()),
            (None, _) => bail!("does not contain `{text}`"),
            (Some(_), Some(_)) => bail!("contains `{text}` more than once"),
        }
    }

    fn replacement(&self, name: &str) -> Result<String> {
        let is_made = format!("crate::mistake::is_made(\"{name}\")");
        match (&self.broken, &self.with) {
            (Some(broken), None) => Ok(format!(
                "if {is_made} {{ {} }} else {{ {} }}",
                line_end_trimmed(broken),
                line_end_trimmed(&self.text)
            )),
            (None, Some(with)) => Ok(line_end_trimmed(with).replace("MISTAKE", &is_made)),
            _ => bail!("an edit has either `broken` or `with`"),
        }
    }
}

/// A text in several lines, without the end of the last one.
fn line_end_trimmed(text: &str) -> &str {
    text.strip_suffix('\n').unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "fn one() {\n    wait(1);\n    wait(2);\n}\n";

    fn patch(name: &str, edits: &[(&str, &str)]) -> Patch {
        let mut page = "what = 'It is wrong.'\n".to_owned();
        for (text, rest) in edits {
            page += &format!("[[edit]]\nfile = 'one.rs'\ntext = '{text}'\n{rest}\n");
        }
        Patch::parse(name, &page).unwrap()
    }

    fn applied(patches: &[Patch]) -> Result<String, String> {
        let edits = patches.iter();
        let edits: Vec<_> = edits
            .flat_map(|patch| patch.page.edits.iter().map(move |edit| (patch, edit)))
            .collect();
        change("one.rs", SOURCE, &edits).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn edits_of_several_patches_are_made_together() {
        let changed = applied(&[
            patch("late", &[("wait(2);", "with = 'if !MISTAKE { wait(2); }'")]),
            patch("early", &[("wait(1);", "broken = 'wait(0);'")]),
        ]);
        assert_eq!(
            changed.unwrap(),
            "fn one() {\n    if crate::mistake::is_made(\"early\") { wait(0); } else { wait(1); }\n    \
             if !crate::mistake::is_made(\"late\") { wait(2); }\n}\n"
        );
    }

    #[test]
    fn texts_that_are_missing_ambiguous_or_overlap_are_refused_by_name() {
        for (edits, wrong) in [
            (
                vec![("wait(3)", "with = ''")],
                "bad.toml: one.rs: does not contain `wait(3)`",
            ),
            (
                vec![("wait(", "with = ''")],
                "bad.toml: one.rs: contains `wait(` more than once",
            ),
            (
                vec![("wait(1)", "")],
                "bad.toml: one.rs: an edit has either `broken` or `with`",
            ),
            (
                vec![("it(2)", "with = ''")],
                "good.toml and bad.toml overlap in one.rs",
            ),
        ] {
            let good = patch("good", &[("wait(2)", "broken = 'wait(4)'")]);
            assert_eq!(applied(&[good, patch("bad", &edits)]).unwrap_err(), wrong);
        }
    }
}
