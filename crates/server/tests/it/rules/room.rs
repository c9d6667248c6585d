//! Limits of the tree as a whole, and of the disk.

use std::io::ErrorKind;
use std::sync::Arc;

use bellwether_server::{Config, Server};
use bellwether_testkit::disk::Operation;
use bellwether_testkit::{Body, CrashDisk, MultiResult, RawClient, Request, TestServer};
use bellwether_wire::code::ErrorCode::QuotaExceeded;

use crate::{client_of, ok, refusal, until};

/// Maximum number of nodes that a test creates.
const NODES: usize = 10_000;

/// Creates nodes with this data until one is refused, and returns their number.
async fn fill(client: &mut RawClient, bytes: usize) -> usize {
    for number in 0..NODES {
        let create = Request::create(format!("/{number:04}"), vec![7; bytes]);
        if let Err(code) = client.call(create).await.unwrap().outcome {
            assert_eq!(code, QuotaExceeded);
            return number;
        }
    }
    panic!("nothing is refused");
}

fn delete(number: usize) -> Request {
    Request::delete(format!("/{number:04}"))
}

#[tokio::test]
async fn tree_at_its_limit_of_bytes_may_only_shrink() {
    let config = Config {
        tree_bytes_max: Some(1 << 20),
        ..TestServer::config()
    };
    let server = TestServer::with(config).await.unwrap();
    let mut client = client_of(&server).await;
    let count = fill(&mut client, 1000).await;
    // Each takes about 1550 bytes.
    assert!((600..700).contains(&count), "{count} nodes");
    let zxid = client.call(delete(0)).await.unwrap().zxid;
    ok(&mut client, Request::create("/0000", vec![7; 1000])).await;
    for refused in [
        Request::create("/more", vec![7; 2000]),
        Request::set_data("/0001", vec![7; 4000]),
    ] {
        let reply = client.call(refused).await.unwrap();
        assert_eq!(reply.outcome, Err(QuotaExceeded));
        assert_eq!(reply.zxid, zxid + 1, "a refused write takes no zxid");
    }
    // A multi is judged as a whole, in any order.
    let exchange = |path: &str, bytes| {
        let create = Request::create(path, vec![7; bytes]);
        Request::Multi(vec![create, delete(1), delete(2)])
    };
    let Body::Multi(results) = ok(&mut client, exchange("/x", 4000)).await else {
        panic!("not the reply to a multi");
    };
    assert_eq!(results[0], MultiResult::Failed(QuotaExceeded));
    refusal(&mut client, Request::exists("/x")).await;
    ok(&mut client, Request::exists("/0001")).await;
    let Body::Multi(results) = ok(&mut client, exchange("/x", 1500)).await else {
        panic!("not the reply to a multi");
    };
    assert!(!results.contains(&MultiResult::Failed(QuotaExceeded)));
    // Deletes bring it back.
    for number in 3..103 {
        ok(&mut client, delete(number)).await;
    }
    for number in 3..103 {
        ok(
            &mut client,
            Request::create(format!("/{number:04}"), vec![7; 1000]),
        )
        .await;
    }
}

#[tokio::test]
async fn tree_at_its_limit_of_nodes_may_only_shrink() {
    let config = Config {
        tree_nodes_max: 20,
        ..TestServer::config()
    };
    let server = TestServer::with(config).await.unwrap();
    let mut client = client_of(&server).await;
    // The root and those below /zookeeper count.
    assert_eq!(fill(&mut client, 0).await, 16);
    ok(&mut client, Request::set_data("/0000", "data")).await;
    let ephemeral = Request::create_ephemeral("/ephemeral");
    assert_eq!(refusal(&mut client, ephemeral.clone()).await, QuotaExceeded);
    ok(&mut client, delete(0)).await;
    // It makes room again when its session ends.
    let mut other = client_of(&server).await;
    ok(&mut other, ephemeral).await;
    assert_eq!(
        refusal(&mut client, Request::create("/0000", "")).await,
        QuotaExceeded
    );
    ok(&mut other, Request::CloseSession).await;
    ok(&mut client, Request::create("/0000", "")).await;
}

