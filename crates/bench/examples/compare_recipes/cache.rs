//! Compares the cache and the watched value with those of other libraries.

use anyhow::Result;
use bellwether_bench::comparison::Bound;
use bellwether_bench::contest::Candidate::{Curator, Embedded, Kazoo, Ours};
use bellwether_bench::contest::{Args, Candidate, Contest, Servers, Workload};
use bellwether_testkit::{RawClient, Request};

const EVERYBODY: &[Candidate] = &[Ours, Embedded, Curator, Kazoo];

/// Nodes below each of the children of the cached node.
const CHILDREN: usize = 1000;

/// The data of a node.
const DATA: [u8; 100] = [b'x'; 100];

/// Requests in flight while the nodes are created.
const PIPELINE: usize = 500;

/// Numbers of nodes and watchers, and the maximum number of rounds: some libraries take a minute.
struct Size {
    nodes: usize,
    /// The most that all libraries can cache: Curator counts outstanding operations in 16 bits.
    fewer_nodes: usize,
    watchers: usize,
    rounds_max: usize,
}

impl Size {
    const WHOLE: Self = Self {
        nodes: 100_000,
        fewer_nodes: 50_000,
        watchers: 1000,
        rounds_max: 3,
    };

    const TRIAL: Self = Self {
        nodes: 10_000,
        fewer_nodes: 5_000,
        watchers: 100,
        rounds_max: usize::MAX,
    };
}

pub(crate) fn compare(args: &Args, servers: &Servers) -> Result<()> {
    let size = match args.quick {
        true => Size::TRIAL,
        false => Size::WHOLE,
    };
    let Size {
        nodes,
        fewer_nodes,
        watchers,
        ..
    } = size;
    let runtime = tokio::runtime::Runtime::new()?;
    for address in servers.addresses() {
        runtime.block_on(make_nodes(address, &[nodes, fewer_nodes]))?;
    }
    let workload = |row: String, recipe, contenders| Workload {
        row,
        recipe,
        contenders,
        count: |outcome| outcome.turns,
        candidates: EVERYBODY,
        rounds_max: size.rounds_max,
        goals: vec![(Ours, Bound::AtLeast(2.0))],
    };
    let contest = Contest {
        name: "cache",
        title: "The cache and the watched value beside those of other libraries",
        about: "Nodes of 100 bytes, a thousand in a directory. Loaded: from the start of a cache to the word that it is \
                complete. Seen to change: a tenth of the nodes is set, 500 in a transaction and all of them sent at once, by \
                another session of the same process; from then until the cache has shown the last. Told: each watcher of one \
                value has a session of its own, and the next change comes when all have been told. The others: Curator's \
                `CuratorCache`, with `SINGLE_NODE_CACHE` for the value, and kazoo's `TreeCache` and `DataWatch`. Curator's cache \
                counts what it waits for in 16 bits: of 100,000 nodes it calls itself complete with 65,535 and some, which \
                counts as failed here. The memory is \
                that of the whole process while the cache is full, whatever it did before.",
        candidates: EVERYBODY,
        workloads: vec![
            workload(format!("nodes loaded, of {nodes}"), "cache", nodes),
            workload(
                format!("nodes loaded, of {fewer_nodes}"),
                "cache",
                fewer_nodes,
            ),
            workload(
                format!("nodes seen to change, of {fewer_nodes}"),
                "cache-changes",
                fewer_nodes,
            ),
            workload(
                format!("watchers told, of {watchers}"),
                "watchers",
                watchers,
            ),
        ],
    };
    let figures = contest.run(args, servers, |_| Ok(()))?;
    contest.keep(args, &contest.page(args, &figures, "")?)
}

/// Creates the nodes to be cached.
async fn make_nodes(address: &str, sizes: &[usize]) -> Result<()> {
    let mut client = RawClient::connect(address).await?;
    let mut requests = vec![Request::create("/cached", "")];
    for nodes in sizes {
        requests.push(Request::create(format!("/cached/{nodes}"), ""));
        for directory in 0..nodes / CHILDREN {
            let path = format!("/cached/{nodes}/{directory}");
            requests.push(Request::create(&path, ""));
            let children = (0..CHILDREN).map(|child| format!("{path}/{child}"));
            requests.extend(children.map(|path| Request::create(path, DATA)));
        }
    }
    for part in requests.chunks(PIPELINE) {
        client.send_all(part).await?;
        for _ in part {
            client.receive_reply().await?.ok()?;
        }
    }
    client.call(Request::CloseSession).await?.ok()?;
    Ok(())
}
