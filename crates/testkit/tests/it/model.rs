use std::net::SocketAddr;

use bellwether_testkit::{Apache, Body, Create, Model, RawClient, Request};
use bellwether_wire::acl::{self, Acl, Id};
use bellwether_wire::op::Op;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

/// Few names, so that requests interact; some are refused, some reserved.
const PATHS: [&str; 22] = [
    "/",
    "/a",
    "/b",
    "/a/a",
    "/a/b",
    "/b/a",
    "/a/a/a",
    "/a/a/b",
    "/q",
    "/q/x",
    "/a0000000001",
    "",
    "a",
    "//",
    "/a/",
    "/.",
    "/a/../b",
    "/a//b",
    "/a\u{1}",
    "/a\0",
    "/zookeeper",
    "/zookeeper/config",
];

fn path(rng: &mut StdRng) -> String {
    // Mostly the valid ones.
    let count = if rng.random_bool(0.85) {
        10
    } else {
        PATHS.len()
    };
    PATHS[rng.random_range(0..count)].to_owned()
}

fn version(rng: &mut StdRng) -> i32 {
    *[-1, -1, -1, 0, 1, 2, -2].choose(rng).unwrap()
}

fn data(rng: &mut StdRng) -> Option<Vec<u8>> {
    [None, Some(vec![]), Some(vec![7; 3])]
        .choose(rng)
        .unwrap()
        .clone()
}

fn acl_list(rng: &mut StdRng) -> Vec<Acl> {
    let entry = |perms| Acl {
        perms,
        id: Id::new("world", "anyone"),
    };
    let lists = [
        vec![Acl::open()],
        vec![Acl::open(), Acl::open(), entry(acl::READ)],
        vec![],
        vec![Acl {
            perms: acl::ALL,
            id: Id::new("nobody", "x"),
        }],
        vec![entry(acl::ALL - acl::DELETE - acl::CREATE)],
        vec![entry(acl::ADMIN | acl::WRITE)],
    ];
    let count = if rng.random_bool(0.9) { 2 } else { lists.len() };
    lists[rng.random_range(0..count)].clone()
}

fn create(rng: &mut StdRng) -> Request {
    let op = *[Op::Create, Op::Create2, Op::CreateContainer, Op::CreateTtl]
        .choose(rng)
        .unwrap();
    let sensible = rng.random_bool(0.8);
    let flags = match op {
        Op::CreateContainer if sensible => Create::CONTAINER,
        Op::CreateTtl if sensible => rng.random_range(5..=6),
        _ if sensible => rng.random_range(0..=3),
        _ => rng.random_range(-1..=7),
    };
    // Another mode with a negative time to live stops Apache's process: a defect that the model does not have.
    let ttl_ms = *[1_000_000, 1_000_000, 0, 1 << 40].choose(rng).unwrap();
    Request::Create(Create {
        op,
        path: path(rng),
        data: data(rng),
        acl: acl_list(rng),
        flags,
        ttl_ms: (op == Op::CreateTtl).then_some(ttl_ms),
    })
}

fn write_in_multi(rng: &mut StdRng) -> Request {
    match rng.random_range(0..8) {
        0..4 => create(rng),
        4 => Request::Delete {
            path: path(rng),
            version: version(rng),
        },
        5 => Request::SetData {
            path: path(rng),
            data: data(rng),
            version: version(rng),
        },
        6 => Request::Check {
            path: path(rng),
            version: version(rng),
        },
        // Not allowed in a multi, but rare.
        _ if rng.random_bool(0.1) => Request::get_data(path(rng)),
        _ => Request::set_data("/", "x"),
    }
}

fn request(rng: &mut StdRng) -> Request {
    let path = path(rng);
    let watch = false;
    match rng.random_range(0..20) {
        0..5 => create(rng),
        5..7 => Request::Delete {
            path,
            version: version(rng),
        },
        7..9 => Request::SetData {
            path,
            data: data(rng),
            version: version(rng),
        },
        9 => Request::SetAcl {
            path,
            acl: acl_list(rng),
            version: version(rng),
        },
        10 => Request::GetAcl { path },
        11 => Request::Exists { path, watch },
        12 => Request::GetData { path, watch },
        13 => Request::GetChildren { path, watch },
        14 => Request::GetChildren2 { path, watch },
        15 => Request::GetAllChildrenNumber { path },
        16 => Request::GetEphemerals { prefix: path },
        17 => Request::MultiRead(vec![
            Request::get_data(path.clone()),
            Request::get_children(path),
        ]),
        _ => {
            let count = rng.random_range(0..4);
            Request::Multi((0..count).map(|_| write_in_multi(rng)).collect())
        }
    }
}

/// Sends random requests over three sessions, one of which ends now and then.
async fn compare(server: SocketAddr, model: &mut Model, seed: u64, count: usize) {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(RawClient::connect(server).await.unwrap());
        model.open_session();
    }
    for step in 0..count {
        let who = rng.random_range(0..clients.len());
        let closes = rng.random_bool(0.02);
        let request = if closes {
            Request::CloseSession
        } else {
            request(&mut rng)
        };
        let client = &mut clients[who];
        let session = client.session_id();
        let reply = client.call(request.clone()).await.unwrap();
        let expected = model.apply(session, 0, &request).map(Body::without_times);
        assert_eq!(
            (reply.outcome.map(Body::without_times), reply.zxid),
            (expected, model.zxid()),
            "seed {seed}, step {step}: {request:?}"
        );
        if closes {
            clients[who] = RawClient::connect(server).await.unwrap();
            model.open_session();
        }
    }
}

#[tokio::test]
async fn the_model_is_apache() {
    for (extended, seeds) in [(true, 0..4), (false, 4..6)] {
        for seed in seeds {
            let builder = Apache::builder();
            let (builder, mut model) = if extended {
                (builder.extended_types(), Model::new().with_extended_types())
            } else {
                (builder, Model::new())
            };
            let server = builder.start().await.unwrap();
            let mut client = RawClient::connect(server.address()).await.unwrap();
            client.call(Request::Ping).await.unwrap();
            model.set_zxid(client.last_zxid());
            compare(server.address(), &mut model, seed, 500).await;
        }
    }
}
