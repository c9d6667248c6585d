//! All recipes in use, updated by reading parts of the tree.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bellwether::inspect::{Overview, RecipeAt};

use crate::json;

/// How names of recipes begin in the [document](super::Document).
pub(crate) const SIGHT: &str = "sight ";

/// Directories inside a recipe. A change there shows one level above.
const PARTS: [&str; 8] = [
    "items", "claims", "dead", "done", "line", "receipts", "leases", "locks",
];

/// Where kazoo keeps the waiters of a semaphore: beside it.
const KAZOO_LINE: &str = "-__lock__";

/// Paths to read, and the changes that each shows.
pub(crate) type Roots = BTreeMap<String, BTreeSet<String>>;

/// State as last read.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    /// Recipes by path.
    seen: Overview,
    /// What pages are sent, by path: names and JSON texts. They are made once for each reading.
    texts: BTreeMap<String, Vec<(String, Arc<str>)>>,
}

impl Picture {
    /// Replaces everything at and below `roots` by what was just read there.
    pub(crate) fn replace(&mut self, roots: &BTreeSet<String>, read: Overview) {
        let is_read = |path: &str| is_covered(path, roots);
        self.seen.recipes.retain(|sight| !is_read(&sight.path));
        self.seen.unreadable.retain(|path| !is_read(path));
        self.texts.retain(|path, _| !is_read(path));
        if roots.contains("/") {
            self.seen.unexplored = read.unexplored;
        }
        for sight in &read.recipes {
            let named = (
                format!("{SIGHT}{}", json::key(sight)),
                json::sight(sight).to_string().into(),
            );
            self.texts
                .entry(sight.path.clone())
                .or_default()
                .push(named);
        }
        self.seen.recipes.extend(read.recipes);
        self.seen
            .recipes
            .sort_by(|one, other| one.path.cmp(&other.path));
        self.seen.unreadable.extend(read.unreadable);
        self.seen.unreadable.sort_unstable();
    }

    /// The recipes known at a path.
    pub(crate) fn at(&self, path: &str) -> &[RecipeAt] {
        let sights = &self.seen.recipes;
        let first = sights.partition_point(|sight| sight.path.as_str() < path);
        let count = sights[first..].partition_point(|sight| sight.path == path);
        &sights[first..first + count]
    }

    /// Everything, as if the root had been read at once.
    pub(crate) fn overview(&self) -> &Overview {
        &self.seen
    }

    /// All recipes as JSON, by the names of [`SIGHT`].
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&str, &Arc<str>)> {
        let all = self.texts.values().flatten();
        all.map(|(name, text)| (name.as_str(), text))
    }

    /// The paths to read after changes at `changed`, so that no change is missed, each with the changes that it shows. Some may be below
    /// others.
    pub(crate) fn roots(&self, changed: &BTreeSet<String>) -> Roots {
        let mut roots = Roots::new();
        for path in changed {
            if !self.is_told_by_children(path, changed) {
                let shown = roots.entry(self.root(path)).or_default();
                shown.insert(path.clone());
            }
        }
        roots
    }

    /// Whether the changed children of a new directory cover it: then it need not be read from above.
    fn is_told_by_children(&self, path: &str, changed: &BTreeSet<String>) -> bool {
        let first_below = format!("{}/", path.trim_end_matches('/'));
        let mut below = changed.range(first_below.clone()..);
        self.at(path).is_empty()
            && below
                .next()
                .is_some_and(|next| next.starts_with(&first_below))
    }

    /// The recipe that a change at `path` belongs to, or the directory that may have become one.
    fn root(&self, path: &str) -> String {
        if let Some(known) = ancestors(path).find(|path| !self.at(path).is_empty()) {
            return known.to_owned();
        }
        let mut dir = parent(path);
        while is_inside_recipe(dir) {
            dir = parent(dir);
        }
        dir.to_owned()
    }
}

/// Whether a directory is part of a recipe by its name: a round, or one of [`PARTS`].
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

/// Whether a path, or one above it, is among `roots`.
pub(crate) fn is_covered(path: &str, roots: &BTreeSet<String>) -> bool {
    ancestors(path).any(|above| roots.contains(above))
}

/// The path itself and its ancestors, deepest first.
fn ancestors(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(path), |path| (*path != "/").then(|| parent(path)))
}

#[cfg(test)]
mod tests {
    use bellwether::inspect::Survey;
    use bellwether::{Lock, connect};
    use bellwether_testkit::TestServer;

    use super::*;

    fn roots(picture: &Picture, changed: &[&str]) -> Vec<String> {
        let changed = changed.iter().map(|&path| path.to_owned()).collect();
        picture.roots(&changed).into_keys().collect()
    }

    #[tokio::test]
    async fn what_was_read_again_is_replaced_and_the_rest_stays() {
        let server = TestServer::start().await.unwrap();
        let client = connect(server.connect_string()).await.unwrap();
        let mut guards = BTreeMap::new();
        for path in ["/a", "/a/below", "/ab", "/b"] {
            let guard = Lock::new(&client, path).acquire().await.unwrap();
            guards.insert(path, guard);
        }
        let mut picture = Picture::default();
        let all = Survey::new(&client, "/").look().await.unwrap();
        picture.replace(&BTreeSet::from(["/".to_owned()]), all);
        let names = |picture: &Picture| -> Vec<_> {
            picture.texts().map(|(name, _)| name.to_owned()).collect()
        };
        let lock = |path| format!("sight lock {path}");
        assert_eq!(names(&picture), ["/a", "/a/below", "/ab", "/b"].map(lock));
        assert_eq!(picture.at("/ab").len(), 1);
        assert!(picture.at("/aa").is_empty());

        guards.remove("/a/below").unwrap().release().await.unwrap();
        guards.remove("/b").unwrap().release().await.unwrap();
        let some = Survey::new(&client, "/a").and("/b").look().await.unwrap();
        let roots = BTreeSet::from(["/a".to_owned(), "/b".to_owned()]);
        picture.replace(&roots, some);
        assert_eq!(names(&picture), ["/a", "/ab"].map(lock));
        assert!(picture.at("/b").is_empty());
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
    fn changes_are_kept_with_the_path_that_shows_them() {
        let changed = ["/a", "/b", "/b/c/d"].map(str::to_owned);
        let roots = Picture::default().roots(&BTreeSet::from(changed));
        let shown = |path: &str| BTreeSet::from([path.to_owned()]);
        let expected = [("/", shown("/a")), ("/b/c", shown("/b/c/d"))];
        let expected = expected.map(|(root, changed)| (root.to_owned(), changed));
        assert_eq!(roots, BTreeMap::from(expected));
    }
}
