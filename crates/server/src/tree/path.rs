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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ancestors_begin_below_the_root() {
        assert_eq!(below_root("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(below_root("/a").count(), 0);
        assert_eq!(below_root("/").count(), 0);
    }
}
