//! Inputs that are few enough to test all of them.

use bellwether_testkit::{Create, Request, WatchLists};
use bellwether_wire::acl::{self, Acl, Id};
use bellwether_wire::op::Op;
use bytes::BytesMut;

use super::pair::{Pair, Settings};
use super::plan::{Plan, Step};
use crate::apache::vocabulary::ODD_PATHS;

const CREATES: [Op; 4] = [Op::Create, Op::Create2, Op::CreateContainer, Op::CreateTtl];

/// Longer than any of these tests.
const TTL_MS: i64 = 1_000_000;

#[tokio::test]
async fn every_request_with_every_odd_path() {
    let mut pair = Pair::start(Settings::EXTENDED).await.unwrap();
    for path in ODD_PATHS {
        check(&mut pair, alone_and_together(requests(path))).await;
    }
    // Any reply that contains it differs, see `a_long_character_comes_back_as_it_was_sent`.
    let path = "/a\u{1f600}";
    let echoes = |request: &Request| {
        matches!(
            request,
            Request::Sync { .. } | Request::SetWatches(_) | Request::SetWatches2(_)
        )
    };
    let mut silent = requests(path);
    silent.retain(|request| !echoes(request));
    check(&mut pair, alone_and_together(silent)).await;
}

#[tokio::test]
async fn every_request_without_a_path() {
    let mut pair = Pair::start(Settings::EXTENDED).await.unwrap();
    let starts_with_path = |request: &Request| {
        !matches!(
            request,
            Request::Multi(_)
                | Request::MultiRead(_)
                | Request::SetWatches(_)
                | Request::SetWatches2(_)
                // See `a_watch_on_no_path_ends_with_its_connection`.
                | Request::AddWatch { mode: 0 | 1, .. }
        )
    };
    let null = |request: Request| {
        let mut body = body_of(&request);
        body[..4].copy_from_slice(&(-1i32).to_be_bytes());
        let op = request.number();
        Request::Raw { op, body }
    };
    let requests = requests("").into_iter().filter(starts_with_path);
    check(&mut pair, alone_and_together(requests.map(null).collect())).await;
}

#[tokio::test]
async fn every_mode_of_every_create() {
    for settings in [Settings::EXTENDED, Settings::default()] {
        let mut pair = Pair::start(settings).await.unwrap();
        let mut requests = vec![Request::create("/a", "")];
        for op in CREATES {
            for flags in [i32::MIN, -1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 256, i32::MAX] {
                let ttls: &[i64] = match flags {
                    5 | 6 => &[TTL_MS, 1, 0, -1, i64::MIN, (1 << 40) - 1, 1 << 40, i64::MAX],
                    // See `a_time_to_live_needs_its_mode`.
                    _ => &[TTL_MS, 0, 1 << 40],
                };
                for ttl_ms in if op == Op::CreateTtl {
                    ttls
                } else {
                    &ttls[..1]
                } {
                    let path = format!("/a/{}-", requests.len());
                    let alone = create(op, &path, flags, *ttl_ms);
                    let below = create(op, &format!("{path}/below"), flags, *ttl_ms);
                    requests.extend([alone, below, Request::get_data(path)]);
                    // See `create2_in_a_multi_keeps_its_stat`.
                    if op != Op::Create2 || !(0..=3).contains(&flags) {
                        let path = format!("/a/{}-", requests.len());
                        let inner = create(op, &path, flags, *ttl_ms);
                        let before = Request::set_data("/a", "x");
                        requests.push(Request::Multi(vec![before, inner.clone()]));
                        let failing = Request::delete("/none");
                        requests.push(Request::Multi(vec![failing, inner]));
                        requests.push(Request::get_data(path));
                    }
                }
            }
        }
        requests.push(Request::GetChildren2 {
            path: "/a".into(),
            watch: false,
        });
        requests.push(Request::GetEphemerals {
            prefix: String::new(),
        });
        // One by one, see `a_container_has_children_at_once`.
        check(&mut pair, requests.into_iter().map(|r| vec![r]).collect()).await;
    }
}

#[tokio::test]
async fn every_request_cut_at_every_byte() {
    let mut pair = Pair::start(Settings::EXTENDED).await.unwrap();
    let reconfig = Request::Reconfig {
        joining: Some("x".into()),
        leaving: None,
        members: None,
        config_id: 0,
    };
    let mut requests = requests("/a");
    requests.extend([reconfig, Request::delete("/a")]);
    for request in requests {
        let body = body_of(&request);
        let op = request.number();
        let raw = |body: &[u8]| Request::Raw {
            op,
            body: body.to_vec(),
        };
        let mut broken: Vec<_> = (0..body.len()).map(|end| raw(&body[..end])).collect();
        // Impossible lengths and counts, at every possible place.
        for place in 0..body.len().saturating_sub(3) {
            for length in [-2, 1 << 20] {
                if is_length(&request, &body, place) {
                    let mut body = body.clone();
                    body[place..place + 4].copy_from_slice(&i32::to_be_bytes(length));
                    broken.push(raw(&body));
                }
            }
        }
        // Extra bytes are no error.
        broken.push(raw(&[&body[..], b"more"].concat()));
        let start = vec![Request::create("/a", "x")];
        check(&mut pair, vec![start, broken]).await;
    }
}

