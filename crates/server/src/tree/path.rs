//! Path validation and ancestors.

use bellwether_wire::code::ErrorCode;

/// The path of the root.
pub(crate) const ROOT: &str = "/";

/// Refuses a path that is not valid for a node.
pub(crate) fn validate(path: &str) -> Result<(), ErrorCode> {
    bellwether_wire::path::check(path).map_err(|_| ErrorCode::BadArguments)
}

/// The text before the last slash; an empty text means the root. `None` if there is no slash.
pub(crate) fn parent(path: &str) -> Option<&str> {
    path.rfind('/').map(|slash| &path[..slash])
}

/// The text after the last slash.
pub(crate) fn name(path: &str) -> &str {
    path.rfind('/').map_or(path, |slash| &path[slash + 1..])
}

/// Ancestors of a path except the root, highest first. Only for valid paths.
pub(crate) fn below_root(path: &str) -> impl Iterator<Item = &str> {
    let slashes = path.match_indices('/').skip(1);
    slashes.map(|(slash, _)| &path[..slash])
}

/// The path itself and its ancestors, the root last. Only for valid paths.
pub(crate) fn with_ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| match path.rfind('/')? {
        _ if *path == ROOT => None,
        0 => Some(ROOT),
        slash => Some(&path[..slash]),
    })
}

/// The ancestor of a valid path that has this length, if there is one.
pub(crate) fn ancestor(path: &str, length: usize) -> Option<&str> {
    let (above, below) = path.split_at_checked(length)?;
    let is_ancestor = match above {
        "" => false,
        ROOT => !below.is_empty(),
        _ => below.starts_with('/'),
    };
    is_ancestor.then_some(above)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_by_length_are_those_in_order() {
        for path in ["/", "/a", "/a/bc", "/é/ü/x"] {
            let by_length = (0..path.len() + 2).rev();
            let by_length = by_length.filter_map(|length| ancestor(path, length));
            assert!(by_length.eq(with_ancestors(path).skip(1)), "{path}");
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
