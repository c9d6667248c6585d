//! Random requests: few names, so that they meet, and all that clients may send, sensible or not.
//!
//! What Apache's server is known to do differently is left out, see [`crate::differential`].

use std::collections::{HashMap, HashSet};

use bellwether_server::proto::acl::{self, Acl, Id};
use bellwether_server::proto::jute::Writer as _;
use bellwether_server::proto::op::Op;
use bellwether_testkit::{Create, Request, WatchLists};
use bytes::{BufMut as _, BytesMut};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

/// Who may do everything.
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

/// Names that are refused by some requests, reserved, or just strange. For characters of four bytes
/// see `a_long_character_comes_back_as_it_was_sent`.
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

/// Where quotas are set and counted. A limit for the root would end Apache's process.
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
    /// Everybody may read everything.
    Watches,
    /// Rights are missing, and nobody asks whether a node exists: see
    /// `exists_needs_the_right_to_read`.
    Access,
    /// As `Watches`, with quotas.
    Quotas,
}

/// How a session watches a path, always the same way: see
/// `a_path_may_be_watched_in_more_than_one_way`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watching {
    Once,
    Persistent,
    Recursive,
}

/// Makes requests from a seed.
#[derive(Debug)]
pub(crate) struct Vocabulary {
    rng: StdRng,
    theme: Theme,
    /// How long multis are.
    operations_max: usize,
    /// What was asked to be created, and not to be deleted since.
    likely: Vec<String>,
    watching: HashMap<(usize, String), Watching>,
    /// Who has watched what so far, whatever has become of it.
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

    /// Makes multis of one operation at most.
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

    /// A proof of who the client is, or not.
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

    /// A number that means nothing; the connection ends.
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

    fn data(&mut self, path: &str) -> Option<Vec<u8>> {
        // Other texts at these places stop Apache's server.
        let texts: &[Option<&str>] = if path.ends_with("_stats") {
            &[Some("count=0,bytes=0"), Some("count=3,bytes=20")]
        } else if path.ends_with("_limits") {
            &[
                Some("count=3,bytes=20"),
                Some("count=-1,bytes=-1=;byteHardLimit=6;countHardLimit=3"),
                Some("count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=5"),
                Some("count=-1,bytes=-1=;byteHardLimit=9;countHardLimit=-1"),
            ]
        } else {
            &[None, Some(""), Some("x"), Some("four")]
        };
        texts.choose(&mut self.rng).unwrap().map(Into::into)
    }

    fn acl(&mut self) -> Vec<Acl> {
        let entry = |perms, scheme: &str, id: &str| Acl {
            perms,
            id: Id::new(scheme, id),
        };
        let world = |perms| entry(perms, "world", "anyone");
        let user = "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=";
        if self.rng.random_bool(0.7) {
            return vec![Acl::open()];
        }
        let invalid = [
            vec![],
            vec![entry(acl::ALL, "none", "x")],
            vec![Acl::open(), entry(acl::ALL, "world", "x")],
            vec![entry(acl::ALL, "digest", "user")],
            vec![entry(acl::ALL, "ip", "127.0.0.256")],
            vec![entry(acl::ALL, "super", "")],
        ];
        let readable = [
            vec![Acl::open(), Acl::open(), world(acl::READ)],
            vec![world(acl::READ)],
            vec![world(acl::READ | acl::CREATE | 64)],
            vec![world(-1)],
            vec![world(acl::READ), entry(acl::ALL, "auth", "ignored")],
            vec![
                entry(acl::WRITE | acl::ADMIN, "digest", user),
                world(acl::READ),
            ],
            vec![entry(acl::ALL, "ip", "127.0.0.0/8"), world(acl::READ)],
            vec![
                world(acl::ALL - acl::DELETE),
                entry(acl::DELETE, "digest", user),
            ],
        ];
        let unreadable = [
            vec![entry(acl::ALL, "auth", "")],
            vec![entry(acl::ALL, "digest", user)],
            vec![entry(acl::READ, "digest", user), world(acl::CREATE)],
            vec![world(acl::ADMIN), entry(acl::ALL, "digest", "x:y")],
            vec![world(acl::WRITE | acl::DELETE)],
            vec![world(0)],
            vec![entry(acl::ALL, "ip", "10.0.0.0/8"), world(acl::ADMIN)],
            vec![
                entry(acl::READ, "ip", "127.0.0.1"),
                entry(acl::READ, "auth", ""),
            ],
        ];
        let lists: &[Vec<Acl>] = match self.rng.random_range(0..6) {
            0 => &invalid,
            1..4 if self.theme == Theme::Access => &unreadable,
            _ => &readable,
        };
        lists.choose(&mut self.rng).unwrap().clone()
    }