#[tokio::test]
async fn requests_that_are_answered_out_of_turn_or_by_a_close() {
    let mut pair = Pair::start(Settings::default()).await.unwrap();
    let mut steps = Vec::new();
    for request in [
        Request::auth_digest("user:password"),
        Request::Sasl {
            token: Some(b"token".to_vec()),
        },
    ] {
        let body = body_of(&request);
        let op = request.number();
        steps.extend((0..=body.len()).map(|end| Request::Raw {
            op,
            body: body[..end].to_vec(),
        }));
    }
    let null = (-1i32).to_be_bytes();
    for scheme in [
        "digest", "ip", "world", "auth", "super", "sasl", "x509", "", "x",
    ] {
        for data in [None, Some(""), Some(":"), Some("a:b"), Some("a:b:c")] {
            steps.push(Request::Auth {
                scheme: scheme.into(),
                data: data.map(Into::into),
            });
            steps.push(Request::WhoAmI);
        }
    }
    let mut without_scheme = vec![0; 4];
    without_scheme.extend([null, null].concat());
    let raw = |op, body: &[u8]| Request::Raw {
        op,
        body: body.to_vec(),
    };
    steps.push(raw(Op::Auth.number(), &without_scheme));
    for op in [
        i32::MIN,
        -12,
        -9,
        -1,
        0,
        10,
        23,
        50,
        99,
        108,
        1000,
        i32::MAX,
    ] {
        steps.extend([raw(op, b""), raw(op, b"body")]);
    }
    for op in [Op::Ping, Op::WhoAmI, Op::DeleteContainer] {
        let op = op.number();
        steps.extend([raw(op, b""), raw(op, b"/zookeeper"), raw(op, &null)]);
    }
    // With four bytes or more Apache's server replies with a session.
    for length in 0..4 {
        steps.push(raw(Op::CreateSession.number(), &vec![0; length]));
    }
    check(
        &mut pair,
        steps.into_iter().map(|step| vec![step]).collect(),
    )
    .await;
}

#[tokio::test]
async fn every_sort_of_access_list() {
    let mut pair = Pair::start(Settings::default()).await.unwrap();
    let ids = [
        ("world", "anyone"),
        ("world", "Anyone"),
        ("world", ""),
        ("auth", ""),
        ("auth", "any text"),
        ("digest", "a:b"),
        ("digest", ":b"),
        ("digest", "a:b:"),
        ("digest", "a:b:c"),
        ("digest", "a::"),
        ("digest", "a:"),
        ("digest", ":"),
        ("digest", ""),
        ("digest", "user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY="),
        ("ip", "127.0.0.1"),
        ("ip", "127.0.0.1/32"),
        ("ip", "127.0.0.1/33"),
        ("ip", "127.0.0.1/-1"),
        ("ip", "127.0.0.1/"),
        ("ip", "127.0.0.1/8/8"),
        ("ip", "127.255.0.0/8"),
        ("ip", "126.0.0.0/7"),
        ("ip", "128.0.0.0/1"),
        ("ip", "0.0.0.0/0"),
        ("ip", "127.0.0"),
        ("ip", "127.0.0.0.1"),
        ("ip", "127.0.0.01"),
        ("ip", "127.0.0.+1"),
        ("ip", "127.0.0.x"),
        ("ip", "127.0.0.256"),
        ("ip", "localhost"),
        ("ip", "::1"),
        ("ip", ""),
        ("sasl", "user"),
        ("x509", "CN=user"),
        ("super", ""),
        ("", ""),
        ("none", "x"),
    ];
    let lists = ids.iter().flat_map(|(scheme, id)| {
        [acl::ALL, acl::READ, acl::ADMIN, 0, 64].map(|perms| {
            vec![Acl {
                perms,
                id: Id::new(*scheme, *id),
            }]
        })
    });
    let requests: Vec<_> = lists
        .enumerate()
        .flat_map(|(index, acl)| {
            let path = format!("/{index}");
            let Request::Create(create) = Request::create(&path, "x") else {
                unreachable!("it is a create");
            };
            [
                Request::Create(Create { acl, ..create }),
                Request::get_data(&path),
                Request::get_children(&path),
                Request::GetAcl { path: path.clone() },
                Request::create(format!("{path}/below"), ""),
                Request::delete(format!("{path}/below")),
                Request::set_data(&path, "y"),
            ]
        })
        .collect();
    let mut steps = Vec::new();
    for credential in [None, Some("user:password"), Some("other:secret")] {
        steps.extend(credential.map(|credential| vec![Request::auth_digest(credential)]));
        steps.extend(requests.chunks(35).map(<[_]>::to_vec));
        // The next one starts with a clean tree, but with the same client.
        let paths = (0..requests.len()).map(|index| Request::delete(format!("/{index}")));
        steps.push(paths.collect());
    }
    check(&mut pair, steps).await;
}

