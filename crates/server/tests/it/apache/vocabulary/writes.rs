//! Requests that change the tree.

use bellwether_testkit::{Create, Request};
use bellwether_wire::acl::{self, Acl, Id};
use bellwether_wire::op::Op;
use rand::Rng as _;
use rand::seq::IndexedRandom as _;

use super::{Theme, Vocabulary};

impl Vocabulary {
    pub(super) fn data(&mut self, path: &str) -> Option<Vec<u8>> {
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

    pub(super) fn acl(&mut self) -> Vec<Acl> {
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
    pub(super) fn create(&mut self, in_multi: bool) -> Request {
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

    pub(super) fn delete(&mut self) -> Request {
        let path = self.path();
        self.likely.retain(|likely| *likely != path);
        Request::Delete {
            path,
            version: self.version(),
        }
    }

    pub(super) fn set_data(&mut self) -> Request {
        let path = self.path();
        Request::SetData {
            data: self.data(&path),
            path,
            version: self.version(),
        }
    }

    /// An operation of a multi; mostly a valid one.
    pub(super) fn operation(&mut self) -> Request {
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
}
