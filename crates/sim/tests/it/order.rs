//! Checks that nothing that differs between runs affects code that runs in a simulation.

use std::fs;
use std::path::{Path, PathBuf};

/// Source files of some crates.
fn sources(of: &[&str]) -> Vec<PathBuf> {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let folders = of.iter().map(|name| crates.join(name).join("src"));
    let mut open: Vec<PathBuf> = folders.collect();
    let mut files = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => files.push(path),
            }
        }
    }
    files
}

/// Lines of code, with their numbers; comments are left out.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate();
    lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
}

/// tokio's `select!` begins with a random branch, unless it is `biased`.
#[test]
fn every_select_is_biased() {
    for file in sources(&["bellwether", "client", "server", "sim"]) {
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in code(&text).filter(|(_, line)| line.contains("select! {")) {
            let next = lines.get(number + 1).copied().unwrap_or_default();
            assert_eq!(
                next.trim(),
                "biased;",
                "{}:{}: {line}",
                file.display(),
                number + 1
            );
        }
    }
}

/// Time, random numbers and `yield_now` come through the client's environment. The server has its own, `clock.rs`; it draws no random numbers that clients see,
/// and measures with the real clock what only its metrics show.
#[test]
fn clocks_and_random_numbers_come_through_the_environment() {
    let is_exempt = |file: &Path| {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        ["environment.rs", "tests.rs", "cost.rs", "main.rs"].contains(&name.as_str())
    };
    let files = sources(&["bellwether", "client", "sim"]);
    for file in files.into_iter().filter(|file| !is_exempt(file)) {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in code(&text) {
            for wrong in [
                "SystemTime::now()",
                "RandomState",
                "from_os_rng",
                "std::time::Instant",
                "task::yield_now",
            ] {
                assert!(
                    !line.contains(wrong),
                    "{}:{}: {line}",
                    file.display(),
                    number + 1
                );
            }
        }
    }
}
