//! Which paths a node may have.

/// Checks a path as Apache's `PathUtils.validatePath` does. The root is a valid path.
pub fn check(path: &str) -> Result<(), PathError> {
    let Some(names) = path.strip_prefix('/') else {
        return Err(PathError::NotAbsolute);
    };
    if names.is_empty() {
        return Ok(());
    }
    for name in names.split('/') {
        match name {
            "" => return Err(PathError::EmptyName),
            "." | ".." => return Err(PathError::Relative),
            _ => {}
        }
    }
    // Nearly all paths are plain ASCII, which needs no decoding.
    if path.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(());
    }
    match path.chars().find(|c| is_refused(*c)) {
        Some(refused) => Err(PathError::Character(refused)),
        None => Ok(()),
    }
}

/// What is wrong with a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PathError {
    /// It does not start at the root.
    #[error("a path starts with a slash")]
    NotAbsolute,
    /// It is the root itself, where a node below it is needed.
    #[error("the root cannot be used")]
    Root,
    /// Two slashes in a row, or one at the end.
    #[error("a name in the path is empty")]
    EmptyName,
    /// `.` or `..` stands as a name.
    #[error("the path is relative")]
    Relative,
    /// The protocol does not allow this character.
    #[error("character {0:?} is not allowed in a path")]
    Character(char),
    /// The name has a meaning of its own here, or is a path where a name is needed.
    #[error("the name is reserved")]
    Reserved,
}

/// Java looks at UTF-16 units, so it refuses everything beyond the basic plane as a surrogate.
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
