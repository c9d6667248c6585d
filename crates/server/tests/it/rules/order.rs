//! Order of zxids, replies and events.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{Body, Frame, RawClient, Reply, Request};
use bellwether_wire::event::EventKind;
use bellwether_wire::stat::Stat;
use tokio::task::JoinSet;

use crate::{client_of, ok, refusal, server_and_client, stat, until};

// --- 1: one zxid a write, and none runs backwards ---------------------------------------------------

#[tokio::test]
async fn every_write_takes_one_zxid_whatever_comes_of_it_and_no_read_does() {
    let (_server, mut client) = server_and_client().await;
    let raw = |op, body: &[u8]| Request::Raw {
        op,
        body: body.to_vec(),
    };
    let check = |version| Request::Check {
        path: "/a".into(),
        version,
    };
    let reconfig = Request::Reconfig {
        joining: None,
        leaving: None,
        members: None,
        config_id: -1,
    };
    let writes = [
        Request::create("/a", ""),
        Request::create("/a", "exists"),
        Request::create("/no/parent", ""),
        Request::delete("/none"),
        Request::set_data("/none", ""),
        check(0),
        check(7),
        Request::Multi(vec![]),
        Request::Multi(vec![Request::create("/b", ""), Request::delete("/none")]),
        Request::Multi(vec![Request::create("/c", ""), Request::create("/d", "")]),
        reconfig,
        raw(1, b""),
        raw(14, b"?"),
        raw(20, b"/a"),
    ];
    let mut last = ok_zxid(&mut client, Request::exists("/")).await;
    for write in writes {
        let reply = client.call(write.clone()).await.unwrap();
        assert_eq!(reply.zxid, last + 1, "{write:?}");
        last = reply.zxid;
    }
    let reads = [
        Request::get_data("/a").watching(),
        Request::get_data("/none"),
        Request::Sync { path: "/".into() },
        Request::Ping,
        Request::WhoAmI,
        Request::MultiRead(vec![Request::get_data("/a")]),
        raw(4, b""),
        raw(16, b""),
    ];
    for read in reads {
        let reply = client.call(read.clone()).await.unwrap();
        assert_eq!(reply.zxid, last, "{read:?}");
    }
}

async fn ok_zxid(client: &mut RawClient, request: Request) -> i64 {
    client.call(request).await.unwrap().zxid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn zxids_of_replies_never_run_backwards_and_writes_share_none() {
    const CLIENTS: usize = 4;
    const ROUNDS: usize = 100;
    let (server, mut first) = server_and_client().await;
    ok(&mut first, Request::create("/a", "")).await;
    let before = first.last_zxid();
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let mut client = client_of(&server).await;
        clients.spawn(async move {
            let mut writes = Vec::new();
            let mut last = 0;
            for _ in 0..ROUNDS {
                let segment = [
                    Request::get_data("/a"),
                    Request::set_data("/a", "x"),
                    Request::get_data("/a"),
                    Request::delete("/none"),
                    Request::Ping,
                ];
                client.send_all(&segment).await.unwrap();
                for request in segment {
                    let reply = client.receive_reply().await.unwrap();
                    assert!(reply.zxid >= last, "{} behind {last}", reply.zxid);
                    last = reply.zxid;
                    if matches!(request, Request::SetData { .. } | Request::Delete { .. }) {
                        writes.push(reply.zxid);
                    }
                }
            }
            writes
        });
    }
    let zxids: BTreeSet<i64> = clients.join_all().await.concat().into_iter().collect();
    assert_eq!(zxids.len(), CLIENTS * ROUNDS * 2, "all different");
    let sessions = i64::try_from(CLIENTS).unwrap();
    let all = i64::try_from(zxids.len()).unwrap();
    assert_eq!(*zxids.last().unwrap(), before + sessions + all, "no gaps");
}

// --- 2 and 4: one session in its order ---------------------------------------------------------------