    /// One of the creates, alone or in a multi.
    fn create(&mut self, in_multi: bool) -> Request {
        let mut op = *[
            Op::Create,
            Op::Create,
            Op::Create2,
            Op::CreateContainer,
            Op::CreateTtl,
        ]
        .choose(&mut self.rng)
        .unwrap();
        let sensible = self.rng.random_bool(0.9);
        let flags = match op {
            Op::CreateContainer if sensible => Create::CONTAINER,
            Op::CreateTtl if sensible => self.rng.random_range(5..=6),
            _ if sensible => self.rng.random_range(0..=3),
            _ => self.rng.random_range(-1..=7),
        };
        let plain = (0..=3).contains(&flags);
        // See `a_container_has_children_at_once`.
        if !in_multi && op == Op::CreateContainer && plain {
            op = Op::Create;
        }
        // See `create2_in_a_multi_keeps_its_stat`.
        if in_multi && op == Op::Create2 && plain {
            op = Op::Create;
        }
        let ttls: &[i64] = if matches!(flags, 5 | 6) {
            &[
                1_000_000,
                1_000_000,
                1_000_000,
                0,
                -1,
                i64::MIN,
                1 << 40,
                (1 << 40) - 1,
            ]
        } else {
            // See `a_time_to_live_needs_its_mode`.
            &[0, 1_000_000, 1 << 40]
        };
        let ttl_ms = *ttls.choose(&mut self.rng).unwrap();
        let path = self.any_path();
        if matches!(flags, 0 | 1 | 4 | 5) && !self.likely.contains(&path) {
            self.likely.push(path.clone());
        }
        Request::Create(Create {
            op,
            data: self.data(&path),
            path,
            acl: self.acl(),
            flags,
            ttl_ms: (op == Op::CreateTtl).then_some(ttl_ms),
        })
    }

    fn delete(&mut self) -> Request {
        let path = self.path();
        self.likely.retain(|likely| *likely != path);
        Request::Delete {
            path,
            version: self.version(),
        }
    }

    fn set_data(&mut self) -> Request {
        let path = self.path();
        Request::SetData {
            data: self.data(&path),
            path,
            version: self.version(),
        }
    }

    /// One of a multi; mostly one that will do.
    fn operation(&mut self) -> Request {
        match self.rng.random_range(0..100) {
            0..40 => self.create(true),
            40..53 => self.delete(),
            53..75 => self.set_data(),
            75..96 => Request::Check {
                path: self.path(),
                version: self.version(),
            },
            // A null path is left out, see `a_multi_with_a_null_path_has_its_zxid`.
            96 | 97 => Request::get_data(self.path()),
            _ => Request::Raw {
                op: *[7, 14, 16, 20, -11, -1, 10].choose(&mut self.rng).unwrap(),
                body: Vec::new(),
            },
        }
    }

    fn multi_read(&mut self) -> Request {
        let count = self.rng.random_range(0..5);
        let read = |_| match self.rng.random_range(0..20) {
            0..10 => Request::get_data(self.path()),
            10..18 => Request::get_children(self.path()),
            18 => self.null_path(&[Op::GetData, Op::GetChildren]),
            _ => self.delete(),
        };
        Request::MultiRead((0..count).map(read).collect())
    }

