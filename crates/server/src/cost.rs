//! The code paths that every request takes, each as one function whose CPU instructions can be counted: see `crates/bench/instructions`,
//! which runs these tests one by one.
//!
//! No sockets, threads or disks, so that counts repeat exactly but for the random keys of hash tables, which many different paths average
//! out. Setup is outside the counted functions.

use std::hint::black_box;

use bellwether_testkit::{Create, Request as ClientRequest};
use bellwether_wire::jute::Reader;
use bellwether_wire::op::Op;
use bellwether_wire::request::{self, PathWatch, RequestHeader, SetData};
use bellwether_wire::{frame, reply};
use bytes::BytesMut;

use crate::audit::Audit;
use crate::client::Request;
use crate::server::core::{Client, Core, GROUP, NOW_MS};
use crate::tree::txn::{Lifetime, Txn, TxnBody};
use crate::tree::{Tree, access};

/// How often each path is taken.
const COUNT: usize = 5000;

#[test]
fn codec() {
    let requests = |number| {
        [
            ClientRequest::get_data(path(number)),
            ClientRequest::set_data(path(number), data()),
            ClientRequest::create(path(number), data()),
        ]
    };
    let frames: Vec<_> = (0..COUNT).flat_map(requests).collect();
    let mut input = BytesMut::new();
    for request in &frames {
        input.extend_from_slice(&request.encode(1));
    }
    let stat = Tree::fresh().get("/").unwrap().stat();
    assert_eq!(counted::codec(input, stat), frames.len());
}

#[test]
fn tree() {
    let mut all = Vec::new();
    for number in 0..COUNT {
        all.push(TxnBody::Create {
            path: path(number).into(),
            data: Some(data().into()),
            acl: access::open(),
            lifetime: Lifetime::Persistent,
            parent_cversion: i32::try_from(number).unwrap() + 1,
        });
    }
    for number in 0..COUNT {
        all.push(TxnBody::SetData {
            path: path(number).into(),
            data: Some(data().into()),
            version: 1,
        });
    }
    for number in 0..COUNT {
        all.push(TxnBody::Delete {
            path: path(number).into(),
        });
    }
    let all: Vec<_> = (1..).zip(all).map(|(zxid, body)| txn(zxid, body)).collect();
    assert_eq!(counted::tree(&all), 3 * COUNT);
}

/// Nodes 64 levels deep: each create and delete also updates the counts of all ancestors.
#[test]
fn deep() {
    let top = "/level".repeat(63);
    let create = |path: String| TxnBody::Create {
        path: path.into(),
        data: Some(data().into()),
        acl: access::open(),
        lifetime: Lifetime::Persistent,
        parent_cversion: 1,
    };
    let mut tree = Tree::fresh();
    for levels in 1..=63 {
        tree.apply(&txn(
            levels,
            create("/level".repeat(usize::try_from(levels).unwrap())),
        ));
    }
    let path = |number| format!("{top}/{number}");
    let mut all: Vec<_> = (0..COUNT).map(|number| create(path(number))).collect();
    all.extend((0..COUNT).map(|number| TxnBody::Delete {
        path: path(number).into(),
    }));
    let all: Vec<_> = (64..)
        .zip(all)
        .map(|(zxid, body)| txn(zxid, body))
        .collect();
    assert_eq!(counted::deep(tree, &all), 2 * COUNT);
}

#[test]
fn write() {
    let mut core = Core::new();
    let client = core.connect();
    let requests = writes(&client);
    counted::write(&mut core, &client, requests);
    let tree = core.published.tree();
    assert_eq!(tree.get(&path(COUNT - 1)).unwrap().version, 1);
}

/// The same writes as in [`write`], each with a line in an audit log.
#[test]
fn audit() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("audit.log");
    let mut core = Core::with_audit(Some(Audit::open(&file).unwrap()));
    let client = core.connect();
    let requests = writes(&client);
    counted::audit(&mut core, &client, requests);
    let lines = std::fs::read_to_string(&file).unwrap();
    assert_eq!(lines.matches("\"path\":\"/node-").count(), 2 * COUNT);
}

#[test]
fn read() {
    let mut core = Core::new();
    let client = core.connect();
    fill(&mut core, &client);
    let get = |number| client.request(&ClientRequest::get_data(path(number)));
    let requests: Vec<_> = (0..COUNT).map(get).collect();
    counted::read(&core, &client, requests);
    assert!(client.peer.outbox.len() > COUNT * 100);
}