#[tokio::test]
async fn a_reload_changes_the_limits_of_the_tree_and_not_that_of_the_disk() {
    let config = |nodes, bytes| Config {
        tree_nodes_max: nodes,
        tree_bytes_max: bytes,
        ..TestServer::config()
    };
    let server = Server::start(config(20, None)).await.unwrap();
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    assert_eq!(fill(&mut client, 0).await, 16);
    let monitor = server.monitor();
    assert!(monitor.word("srvr").contains("limit of nodes"));
    let changed = Config {
        disk_free_bytes_min: Some(1 << 20),
        ..config(0, None)
    };
    let reloaded = server.reload(changed).unwrap();
    // The default of the memory is the same as at the start.
    assert_eq!(reloaded.applied, ["bellwether.treeNodesMax"]);
    assert_eq!(reloaded.needs_restart, ["bellwether.diskFreeBytesMin"]);
    assert!(!monitor.word("srvr").contains("Refuses growth"));
    ok(&mut client, Request::create("/more", "")).await;
    // The tree stays above its new limit.
    let reloaded = server.reload(config(0, Some(1))).unwrap();
    assert_eq!(reloaded.applied, ["bellwether.treeBytesMax"]);
    assert!(monitor.metrics().contains("bellwether_tree_bytes_max 1\n"));
    assert_eq!(
        refusal(&mut client, Request::create("/again", "")).await,
        QuotaExceeded
    );
    ok(&mut client, Request::delete("/more")).await;
    server.shutdown().await;
}

/// Writes that are on their way to the disk count, although no measurement has seen them.
#[tokio::test]
async fn burst_of_writes_does_not_fill_the_disk() {
    const FREE: usize = 3 << 20;
    let disk = CrashDisk::new();
    disk.report_space(100 << 20, FREE);
    let disks = Arc::new(disk.clone());
    let config = Config {
        log_preallocation_bytes: 0,
        ..TestServer::config()
    };
    let builder = Server::builder().config(config).disks(disks.clone(), disks);
    let server = builder.start().await.unwrap();
    let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
    let creates: Vec<_> = (0..1000)
        .map(|number| Request::create(format!("/{number:04}"), vec![7; 10_000]))
        .collect();
    let mut refused = 0;
    for _ in client.send_all(&creates).await.unwrap() {
        refused += usize::from(client.receive_reply().await.unwrap().outcome.is_err());
    }
    // The mark is at one percent: one MiB. A reserve of a quarter of it is taken first.
    let created = 1000 - refused;
    assert!((140..190).contains(&created), "{created} nodes");
    let monitor = server.monitor();
    let srvr = monitor.word("srvr");
    assert!(
        srvr.contains("Refuses growth: the disk is nearly full"),
        "{srvr}"
    );
    assert!(monitor.word("mntr").contains("zk_refuses_growth\t1"));
    assert!(monitor.metrics().contains("bellwether_growth_refused 1"));
    for number in 0..created {
        ok(&mut client, delete(number)).await;
    }
    // With space, growth is allowed again, at the next measurement.
    disk.report_space(100 << 20, 50 << 20);
    until("there is space", || {
        !monitor.word("srvr").contains("Refuses growth")
    })
    .await;
    ok(&mut client, Request::create("/more", "")).await;
    server.shutdown().await;
}

/// A quota of the disk is not seen by a measurement. The first write that meets it gets the reserve, and is acknowledged.
#[tokio::test]
async fn write_that_finds_no_space_gets_the_reserve() {
    for error in [ErrorKind::StorageFull, ErrorKind::QuotaExceeded] {
        let disk = CrashDisk::new();
        disk.report_space(100 << 20, 50 << 20);
        let disks = Arc::new(disk.clone());
        let start = async || {
            let builder = Server::builder().config(TestServer::config());
            builder
                .disks(disks.clone(), disks.clone())
                .start()
                .await
                .unwrap()
        };
        let server = start().await;
        let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
        ok(&mut client, Request::create("/before", "")).await;
        disk.fail(Operation::Write, 1, error);
        ok(&mut client, Request::create("/met", "")).await;
        let monitor = server.monitor();
        until("there is space", || {
            !monitor.word("srvr").contains("Refuses growth")
        })
        .await;
        ok(&mut client, Request::create("/after", "")).await;
        server.shutdown().await;
        let server = start().await;
        let mut client = RawClient::connect(server.addresses()[0]).await.unwrap();
        for path in ["/before", "/met", "/after"] {
            ok(&mut client, Request::exists(path)).await;
        }
        server.shutdown().await;
    }
}
