//! The tour in the README: its commands still print what it says.

use std::path::Path;
use std::process::Command;

use crate::bellwether::{assert_code, text};

#[test]
fn commands_of_the_tour_print_what_the_readme_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("docs/tour"))
        .arg("--print")
        .env("BELLWETHER", env!("CARGO_BIN_EXE_bellwether"))
        .output()
        .unwrap();
    assert_code(&output, 0);
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let (_, tour) = readme.split_once("<!-- tour -->\n```console\n").unwrap();
    let (tour, _) = tour.split_once("```\n<!-- end of tour -->").unwrap();
    // `docs/tour` writes it anew.
    assert_eq!(steady(tour), steady(&text(&output.stdout)));
}

/// The lines without what is another number each time: times, processes, ports, tokens. Commands and exit codes stay.
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
