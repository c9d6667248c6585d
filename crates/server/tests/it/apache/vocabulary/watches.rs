//! Reads with and without watches, and requests about watches alone.

use bellwether_testkit::{Request, WatchLists};
use bellwether_wire::op::Op;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::{Theme, Vocabulary, Watching};

impl Vocabulary {
    pub(super) fn multi_read(&mut self) -> Request {
        let count = self.rng.random_range(0..5);
        let read = |_| match self.rng.random_range(0..20) {
            0..10 => Request::get_data(self.path()),
            10..18 => Request::get_children(self.path()),
            18 => self.null_path(&[Op::GetData, Op::GetChildren]),
            _ => self.delete(),
        };
        Request::MultiRead((0..count).map(read).collect())
    }

    pub(super) fn read(&mut self, who: usize) -> Request {
        let path = self.path();
        let may_watch = self.watching(who, &path) == Watching::Once;
        let watch = may_watch && self.rng.random_bool(0.6);
        let op = self.rng.random_range(0..4);
        if watch {
            self.watched.insert((who, path.clone()));
        }
        match op {
            0 => Request::GetData { path, watch },
            1 => Request::GetChildren { path, watch },
            2 => Request::GetChildren2 { path, watch },
            _ if self.theme == Theme::Access => Request::GetData { path, watch },
            _ => Request::Exists { path, watch },
        }
    }

    pub(super) fn watching(&mut self, who: usize, path: &str) -> Watching {
        let ways = [
            Watching::Once,
            Watching::Once,
            Watching::Persistent,
            Watching::Recursive,
        ];
        let way = ways.choose(&mut self.rng).unwrap();
        *self.watching.entry((who, path.into())).or_insert(*way)
    }

    /// Requests that are about watches only.
    pub(super) fn watches(&mut self, who: usize) -> Request {
        let path = self.path();
        let way = self.watching(who, &path);
        match self.rng.random_range(0..10) {
            0..4 => {
                let mode = match way {
                    Watching::Once => 2,
                    Watching::Persistent => 0,
                    Watching::Recursive => 1,
                };
                self.watched.insert((who, path.clone()));
                Request::AddWatch { path, mode }
            }
            4..8 => {
                // See `only_watches_that_fire_once_are_removed_by_table`.
                let kind = match way {
                    Watching::Once => self.rng.random_range(0..=3),
                    _ => 3,
                };
                let others = self
                    .watched
                    .iter()
                    .any(|(other, watched)| *other != who && *watched == path);
                // See `a_client_is_told_of_its_own_watches_only`.
                if self.rng.random_bool(0.5) && !others && path.starts_with('/') {
                    Request::CheckWatches { path, kind }
                } else {
                    Request::RemoveWatches { path, kind }
                }
            }
            _ => self.set_watches(who),
        }
    }

    pub(super) fn set_watches(&mut self, who: usize) -> Request {
        let mut lists = WatchLists {
            relative_zxid: self.rng.random_range(-1..80),
            ..WatchLists::default()
        };
        let with_more = self.rng.random_bool(0.6);
        for _ in 0..self.rng.random_range(0..8) {
            let path = self.path();
            let list = match self.watching(who, &path) {
                // See `watches_are_restored_only_with_the_right_to_read`.
                Watching::Once if self.theme == Theme::Access => &mut lists.exist,
                Watching::Once => match self.rng.random_range(0..3) {
                    0 => &mut lists.data,
                    1 => &mut lists.exist,
                    _ => &mut lists.child,
                },
                _ if !with_more => continue,
                Watching::Persistent => &mut lists.persistent,
                Watching::Recursive => &mut lists.recursive,
            };
            list.push(path.clone());
            self.watched.insert((who, path));
        }
        if with_more {
            Request::SetWatches2(lists)
        } else {
            Request::SetWatches(lists)
        }
    }
}
