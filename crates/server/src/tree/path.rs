//! What may be a path, and what stands above it.

use crate::proto::code::ErrorCode;

/// The path of the root.
pub(crate) const ROOT: &str = "/";

/// Refuses what no node may be called (`PathUtils.validatePath`).
pub(crate) fn validate(path: &str) -> Result<(), ErrorCode> {
    if path == ROOT {
        return Ok(());
    }
    let names = path.strip_prefix('/').ok_or(ErrorCode::BadArguments)?;
    let name_ok = |name: &str| !matches!(name, "" | "." | "..") && name.chars().all(allowed);
    if names.split('/').all(name_ok) {
        Ok(())
    } else {
        Err(ErrorCode::BadArguments)
    }
}

/// Whether a character may stand in a path. Java looks at UTF-16 units, so everything beyond the
/// basic plane is refused as a surrogate.
fn allowed(character: char) -> bool {
    !matches!(
        character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..
    )
}

/// The text before the last slash; an empty text means the root. `None` if there is no slash.
pub(crate) fn parent(path: &str) -> Option<&str> {
    path.rfind('/').map(|slash| &path[..slash])
}

/// The text behind the last slash.
pub(crate) fn name(path: &str) -> &str {
    path.rfind('/').map_or(path, |slash| &path[slash + 1..])
}

/// Everything above a path but the root, the highest first. Only for valid paths.
pub(crate) fn below_root(path: &str) -> impl Iterator<Item = &str> {
    let slashes = path.match_indices('/').skip(1);
    slashes.map(|(slash, _)| &path[..slash])
}

/// The path itself and everything above it, the root last. Only for valid paths.
pub(crate) fn with_ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/')? {
        _ if *path == ROOT => None,
        0 => Some(ROOT),
        slash => Some(&path[..slash]),
    })
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
            assert_eq!(validate(path), Ok(()), "{path:?}");
        }
    }

    #[test]
    fn odd_paths_are_refused() {
        for path in [
            "",
            "a",
            "//",
            "/a/",
            "/a//b",
            "/.",
            "/..",
            "/a/./b",
            "/a/../b",
            "/\0",
            "/\u{1}",
            "/\u{1f}",
            "/\u{7f}",
            "/\u{9f}",
            "/\u{e000}",
            "/\u{f8ff}",
            "/\u{fff0}",
            "/\u{ffff}",
            "/😀",
        ] {
            assert_eq!(validate(path), Err(ErrorCode::BadArguments), "{path:?}");
        }
    }

    #[test]
    fn ancestors_begin_below_the_root() {
        assert_eq!(below_root("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(below_root("/a").count(), 0);
        assert_eq!(below_root("/").count(), 0);
    }

    #[test]
    fn ancestors_end_at_the_root() {
        assert_eq!(
            with_ancestors("/a/b").collect::<Vec<_>>(),
            ["/a/b", "/a", "/"]
        );
        assert_eq!(with_ancestors("/").collect::<Vec<_>>(), ["/"]);
    }
}