/// Every request that has a path, with this one.
fn requests(path: &str) -> Vec<Request> {
    let text = || path.to_owned();
    let list = || vec![text()];
    let watch = false;
    let mut requests = vec![
        Request::exists(path),
        Request::get_data(path),
        Request::get_children(path),
        Request::GetChildren2 {
            path: text(),
            watch,
        },
        Request::GetAcl { path: text() },
        Request::GetAllChildrenNumber { path: text() },
        Request::GetEphemerals { prefix: text() },
        Request::Sync { path: text() },
        Request::set_data(path, "data"),
        Request::MultiRead(vec![Request::get_data(path), Request::get_children(path)]),
        // A version that no node has, see `a_check_that_succeeds_is_answered`.
        Request::Check {
            path: text(),
            version: 1000,
        },
    ];
    for op in CREATES {
        for flags in 0..=6 {
            requests.push(create(op, path, flags, TTL_MS));
        }
        requests.push(Request::delete(path));
    }
    for operation in [
        create(Op::Create, path, Create::PERSISTENT, 0),
        create(Op::Create, path, Create::PERSISTENT_SEQUENTIAL, 0),
        Request::delete(path),
        Request::set_data(path, "data"),
        Request::Check {
            path: text(),
            version: -1,
        },
    ] {
        requests.push(Request::Multi(vec![Request::set_data("/", "x"), operation]));
    }
    let remove = |kind| Request::RemoveWatches { path: text(), kind };
    for read in [
        Request::exists(path),
        Request::get_data(path),
        Request::get_children(path),
    ] {
        requests.extend([read.watching(), remove(1), remove(2), remove(3)]);
    }
    for mode in -1..=2 {
        requests.extend([
            Request::AddWatch { path: text(), mode },
            remove(3),
            remove(0),
        ]);
    }
    let lists = [
        WatchLists {
            data: list(),
            ..WatchLists::default()
        },
        WatchLists {
            exist: list(),
            ..WatchLists::default()
        },
        WatchLists {
            child: list(),
            ..WatchLists::default()
        },
    ];
    for lists in lists {
        requests.extend([Request::SetWatches(lists.clone()), remove(3)]);
        requests.extend([Request::SetWatches2(lists), remove(3)]);
    }
    let persistent = WatchLists {
        persistent: list(),
        ..WatchLists::default()
    };
    let recursive = WatchLists {
        recursive: list(),
        ..WatchLists::default()
    };
    requests.extend([Request::SetWatches2(persistent), remove(3)]);
    requests.extend([Request::SetWatches2(recursive), remove(3)]);
    requests.push(Request::SetAcl {
        path: text(),
        acl: vec![Acl::open()],
        version: -1,
    });
    requests
}

fn create(op: Op, path: &str, flags: i32, ttl_ms: i64) -> Request {
    Request::Create(Create {
        op,
        path: path.into(),
        data: Some("x".into()),
        acl: vec![Acl::open()],
        flags,
        ttl_ms: (op == Op::CreateTtl).then_some(ttl_ms),
    })
}

fn body_of(request: &Request) -> Vec<u8> {
    let mut body = BytesMut::new();
    request.encode_body(&mut body);
    body.to_vec()
}

/// Whether a length or a count is at this place, rather than flags, versions, times or permissions.
fn is_length(request: &Request, body: &[u8], place: usize) -> bool {
    let end = match request {
        Request::Create(create) if create.op == Op::CreateTtl => 12,
        Request::SetWatches(_) | Request::SetWatches2(_) if place >= 8 => 0,
        Request::Multi(_) | Request::MultiRead(_) | Request::Reconfig { .. } => body.len(),
        Request::SetWatches(_) | Request::SetWatches2(_) => body.len(),
        _ => 4,
    };
    let number = &body[place..place + 4];
    place + end < body.len() && number[..3] == [0; 3] && i32::from(number[3]) != acl::ALL
}

/// First all in one segment, then one after the other.
fn alone_and_together(requests: Vec<Request>) -> Vec<Vec<Request>> {
    let mut steps = vec![vec![Request::create("/a", "")]];
    steps.push(requests.clone());
    steps.extend(requests.into_iter().map(|request| vec![request]));
    steps
}

/// Sends segment after segment in one session.
async fn check(pair: &mut Pair, segments: Vec<Vec<Request>>) {
    let steps = segments
        .into_iter()
        .map(|requests| Step::Send { who: 0, requests });
    let plan = Plan {
        sessions: 1,
        steps: steps.collect(),
    };
    if let Some(difference) = pair.difference(&plan).await.unwrap() {
        let (plan, alone) = pair.shrink(plan).await.unwrap();
        panic!("{plan}\n{}", alone.unwrap_or(difference));
    }
}
