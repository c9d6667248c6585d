//! Random requests: few paths, so that requests interact, and everything that clients may send, valid or not.
//!
//! Known differences of Apache's server are left out, see [`crate::apache::differential`].

mod damage;
mod watches;
mod writes;

use std::collections::{HashMap, HashSet};

use bellwether_testkit::Request;
use bellwether_wire::op::Op;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

/// The superuser.
pub(crate) const SUPER: &str = "super:admin";

/// Names for most requests.
const PATHS: [&str; 12] = [
    "/",
    "/a",
    "/b",
    "/a/a",
    "/a/b",
    "/b/a",
    "/a/a/a",
    "/a/a/b",
    "/a/n",
    "/b/n",
    "/a/n0000000001",
    "/a/b0000000002",
];

/// Paths that some requests refuse, reserved ones, and unusual ones. For characters of four bytes see
/// `a_long_character_comes_back_as_it_was_sent`.
pub(crate) const ODD_PATHS: [&str; 31] = [
    "",
    " ",
    "a",
    "a/b",
    "a/",
    "//",
    "//a",
    "/a/",
    "/a//b",
    "/a/./b",
    "/a/../b",
    "/.",
    "/..",
    "/a/.",
    "/a/..",
    "/...",
    "/..a",
    "/ ",
    "/a\0",
    "/\0/b",
    "/a\u{1}",
    "/a\u{1f}",
    "/a\u{7f}",
    "/a\u{9f}",
    "/a\u{a0}",
    "/a\u{e000}",
    "/a\u{fff0}",
    "/ä/ö",
    "/zookeeper",
    "/zookeeper/config",
    "/zookeeper/quota",
];

/// Where quotas are set and counted. A limit on the root would stop Apache's process.
const QUOTA_PATHS: [&str; 7] = [
    "/zookeeper/quota/a",
    "/zookeeper/quota/a/zookeeper_limits",
    "/zookeeper/quota/a/zookeeper_stats",
    "/zookeeper/quota/a/a",
    "/zookeeper/quota/a/a/zookeeper_limits",
    "/zookeeper/quota/a/a/zookeeper_stats",
    "/zookeeper/quota/b",
];

/// What the requests are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    /// All clients may read everything.
    Watches,
    /// Permissions are missing, and no request uses exists: see `exists_needs_the_right_to_read`.
    Access,
    /// Like `Watches`, with quotas.
    Quotas,
}

/// How a session watches a path, always in the same mode: see `a_path_may_be_watched_in_more_than_one_way`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watching {
    Once,
    Persistent,
    Recursive,
}

/// Generates requests from a seed.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    rng: StdRng,
    theme: Theme,
    /// Maximum length of a multi.
    operations_max: usize,
    /// Paths that were requested to be created, and not deleted since.
    likely: Vec<String>,
    watching: HashMap<(usize, String), Watching>,
    /// Sessions and paths that were watched so far, fired or not.
    watched: HashSet<(usize, String)>,
}

