//! The transcripts in README.md and docs/tour.md: their commands still print what the pages show.

use std::path::Path;
use std::process::Command;

use crate::support::bellwether::{assert_code, text};

#[test]
fn commands_of_the_readme_print_what_it_shows() {
    assert_prints_what_it_shows("README.md");
}

#[test]
fn commands_of_the_tour_print_what_it_shows() {
    assert_prints_what_it_shows("docs/tour.md");
}

#[track_caller]
fn assert_prints_what_it_shows(page: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("docs/tour"))
        .args(["--print", page])
        .env("BELLWETHER", env!("CARGO_BIN_EXE_bellwether"))
        .output()
        .unwrap();
    assert_code(&output, 0);
    let text_of_page = std::fs::read_to_string(root.join(page)).unwrap();
    let (_, tour) = text_of_page
        .split_once("<!-- tour -->\n```console\n")
        .unwrap();
    let (tour, _) = tour.split_once("```\n<!-- end of tour -->").unwrap();
    // `docs/tour` regenerates it.
    assert_eq!(steady(tour), steady(&text(&output.stdout)));
}

/// The lines without the numbers that differ between runs: times, processes, tokens. Commands and exit codes stay.
fn steady(transcript: &str) -> Vec<String> {
    let steady = |line: &str| {
        if line.starts_with("$ ") || line.starts_with("exit code ") {
            return line.to_owned();
        }
        let parts = line.split(|c: char| c.is_ascii_digit());
        let parts: Vec<_> = parts.filter(|part| !part.is_empty()).collect();
        parts.join("N")
    };
    transcript.lines().map(steady).collect()
}
