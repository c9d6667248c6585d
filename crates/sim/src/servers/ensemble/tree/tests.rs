//! Compares the tree with the reference model, which is itself compared with Apache's server.

use bellwether_testkit::{Body, Create as Creation, Model, Request};
use bellwether_wire::acl::Acl;
use bellwether_wire::request::{Create, PathVersion, SetData};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::*;

const SESSIONS: [i64; 2] = [7, 8];
const PATHS: [&str; 6] = ["/a", "/a/b", "/a/b/c", "/d", "/d/e", "/a/n-"];

fn some_request(random: &mut StdRng) -> Request {
    let path = *PATHS.choose(random).expect("there are some");
    let version = *[-1, 0, 1, 2].choose(random).expect("there are some");
    match random.random_range(0..6) {
        0..=2 => match random.random_range(0..=4) {
            Creation::CONTAINER => Request::create_container(path),
            flags => Request::create2(path, "data", flags),
        },
        3 => Request::Delete {
            path: path.to_owned(),
            version,
        },
        4 => Request::SetData {
            path: path.to_owned(),
            data: Some(b"more".to_vec()),
            version,
        },
        _ => Request::Check {
            path: path.to_owned(),
            version,
        },
    }
}

fn as_op(request: &Request) -> WriteOp<'_> {
    let path_version = |path: &'static str, version| PathVersion {
        path: Some(path.into()),
        version,
    };
    let known = |path: &str| PATHS.into_iter().find(|known| *known == path);
    match request {
        Request::Create(create) => WriteOp::Create(
            create.op,
            Create {
                path: Some(create.path.as_str().into()),
                data: create.data.as_deref(),
                acl: None,
                flags: create.flags,
                ttl_ms: None,
            },
        ),
        Request::Delete { path, version } => {
            WriteOp::Delete(path_version(known(path).unwrap_or_default(), *version))
        }
        Request::Check { path, version } => {
            WriteOp::Check(path_version(known(path).unwrap_or_default(), *version))
        }
        Request::SetData {
            path,
            data,
            version,
        } => WriteOp::SetData(SetData {
            path: Some(path.as_str().into()),
            data: data.as_deref(),
            version: *version,
        }),
        other => panic!("not made here: {other:?}"),
    }
}

/// The reference model differs in containers and access lists, but in nothing that is compared here.
#[test]
fn random_writes_do_what_they_do_in_the_reference_model() {
    assert_eq!(Acl::open().perms, 31);
    for seed in 0..200 {
        let mut random = StdRng::seed_from_u64(seed);
        let (mut tree, mut model) = (Tree::new(""), Model::new());
        for step in 1..=100_i64 {
            let session = *SESSIONS.choose(&mut random).expect("there are some");
            let at = At {
                zxid: step,
                time_ms: step,
            };
            if random.random_ratio(1, 20) {
                model.apply(session, step, &Request::CloseSession).unwrap();
                for path in tree.ephemerals_of(session) {
                    tree.apply(at, &TreeStep::Delete(path));
                }
                tree.zxid = step;
                continue;
            }
            let request = some_request(&mut random);
            let expected = model.apply(session, step, &request);
            let made = tree.prepare(&as_op(&request), session);
            let undo = made.as_ref().map(|step| tree.before(step)).ok();
            if let Ok(made) = &made {
                let before = tree.zxid;
                tree.apply(at, made);
                // Undone and applied again, the result is the same.
                tree.undo(before, undo.unwrap_or_default());
                tree.apply(at, made);
            }
            tree.zxid = step;
            let outcome = match (&made, &expected) {
                (Ok(TreeStep::Create(path, ..)), Ok(Body::PathStat(known, stat))) => {
                    assert_eq!(&**path, known, "seed {seed}, step {step}: {request:?}");
                    let own = tree.get(path).unwrap().stat();
                    assert_eq!(
                        (own.czxid, own.version, own.cversion, own.num_children),
                        (stat.czxid, stat.version, stat.cversion, stat.num_children),
                    );
                    Ok(())
                }
                (Ok(_), Ok(_)) => Ok(()),
                (Err(own), Err(known)) => {
                    assert_eq!(own, known, "seed {seed}, step {step}: {request:?}");
                    Ok(())
                }
                (own, known) => Err(format!("{own:?} instead of {known:?}")),
            };
            assert_eq!(outcome, Ok(()), "seed {seed}, step {step}: {request:?}");
            for path in ["/", "/a", "/a/b", "/d"] {
                let own = tree.get(path).map(Node::stat);
                let known = model.apply(session, step, &Request::exists(path));
                match (own, known) {
                    (Ok(own), Ok(Body::Stat(stat))) => assert_eq!(
                        (own.mzxid, own.pzxid, own.version, own.cversion),
                        (stat.mzxid, stat.pzxid, stat.version, stat.cversion),
                        "{path}, seed {seed}, step {step}",
                    ),
                    (Err(own), Err(known)) => assert_eq!(own, known),
                    (own, known) => panic!("{path}: {own:?} instead of {known:?}, seed {seed}"),
                }
            }
        }
    }
}
