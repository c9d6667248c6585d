//! Checks whether a path is allowed for a node.

/// Checks a path as Apache's `PathUtils.validatePath` does. The root is a valid path.
pub fn check(path: &str) -> Result<(), PathError> {
    let Some(names) = path.strip_prefix('/') else {
        return Err(PathError::NotAbsolute);
    };
    if names.is_empty() || is_plain(names) {
        return Ok(());
    }
    for name in names.split('/') {
        match name {
            "" => return Err(PathError::EmptyName),
            "." | ".." => return Err(PathError::Relative),
            _ => {}
        }
    }
    match path.chars().find(|c| is_refused(*c)) {
        Some(refused) => Err(PathError::Character(refused)),
        None => Ok(()),
    }
}

/// Whether all names are printable ASCII and none begins with a dot. Nearly all paths are like that, and one pass over the bytes is enough.
fn is_plain(names: &str) -> bool {
    let mut before = b'/';
    for byte in names.bytes() {
        let is_first = before == b'/';
        if !matches!(byte, b' '..=b'~') || is_first && matches!(byte, b'/' | b'.') {
            return false;
        }
        before = byte;
    }
    before != b'/'
}

/// Why a path is not allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// The path does not start at the root.
    #[error("a path starts with a slash")]
    NotAbsolute,
    /// The path is the root, but a node below it is required.
    #[error("the root cannot be used")]
    Root,
    /// Two slashes in a row, or one at the end.
    #[error("a name in the path is empty")]
    EmptyName,
    /// `.` or `..` is one of the names.
    #[error("the path is relative")]
    Relative,
    /// The protocol does not allow this character.
    #[error("character {0:?} is not allowed in a path")]
    Character(char),
    /// The name is reserved, or is a path where a name is required.
    #[error("the name is reserved")]
    Reserved,
}

/// Java checks UTF-16 units, so it refuses every character beyond the basic plane as a surrogate.
fn is_refused(c: char) -> bool {
    matches!(
        c,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn valid_paths_are_valid() {
        for path in [
            "/",
            "/a",
            "/..a",
            "/a..",
            "/.../b",
            "/a b",
            "/\u{a0}",
            "/\u{ffef}",
            "/a:%*",
        ] {
            assert_eq!(check(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn bad_paths_are_refused() {
        for (path, error) in [
            ("", PathError::NotAbsolute),
            ("a", PathError::NotAbsolute),
            ("//", PathError::EmptyName),
            ("/a/", PathError::EmptyName),
            ("/a//b", PathError::EmptyName),
            ("/.", PathError::Relative),
            ("/a/../b", PathError::Relative),
            ("/\0", PathError::Character('\0')),
            ("/\u{9f}", PathError::Character('\u{9f}')),
            ("/\u{e000}", PathError::Character('\u{e000}')),
            ("/\u{fff0}", PathError::Character('\u{fff0}')),
            ("/😀", PathError::Character('😀')),
        ] {
            assert_eq!(check(path), Err(error), "{path:?}");
        }
    }
}
