//! Paths of nodes: parsed, joined and compared.

/// Parses a path into its normal form. The leading slash is optional, and a trailing one is ignored.
pub(crate) fn parse(text: &str) -> Result<String, String> {
    // An unset variable in a script must not mean the whole tree.
    if text.is_empty() {
        return Err("the path is empty; the root is /".to_owned());
    }
    let names = text.strip_prefix('/').unwrap_or(text);
    check(names.strip_suffix('/').unwrap_or(names))
}

/// As [`parse`], but keeps a trailing slash: the name may be a sequence number of the server.
pub(crate) fn parse_prefix(text: &str) -> Result<String, String> {
    let path = parse(text)?;
    Ok(if text.ends_with('/') && path != "/" {
        format!("{path}/")
    } else {
        path
    })
}

/// Parses the name of a node.
pub(crate) fn parse_name(text: &str) -> Result<String, String> {
    match text {
        "" => Err("the name is empty".to_owned()),
        text if text.contains('/') => Err("a name cannot contain a slash".to_owned()),
        text => check(text).map(|_| text.to_owned()),
    }
}

/// Checks the same as Apache's `PathUtils.validatePath`, so that a bad path is refused before anything is sent.
fn check(names: &str) -> Result<String, String> {
    if names.is_empty() {
        return Ok("/".to_owned());
    }
    for name in names.split('/') {
        match name {
            "" => return Err("the path has two slashes in a row".to_owned()),
            "." | ".." => return Err(format!("{name} is not allowed as the name of a node")),
            _ => {}
        }
    }
    match names.chars().find(|&c| is_refused(c)) {
        Some(c) => Err(format!("character {c:?} is not allowed in a path")),
        None => Ok(format!("/{names}")),
    }
}

/// Apache's servers see characters beyond the basic plane as surrogates, and refuse those.
fn is_refused(c: char) -> bool {
    matches!(u32::from(c), 0x00..=0x1f | 0x7f..=0x9f | 0xd800..=0xf8ff | 0xfff0..)
}

/// The path of a child.
pub(crate) fn child(path: &str, name: &str) -> String {
    join(path, &format!("/{name}"))
}

/// The path `below`, with `path` instead of the root.
pub(crate) fn join(path: &str, below: &str) -> String {
    match (path, below) {
        ("/", below) => below.to_owned(),
        (path, "/") => path.to_owned(),
        (path, below) => format!("{path}{below}"),
    }
}

/// The path of the node above; `None` for the root.
pub(crate) fn parent(path: &str) -> Option<&str> {
    match path.rfind('/')? {
        0 if path == "/" => None,
        0 => Some("/"),
        slash => Some(&path[..slash]),
    }
}

/// The last name; empty for the root.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// All parents of a path except the root, the top first.
pub(crate) fn above(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/')
        .skip(1)
        .map(|(slash, _)| &path[..slash])
}

/// Whether a path is `top`, or below it.
pub(crate) fn is_within(path: &str, top: &str) -> bool {
    top == "/"
        || path
            .strip_prefix(top)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether a path below a chroot belongs to the nodes of the server itself.
pub(crate) fn is_of_server(chroot: &str, path: &str) -> bool {
    is_within(&join(chroot, path), "/zookeeper")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_paths_get_their_normal_form() {
        for (text, path) in [
            ("/", "/"),
            ("a", "/a"),
            ("/a/b é/", "/a/b é"),
            ("...", "/..."),
        ] {
            assert_eq!(parse(text).as_deref(), Ok(path), "{text:?}");
        }
        for text in [
            "", "//a", "a//b", "/a/../b", ".", "/a\u{1}", "/a\n", "/a/🐑",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_prefix("/queue/").as_deref(), Ok("/queue/"));
        assert_eq!(parse_prefix("/").as_deref(), Ok("/"));
    }

    #[test]
    fn names_are_single() {
        assert_eq!(parse_name("a b").as_deref(), Ok("a b"));
        for text in ["", "/", "a/b", "/a", "..", "a\n"] {
            assert!(parse_name(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn paths_are_put_together_and_taken_apart() {
        assert_eq!(child("/", "a"), "/a");
        assert_eq!(child("/a", "b"), "/a/b");
        assert_eq!(join("/", "/a"), "/a");
        assert_eq!(join("/a", "/"), "/a");
        assert_eq!(join("/a", "/b/c"), "/a/b/c");
        assert_eq!(parent("/a/b"), Some("/a"));
        assert_eq!(parent("/a"), Some("/"));
        assert_eq!(parent("/"), None);
        assert_eq!(name("/a/b"), "b");
        assert_eq!(above("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(above("/a").count(), 0);
    }

    #[test]
    fn a_name_that_only_begins_alike_is_not_within() {
        assert!(is_within("/a/b", "/a") && is_within("/a", "/a") && is_within("/a", "/"));
        assert!(!is_within("/ab", "/a") && !is_within("/", "/a"));
        assert!(is_of_server("/", "/zookeeper/quota") && is_of_server("/zookeeper", "/"));
        assert!(!is_of_server("/app", "/zookeeper") && !is_of_server("/", "/zookeepers"));
    }
}
