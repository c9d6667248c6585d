//! `wchs`, `wchc` and `wchp`: watches as totals, by session and by path.

use std::fmt::Display;

/// The answer to `wchs`.
pub(crate) fn wchs(sessions: usize, paths: usize, watches: usize) -> String {
    format!("{sessions} connections watching {paths} paths\nTotal watches:{watches}\n")
}

/// The answer to `wchc`: watched paths by session.
pub(crate) fn wchc<S: AsRef<str>>(by_session: &[(i64, Vec<S>)]) -> String {
    blocks(by_session.iter().map(|(session, paths)| {
        let paths = paths.iter().map(|path| path.as_ref().to_owned());
        (format!("0x{session:x}"), paths)
    }))
}

/// The answer to `wchp`: watching sessions by path.
pub(crate) fn wchp<S: AsRef<str>>(by_path: &[(S, Vec<i64>)]) -> String {
    blocks(by_path.iter().map(|(path, sessions)| {
        let sessions = sessions.iter().map(|session| format!("0x{session:x}"));
        (path.as_ref().to_owned(), sessions)
    }))
}

fn blocks<MonitorLines: Iterator<Item: Display>>(
    blocks: impl Iterator<Item = (String, MonitorLines)>,
) -> String {
    let mut text = String::new();
    for (heading, lines) in blocks {
        text += &format!("{heading}\n");
        for line in lines {
            text += &format!("\t{line}\n");
        }
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watches_print_as_in_apache() {
        assert_eq!(
            wchs(2, 1, 3),
            "2 connections watching 1 paths\nTotal watches:3\n"
        );
        assert_eq!(
            wchc(&[(0x1a, vec!["/a", "/b"]), (0x1b, vec!["/a"])]),
            "0x1a\n\t/a\n\t/b\n0x1b\n\t/a\n\n"
        );
        assert_eq!(
            wchp(&[("/a", vec![0x1a, 0x1b]), ("/b", vec![-1])]),
            "/a\n\t0x1a\n\t0x1b\n/b\n\t0xffffffffffffffff\n\n"
        );
        assert_eq!(wchc::<&str>(&[]), "\n");
        assert_eq!(wchp::<&str>(&[]), "\n");
    }
}