impl Vocabulary {
    pub(crate) fn new(seed: u64, theme: Theme) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            theme,
            operations_max: 5,
            likely: Vec::new(),
            watching: HashMap::new(),
            watched: HashSet::new(),
        }
    }

    /// Generates multis of at most one operation.
    #[must_use]
    pub(crate) fn with_short_multis(mut self) -> Self {
        self.operations_max = 1;
        self
    }

    /// A few nodes to start with.
    pub(crate) fn seedlings(&mut self) -> Vec<Request> {
        let mut paths = PATHS[1..self.rng.random_range(3..=8)].to_vec();
        if self.theme == Theme::Quotas {
            paths.extend(&QUOTA_PATHS[..self.rng.random_range(0..4)]);
        }
        self.likely = paths.iter().map(|path| (*path).into()).collect();
        let create = |path: &str| {
            let data = self.data(path).unwrap_or_default();
            Request::create(path, data)
        };
        paths.into_iter().map(create).collect()
    }

    /// A valid or invalid authentication.
    pub(crate) fn authentication(&mut self) -> Request {
        let auth = |scheme: &str, data: Option<&str>| Request::Auth {
            scheme: scheme.into(),
            data: data.map(Into::into),
        };
        match self.rng.random_range(0..24) {
            0..7 => Request::auth_digest("user:password"),
            7..12 => Request::auth_digest("other:secret"),
            12 => Request::auth_digest(""),
            13 => Request::auth_digest("no colon"),
            14 => Request::auth_digest("a:b:c"),
            15 if self.theme == Theme::Access => Request::auth_digest(SUPER),
            16 => auth("ip", None),
            17 => auth("digest", None),
            18 => auth(
                ["world", "auth", "super", "sasl", "x509", "", "none"]
                    .choose(&mut self.rng)
                    .unwrap(),
                Some("x:y"),
            ),
            19 => Request::Sasl {
                token: Some(b"token".to_vec()),
            },
            20 => Request::Sasl { token: None },
            21 => self.cut(Request::auth_digest("user:password")),
            _ => Request::auth_digest("user:other"),
        }
    }

    /// An unknown operation; it ends the connection.
    pub(crate) fn unknown(&mut self) -> Request {
        let op = *[0, -1, 10, 23, 99, 108, -12, i32::MAX, i32::MIN]
            .choose(&mut self.rng)
            .unwrap();
        let body = vec![0; self.rng.random_range(0..9)];
        Request::Raw { op, body }
    }

    /// Anything else.
    pub(crate) fn request(&mut self, who: usize) -> Request {
        let path = self.path();
        match self.rng.random_range(0..100) {
            0..22 => self.create(false),
            22..30 => self.delete(),
            30..38 => self.set_data(),
            38..42 => Request::SetAcl {
                path,
                acl: self.acl(),
                version: self.version(),
            },
            42..46 => Request::GetAcl { path },
            46..66 => self.read(who),
            66..68 => Request::GetAllChildrenNumber { path },
            68..70 => Request::GetEphemerals { prefix: path },
            70 => Request::Sync { path },
            71..73 => Request::Ping,
            // A version that no node has: see `a_check_that_succeeds_is_answered`.
            73 => Request::Check {
                path,
                version: 1000,
            },
            74..82 => {
                let count = self.rng.random_range(0..=self.operations_max);
                Request::Multi((0..count).map(|_| self.operation()).collect())
            }
            82..85 => self.multi_read(),
            85..93 => self.watches(who),
            93 => Request::WhoAmI,
            94 => Request::Reconfig {
                joining: None,
                leaving: Some("1".into()),
                members: None,
                config_id: -1,
            },
            95 => Request::Raw {
                op: Op::DeleteContainer.number(),
                body: path.into_bytes(),
            },
            96 | 97 => self.with_null(),
            98 => {
                let request = self.create(false);
                self.cut(request)
            }
            _ => {
                let request = self.delete();
                self.cut(request)
            }
        }
    }

    /// A path, mostly one that is likely to exist.
    fn path(&mut self) -> String {
        if self.rng.random_bool(0.6)
            && let Some(path) = self.likely.choose(&mut self.rng)
        {
            return path.clone();
        }
        self.any_path()
    }

    fn any_path(&mut self) -> String {
        let odd = self.rng.random_bool(0.08);
        let quota = self.theme == Theme::Quotas && self.rng.random_bool(0.3);
        let paths = match (odd, quota) {
            (true, _) => &ODD_PATHS[..],
            (_, true) => &QUOTA_PATHS[..],
            _ => &PATHS[..],
        };
        (*paths.choose(&mut self.rng).unwrap()).into()
    }

    fn version(&mut self) -> i32 {
        *[-1, -1, -1, -1, -1, -1, -1, 0, 0, 1, 2, -2]
            .choose(&mut self.rng)
            .unwrap()
    }
}