/// Many paths watched by one client, and one path watched by many.
#[test]
fn watch() {
    let mut core = Core::new();
    let writer = core.connect();
    fill(&mut core, &writer);
    let watchers: Vec<_> = (0..COUNT).map(|_| core.connect()).collect();
    let arm = |client: &Client, node| client.request(&ClientRequest::get_data(node).watching());
    let mut armed: Vec<_> = watchers
        .iter()
        .map(|client| (client, arm(client, path(0))))
        .collect();
    armed.extend((1..COUNT).map(|number| (&writer, arm(&writer, path(number)))));
    let set = |number| writer.request(&ClientRequest::set_data(path(number), data()));
    let sets = (0..COUNT).map(set).collect();
    counted::watch(&mut core, &writer, armed, sets);
    assert_eq!(core.published.watch_count(), 0);
}

/// The counted code: these functions and everything they call.
mod counted {
    use super::*;

    #[inline(never)]
    pub(super) fn codec(mut input: BytesMut, stat: bellwether_wire::stat::Stat) -> usize {
        let mut out = BytesMut::new();
        let mut count = 0;
        while let Some(frame) = frame::take(&mut input, usize::MAX).unwrap() {
            let mut reader = Reader::new(&frame);
            let header = RequestHeader::decode(&mut reader).unwrap();
            match Op::from_number(header.op).unwrap() {
                Op::GetData => drop(black_box(PathWatch::decode(&mut reader))),
                Op::SetData => drop(black_box(SetData::decode(&mut reader))),
                op => drop(black_box(request::Create::decode(op, &mut reader))),
            }
            reply::put(&mut out, header.xid, 1, Ok(()), |out| stat.encode(out));
            count += 1;
        }
        black_box(out);
        count
    }

    #[inline(never)]
    pub(super) fn tree(txns: &[Txn]) -> usize {
        apply(Tree::fresh(), txns)
    }

    #[inline(never)]
    pub(super) fn deep(tree: Tree, txns: &[Txn]) -> usize {
        apply(tree, txns)
    }

    #[inline(always)]
    fn apply(mut tree: Tree, txns: &[Txn]) -> usize {
        let mut changes = 0;
        for group in txns.chunks(GROUP) {
            // A reader holds this version: the next change must copy, not modify it.
            let _seen = tree.clone();
            for txn in group {
                changes += tree.apply(txn).len();
            }
        }
        changes
    }

    #[inline(never)]
    pub(super) fn write(core: &mut Core, client: &Client, requests: Vec<Request>) {
        core.write(client, requests);
    }

    #[inline(never)]
    pub(super) fn audit(core: &mut Core, client: &Client, requests: Vec<Request>) {
        core.write(client, black_box(requests));
    }

    #[inline(never)]
    pub(super) fn read(core: &Core, client: &Client, requests: Vec<Request>) {
        for request in requests {
            assert!(core.published.read(&client.session, request));
        }
    }

    #[inline(never)]
    pub(super) fn watch(
        core: &mut Core,
        writer: &Client,
        armed: Vec<(&Client, Request)>,
        sets: Vec<Request>,
    ) {
        for (client, request) in armed {
            assert!(core.published.read(&client.session, request));
        }
        core.write(writer, sets);
    }
}

/// Creates all nodes, and changes each once.
fn writes(client: &Client) -> Vec<Request> {
    let create = |number| ClientRequest::create_mode(path(number), data(), Create::PERSISTENT);
    let set = |number| ClientRequest::set_data(path(number), data());
    let requests = (0..COUNT).map(create).chain((0..COUNT).map(set));
    requests.map(|one| client.request(&one)).collect()
}

/// Creates all nodes.
fn fill(core: &mut Core, client: &Client) {
    let create = |number| client.request(&ClientRequest::create(path(number), data()));
    core.write(client, (0..COUNT).map(create).collect());
}

fn path(number: usize) -> String {
    format!("/node-{number:05}")
}

fn data() -> Vec<u8> {
    vec![b'x'; 100]
}

fn txn(zxid: i64, body: TxnBody) -> Txn {
    Txn {
        session_id: 1,
        cxid: 1,
        zxid,
        time_ms: NOW_MS,
        body,
    }
}