    fn read(&mut self, who: usize) -> Request {
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

    fn watching(&mut self, who: usize, path: &str) -> Watching {
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
    fn watches(&mut self, who: usize) -> Request {
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

    fn set_watches(&mut self, who: usize) -> Request {
        let mut lists = WatchLists {
            relative_zxid: self.rng.random_range(-1..80),
            ..WatchLists::default()
        };
        let with_more = self.rng.random_bool(0.6);
        for _ in 0..self.rng.random_range(0..8) {
            let path = self.path();
            let list = match self.watching(who, &path) {
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

    /// A request with something null in it.
    fn with_null(&mut self) -> Request {
        match self.rng.random_range(0..4) {
            0 | 1 => self.null_path(&[
                Op::Create,
                Op::Create2,
                Op::Delete,
                Op::GetData,
                Op::SetData,
                Op::GetAcl,
                Op::SetAcl,
                Op::GetChildren,
                Op::GetChildren2,
                Op::Sync,
                Op::Check,
                Op::GetEphemerals,
                Op::GetAllChildrenNumber,
                Op::CheckWatches,
                Op::RemoveWatches,
            ]),
            2 => self.null_acl(),
            _ => {
                // Null lists, or a list of one null.
                let mut body = BytesMut::new();
                body.put_i64(0);
                for _ in 0..3 {
                    match self.rng.random_range(0..3) {
                        0 => body.put_i32(0),
                        1 => body.put_i32(-1),
                        _ => body.put_slice(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff]),
                    }
                }
                raw(Op::SetWatches, body)
            }
        }
    }

    fn null_path(&mut self, ops: &[Op]) -> Request {
        let op = *ops.choose(&mut self.rng).unwrap();
        let mut body = BytesMut::new();
        body.put_buffer(None);
        match op {
            Op::Create | Op::Create2 => {
                body.put_buffer(None);
                Acl::encode_list(&self.acl(), &mut body);
                body.put_i32(self.rng.random_range(0..4));
            }
            Op::SetData => {
                body.put_buffer(None);
                body.put_i32(-1);
            }
            Op::SetAcl => {
                Acl::encode_list(&self.acl(), &mut body);
                body.put_i32(-1);
            }
            Op::GetData | Op::GetChildren | Op::GetChildren2 => body.put_bool(false),
            Op::CheckWatches | Op::RemoveWatches => body.put_i32(3),
            Op::Delete | Op::Check => body.put_i32(-1),
            _ => {}
        }
        raw(op, body)
    }

    /// A create or setACL whose list, scheme or id is null.
    fn null_acl(&mut self) -> Request {
        let op = *[Op::Create, Op::SetAcl].choose(&mut self.rng).unwrap();
        let mut body = BytesMut::new();
        body.put_ustring(&self.path());
        if op == Op::Create {
            body.put_buffer(None);
        }
        let schemes = ["world", "digest", "ip", "auth", "none"];
        match self.rng.random_range(0..3) {
            0 => body.put_i32(-1),
            1 => {
                body.put_i32(1);
                body.put_i32(acl::ALL);
                body.put_buffer(None);
                body.put_ustring("anyone");
            }
            _ => {
                body.put_i32(1);
                body.put_i32(acl::ALL);
                body.put_ustring(schemes.choose(&mut self.rng).unwrap());
                body.put_buffer(None);
            }
        }
        body.put_i32(-1);
        if op == Op::Create {
            let end = body.len() - 4;
            body[end..].copy_from_slice(&0i32.to_be_bytes());
        }
        raw(op, body)
    }

    /// The request without its end.
    fn cut(&mut self, request: Request) -> Request {
        let mut body = BytesMut::new();
        request.encode_body(&mut body);
        body.truncate(self.rng.random_range(0..body.len()));
        Request::Raw {
            op: request.number(),
            body: body.to_vec(),
        }
    }
}

fn raw(op: Op, body: BytesMut) -> Request {
    Request::Raw {
        op: op.number(),
        body: body.to_vec(),
    }
}