#[tokio::test]
async fn a_read_between_two_writes_of_one_segment_sees_the_first_only() {
    let (_server, mut client) = server_and_client().await;
    ok(&mut client, Request::create("/a", "0")).await;
    for _ in 0..100 {
        let segment = [
            Request::set_data("/a", "1"),
            Request::get_data("/a"),
            Request::set_data("/a", "2"),
            Request::get_data("/a"),
        ];
        let xids = client.send_all(&segment).await.unwrap();
        let mut seen = Vec::new();
        for xid in xids {
            let reply = client.receive_reply().await.unwrap();
            assert_eq!(reply.xid, xid, "replies come in the order of requests");
            if let Body::DataStat(data, _) = reply.ok().unwrap() {
                seen.push(data.unwrap());
            }
        }
        assert_eq!(seen, [b"1", b"2"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_comes_back_finds_all_its_writes_settled() {
    let (server, mut client) = server_and_client().await;
    // Reads of another session do not wait: they see published writes and nothing more.
    let mut other = client_of(&server).await;
    let requests = vec![Request::set_data("/", ""); 3000];
    let mut before = 0;
    for _ in 0..20 {
        client.send_all(&requests).await.unwrap();
        let next = client.reattach(server.address()).await.unwrap();
        let settled = stat(&mut other, "/").await.version;
        let mut answered = 0;
        while client.receive().await.is_ok() {
            answered += 1;
        }
        let done = settled - before;
        assert!(answered <= done, "{answered} answered, {done} done");
        // A write is decided after everything accepted before it.
        refusal(&mut other, Request::delete("/none")).await;
        let late = stat(&mut other, "/").await.version - settled;
        assert_eq!(late, 0, "writes of the old connection came late");
        before = settled;
        client = next;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_that_fight_for_a_session_do_not_break_it() {
    let (server, first) = server_and_client().await;
    let (first, address) = (Arc::new(first), server.address());
    let mut fighters = JoinSet::new();
    for _ in 0..2 {
        let first = first.clone();
        fighters.spawn(async move {
            let mut written = 0;
            for _ in 0..100 {
                // The other connection may take the session over at any point.
                let Ok(mut client) = first.reattach(address).await else {
                    continue;
                };
                assert!(!client.is_refused());
                let segment = [Request::set_data("/", "x"), Request::get_data("/")];
                if client.send_all(&segment).await.is_ok() {
                    written += usize::from(client.receive().await.is_ok());
                }
            }
            written
        });
    }
    let written: usize = fighters.join_all().await.iter().sum();
    let mut last = first.reattach(address).await.unwrap();
    let version = stat(&mut last, "/").await.version;
    assert!(usize::try_from(version).unwrap() >= written);
    until("the others are gone", || {
        server.connection_count().unwrap() == 1
    })
    .await;
    assert_eq!(server.session_count().unwrap(), 1);
    let monitor = four_letter_word(address, "mntr").await.unwrap();
    assert!(
        monitor.contains("zk_outstanding_requests\t0\n"),
        "{monitor}"
    );
}

// --- 3: events and replies -----------------------------------------------------------------------------

/// Reads of one node, some with a watch, while others write it all the time. Every reply and every event is checked against what the watch
/// allows at that point.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_no_change_is_seen_before_its_event_and_no_event_before_its_watch() {
    let (server, mut first) = server_and_client().await;
    ok(&mut first, Request::create("/a", "")).await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut writers = JoinSet::new();
    for number in 0..2 {
        let (mut client, stop) = (client_of(&server).await, stop.clone());
        let child = format!("/a/{number}");
        writers.spawn(async move {
            while !stop.load(Relaxed) {
                let segment = [
                    Request::set_data("/a", "x"),
                    Request::create(&child, ""),
                    Request::delete(&child),
                ];
                client.send_all(&segment).await.unwrap();
                for _ in segment {
                    client.receive_reply().await.unwrap().ok().unwrap();
                }
            }
        });
    }
    let path = "/a".to_owned();
    let list = Request::GetChildren2 { path, watch: false };
    let mut watchers = JoinSet::new();
    for (read, changed) in [
        (
            Request::get_data("/a"),
            (|stat| stat.mzxid) as fn(&Stat) -> i64,
        ),
        (Request::exists("/a"), |stat| stat.mzxid),
        (list, |stat| stat.pzxid),
    ] {
        watchers.spawn(watch_changes(client_of(&server).await, read, changed));
    }
    watchers.join_all().await;
    stop.store(true, Relaxed);
    writers.join_all().await;
}

async fn watch_changes(mut client: RawClient, read: Request, changed: fn(&Stat) -> i64) {
    let mut fired = 0;
    // The zxid of the last change when the watch was armed.
    let mut armed = None;
    while fired < 100 {
        let armed_first = [read.clone().watching(), read.clone(), read.clone()];
        let first = client.send_all(&armed_first).await.unwrap()[0];
        let mut replies = 0;
        while replies < armed_first.len() {
            match client.receive().await.unwrap() {
                Frame::Event(event) => {
                    assert!(armed.take().is_some(), "{event:?} before its watch");
                    fired += 1;
                }
                Frame::Reply(reply) => {
                    replies += 1;
                    let zxid = changed(reply.outcome.unwrap().stat().unwrap());
                    if let Some(at) = armed {
                        assert_eq!(zxid, at, "a change was seen before its event");
                    } else if reply.xid == first {
                        armed = Some(zxid);
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn who_hears_of_a_write_from_elsewhere_has_its_event_before_it_can_read_it() {
    let (server, mut writer) = server_and_client().await;
    let mut watcher = client_of(&server).await;
    ok(&mut writer, Request::create("/a", "")).await;
    for version in 1..100 {
        ok(&mut watcher, Request::get_data("/a").watching()).await;
        ok(&mut writer, Request::set_data("/a", "x")).await;
        let reply: Reply = watcher.call(Request::get_data("/a")).await.unwrap();
        assert_eq!(reply.ok().unwrap().stat().unwrap().version, version);
        let events = watcher.take_events();
        assert_eq!(events.len(), 1);
        assert_eq!(events[0].kind, EventKind::NodeDataChanged);
    }
}
