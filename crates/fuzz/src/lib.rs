//! Everything that reads bytes of others, as fuzz targets: one function each, which may refuse its input and nothing worse.
//!
//! The tests of this crate run each target for a second on spoiled examples of its corpus. `crates/fuzz/run` runs them with libFuzzer,
//! which is guided by the code that an input reaches.

use bellwether_server::files::txn::Txn;
use bellwether_server::files::{LogReader, SnapshotReader};
use bellwether_server::{WordList, zoo_cfg};
use bellwether_wire::connect::{ConnectReply, ConnectRequest};
use bellwether_wire::event;
use bellwether_wire::frame;
use bellwether_wire::jute::Reader;
use bellwether_wire::multi::Ops;
use bellwether_wire::op::Op;
use bellwether_wire::reply::ReplyHeader;
use bellwether_wire::request as proto;
use bellwether_wire::stat::Stat;
use bytes::BytesMut;

/// A reader of bytes.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of its corpus.
    pub name: &'static str,
    /// Reads an input.
    pub read: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 12] = [
    Target {
        name: "frames",
        read: frames,
    },
    Target {
        name: "requests",
        read: requests,
    },
    Target {
        name: "replies",
        read: replies,
    },
    Target {
        name: "client",
        read: bellwether_client::fuzz::session,
    },
    Target {
        name: "sasl",
        read: sasl,
    },
    Target {
        name: "certificate",
        read: bellwether_server::fuzz::subject,
    },
    Target {
        name: "tls_files",
        read: bellwether_server::fuzz::tls_files,
    },
    Target {
        name: "zoo_cfg",
        read: configuration,
    },
    Target {
        name: "log",
        read: log,
    },
    Target {
        name: "snapshot",
        read: snapshot,
    },
    Target {
        name: "words",
        read: words,
    },
    Target {
        name: "nodes",
        read: bellwether::fuzz::nodes,
    },
];

/// The target of this name.
pub fn target(name: &str) -> Option<Target> {
    TARGETS.into_iter().find(|target| target.name == name)
}

/// What a connection carries: frames, of which the first asks for a session.
fn frames(bytes: &[u8]) {
    let mut input = BytesMut::from(bytes);
    let mut is_first = true;
    while let Ok(Some(frame)) = frame::take(&mut input, 1 << 20) {
        if std::mem::take(&mut is_first) {
            let _ = ConnectRequest::decode(&frame);
            continue;
        }
        let reader = &mut Reader::new(&frame);
        if let Ok(header) = proto::RequestHeader::decode(reader)
            && let Some(op) = Op::from_number(header.op)
        {
            request(op, &frame[proto::RequestHeader::LENGTH..]);
        }
    }
}

/// The body of every kind of request.
fn requests(bytes: &[u8]) {
    let Some((first, body)) = bytes.split_first() else {
        return;
    };
    if let Some(op) = Op::from_number(i32::from(first.cast_signed())) {
        request(op, body);
    }
    if let Some(op) = Op::from_number(100 + i32::from(*first)) {
        request(op, body);
    }
}

fn request(op: Op, body: &[u8]) {
    let reader = &mut Reader::new(body);
    match op {
        Op::Create | Op::Create2 | Op::CreateContainer | Op::CreateTtl => {
            let _ = proto::Create::decode(op, reader);
        }
        Op::Delete | Op::Check => {
            let _ = proto::PathVersion::decode(reader);
        }
        Op::SetData => {
            let _ = proto::SetData::decode(reader);
        }
        Op::SetAcl => {
            let _ = proto::SetAcl::decode(reader);
        }
        Op::SetWatches | Op::SetWatches2 => {
            let _ = proto::SetWatches::decode(op, reader);
        }
        Op::AddWatch | Op::CheckWatches | Op::RemoveWatches => {
            let _ = proto::PathNumber::decode(reader);
        }
        Op::Auth => {
            let _ = proto::Auth::decode(reader);
        }
        Op::Multi | Op::MultiRead => {
            let _ = Ops::decode(reader);
        }
        Op::Reconfig => {
            let _ = proto::skip_reconfig(reader);
        }
        _ => {
            let _ = proto::PathWatch::decode(reader);
        }
    }
}

/// What servers send, as records.
fn replies(bytes: &[u8]) {
    let _ = ConnectReply::decode(bytes);
    let reader = &mut Reader::new(bytes);
    if ReplyHeader::decode(reader).is_ok() {
        let _ = event::decode(reader);
    }
    let _ = Stat::decode(&mut Reader::new(bytes));
    bellwether_client::fuzz::bodies(bytes);
}

/// Both sides of DIGEST-MD5, and the file of users.
fn sasl(bytes: &[u8]) {
    bellwether_server::fuzz::sasl(bytes);
    bellwether_client::fuzz::sasl(bytes);
}

fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    // Names of hosts are looked up, which is not what is tested here.
    let text = text.replace("Address", "address");
    let _ = zoo_cfg::parse(&text);
}

fn words(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let _ = WordList::parse(&text);
    bellwether_server::fuzz::first_word(bytes);
}

fn log(bytes: &[u8]) {
    let _ = Txn::decode(bytes);
    if let Ok(mut log) = LogReader::open(bytes) {
        while let Ok(Some(_)) = log.next() {}
    }
}

/// Read as it is, and as a compressed file.
fn snapshot(bytes: &[u8]) {
    for name in ["snapshot.1", "snapshot.1.gz", "snapshot.1.snappy"] {
        let Ok(mut snapshot) = SnapshotReader::open(bytes, name) else {
            continue;
        };
        while let Ok(Some(_)) = snapshot.next() {}
    }
}
