//! All recipes in use, updated by reading parts of the tree.

use std::collections::{BTreeMap, BTreeSet};

use bellwether::inspect::{Overview, Sight};

/// Directories inside a recipe. A change there shows one level above.
const PARTS: [&str; 8] = [
    "items", "claims", "dead", "done", "line", "receipts", "leases", "locks",
];

/// Where kazoo keeps the waiters of a semaphore: beside it.
const KAZOO_LINE: &str = "-__lock__";

/// State as last read, by path.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    sights: BTreeMap<String, Vec<Sight>>,
    unreadable: BTreeSet<String>,
    /// Number of directories that the last reading of everything left out.
    unexplored: usize,
}

impl Picture {
    /// Replaces everything at and below `root` by what was just read there.
    pub(crate) fn replace(&mut self, root: &str, seen: Overview) {
        self.sights.retain(|path, _| !is_within(path, root));
        self.unreadable.retain(|path| !is_within(path, root));
        if root == "/" {
            self.unexplored = seen.unexplored;
        }
        for sight in seen.sights {
            let at = self.sights.entry(sight.path.clone()).or_default();
            at.push(sight);
        }
        self.unreadable.extend(seen.unreadable);
    }

    /// Whether a recipe is known at a path.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.sights.contains_key(path)
    }

    /// Everything, as if the root had been read at once.
    pub(crate) fn overview(&self) -> Overview {
        let mut overview = Overview::default();
        overview.sights = self.sights.values().flatten().cloned().collect();
        overview.unreadable = self.unreadable.iter().cloned().collect();
        overview.unexplored = self.unexplored;
        overview
    }

    /// The minimum set of paths to read after changes at `changed`, so that no change is missed.
    pub(crate) fn roots(&self, changed: &BTreeSet<String>) -> BTreeSet<String> {
        let roots: BTreeSet<_> = changed
            .iter()
            .filter(|path| !self.is_told_by_children(path, changed))
            .map(|path| self.root(path))
            .collect();
        let is_covered =
            |path: &String| ancestors(path).any(|above| above != path && roots.contains(above));
        let needed = roots.iter().filter(|path| !is_covered(path));
        needed.cloned().collect()
    }

    /// Whether the changed children of a new directory cover it: then it need not be read from above.
    fn is_told_by_children(&self, path: &str, changed: &BTreeSet<String>) -> bool {
        let first_below = format!("{}/", path.trim_end_matches('/'));
        let mut below = changed.range(first_below.clone()..);
        !self.sights.contains_key(path)
            && below
                .next()
                .is_some_and(|next| next.starts_with(&first_below))
    }

    /// The recipe that a change at `path` belongs to, or the directory that may have become one.
    fn root(&self, path: &str) -> String {
        if let Some(known) = ancestors(path).find(|path| self.sights.contains_key(*path)) {
            return known.to_owned();
        }
        let mut dir = parent(path);
        while is_inside_recipe(dir) {
            dir = parent(dir);
        }
        dir.to_owned()
    }
}

/// Whether a directory is part of a recipe by its name: a shard, a round, or one of [`PARTS`].
fn is_inside_recipe(dir: &str) -> bool {
    let name = dir.rsplit('/').next().unwrap_or_default();
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    is_number || PARTS.contains(&name) || name.ends_with(KAZOO_LINE)
}

pub(crate) fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}

/// The path itself and its ancestors, deepest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| (*path != "/").then(|| parent(path)))
}

fn is_within(path: &str, root: &str) -> bool {
    ancestors(path).any(|above| above == root)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(picture: &Picture, changed: &[&str]) -> Vec<String> {
        let changed = changed.iter().map(|&path| path.to_owned()).collect();
        picture.roots(&changed).into_iter().collect()
    }

    #[test]
    fn change_leads_to_the_directory_that_shows_it() {
        let picture = Picture::default();
        assert_eq!(
            roots(&picture, &["/jobs/nightly/lock-1"]),
            ["/jobs/nightly"]
        );
        assert_eq!(roots(&picture, &["/q/items/0000000001"]), ["/q"]);
        assert_eq!(roots(&picture, &["/q/items/7/x-1"]), ["/q"]);
        assert_eq!(roots(&picture, &["/sem-__lock__/1__lock__0"]), ["/"]);
        assert_eq!(roots(&picture, &["/top"]), ["/"]);
    }

    #[test]
    fn new_directory_with_children_is_not_looked_for_from_above() {
        let picture = Picture::default();
        let changed = ["/jobs", "/jobs/new", "/jobs/new/lock-1"];
        assert_eq!(roots(&picture, &changed), ["/jobs/new"]);
    }

    #[test]
    fn roots_below_another_root_are_left_out() {
        let picture = Picture::default();
        assert_eq!(roots(&picture, &["/a", "/b/c/d"]), ["/"]);
    }
}
