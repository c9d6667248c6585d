//! Checks the links between pages: the file exists, and so does the heading.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{files_below, root};

/// All pages of the repository, relative to its root.
fn pages() -> Vec<PathBuf> {
    let of_the_root = std::fs::read_dir(root()).unwrap();
    let of_the_root = of_the_root.map(|entry| PathBuf::from(entry.unwrap().file_name()));
    let files = of_the_root
        .chain(files_below("docs"))
        .chain(files_below("crates"));
    files
        .filter(|file| file.extension().is_some_and(|extension| extension == "md"))
        .collect()
}

/// The text outside of blocks of code.
fn prose(page: &str) -> String {
    let blocks = page.split("\n```");
    blocks.step_by(2).collect::<Vec<_>>().join("\n")
}

/// Targets of the links in a page, except links to other sites.
fn links(page: &str) -> Vec<String> {
    let prose = prose(page);
    let targets = prose.split("](").skip(1);
    let targets = targets.filter_map(|rest| rest.split_once(')'));
    let targets = targets.map(|(target, _)| target.to_owned());
    targets.filter(|target| !target.contains("://")).collect()
}

/// Anchors of the headings in a page, as GitHub generates them.
fn anchors(page: &str) -> BTreeSet<String> {
    let prose = prose(page);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    let anchors = headings.map(|line| {
        let heading = line.trim_start_matches('#').trim().to_lowercase();
        let kept = heading.chars().filter_map(|c| match c {
            ' ' => Some('-'),
            c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
            _ => None,
        });
        kept.collect::<String>()
    });
    anchors.collect()
}

/// What is wrong with a link of `page`, if anything.
fn fault(page: &Path, link: &str) -> Option<String> {
    let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
    let target = match path {
        "" => root().join(page),
        path => root().join(page).parent().unwrap().join(path),
    };
    if !target.exists() {
        return Some(format!("{}: there is no file {path}", page.display()));
    }
    let has_anchor = anchor.is_empty() || anchors(&read(&target)).contains(anchor);
    (!has_anchor).then(|| format!("{}: there is no heading {link}", page.display()))
}

fn read(page: &Path) -> String {
    std::fs::read_to_string(page).unwrap()
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages = pages();
    assert!(pages.contains(&PathBuf::from("README.md")), "{pages:?}");
    let mut links_count = 0;
    let mut faults = Vec::new();
    for page in pages {
        for link in links(&read(&root().join(&page))) {
            links_count += 1;
            faults.extend(fault(&page, &link));
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(links_count > 100, "only {links_count} links were found");
}

#[test]
fn anchors_are_those_of_github() {
    let page = "# A job: `lock PATH -- COMMAND`\n```sh\n# no heading\n```\n## Exit codes\n";
    let expected = ["a-job-lock-path----command", "exit-codes"];
    assert_eq!(anchors(page), expected.map(str::to_owned).into());
}
