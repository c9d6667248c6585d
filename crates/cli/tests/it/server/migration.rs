//! From one server to an Apache ensemble, and back, with everything in use.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bellwether::two_phase::{Decision, Participant, Proposal, Vote};
use bellwether::zk::CreateMode;
use bellwether::{Client, Lock, Queue, TwoPhase, connect};
use bellwether_testkit::{Ensemble, Port};
use rustix::process::Signal;
use serde_json::Value;
use tokio::time::timeout;

use crate::support::bellwether::{LIMIT, Running, assert_code, bellwether, serve};

/// Longer than a move takes, and within what servers grant with the default tick.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

const NODES: usize = 10_000;
const ITEMS: usize = 20;

fn serve_on(port: u16, data: &Path) -> Running {
    let listen = format!("127.0.0.1:{port}");
    let mut command = bellwether();
    command
        .args(["serve", "--listen", &listen, "--data"])
        .arg(data);
    // Sessions that are to continue on Apache's servers.
    command.args(["--session-passwords", "apache"]);
    serve(&mut command).0
}

/// Runs `bellwether ensemble`; returns the folders and addresses of the members.
fn make_ensemble(data: &Path, into: &Path, ports: &[Port]) -> Vec<(PathBuf, SocketAddr)> {
    let hosts = ports.chunks(3).map(|ports| {
        let [client, peer, election] = [0, 1, 2].map(|one| ports[one].number());
        format!("127.0.0.1:{client}:{peer}:{election}")
    });
    let mut command = bellwether();
    command.args(["ensemble", "--in-place", "--json", "--data"]);
    let output = command
        .arg(data)
        .arg("--into")
        .arg(into)
        .args(hosts)
        .output();
    let output = output.unwrap();
    assert_code(&output, 0);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    let folders = told["nodes"].as_array().unwrap().iter();
    let folders = folders.map(|node| PathBuf::from(node["folder"].as_str().unwrap()));
    let addresses = told["connect"].as_str().unwrap().split(',');
    folders
        .zip(addresses.map(|address| address.parse().unwrap()))
        .collect()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.expect("this takes too long")
}

async fn fill(client: &Client) {
    let raw = client.raw();
    raw.create("/nodes", b"", CreateMode::Persistent)
        .await
        .unwrap();
    for start in (0..NODES).step_by(500) {
        let mut multi = raw.new_multi();
        for number in start..start + 500 {
            let data = number.to_string();
            multi.create(
                &format!("/nodes/{number}"),
                data.as_bytes(),
                CreateMode::Persistent,
            );
        }
        soon(multi.commit()).await.unwrap();
    }
}

async fn assert_filled(client: &Client) {
    let raw = client.raw();
    assert_eq!(soon(raw.children("/nodes")).await.unwrap().len(), NODES);
    for number in (0..NODES).step_by(997) {
        let (data, _) = soon(raw.get(&format!("/nodes/{number}"))).await.unwrap();
        assert_eq!(data, number.to_string().as_bytes());
    }
}

/// A site that votes to commit.
struct Site;

impl Participant for Site {
    type Error = std::convert::Infallible;

    async fn prepare(&mut self, _: &Proposal) -> Result<Vote, Self::Error> {
        Ok(Vote::Commit)
    }

    async fn commit(&mut self, _: &Proposal) -> Result<(), Self::Error> {
        Ok(())
    }

    async fn abort(&mut self, _: &Proposal) -> Result<(), Self::Error> {
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn holds_items_and_transactions_move_to_an_ensemble_and_back() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let ports = Port::reserve_all(10).unwrap();
    let (own, members) = ports.split_first().unwrap();
    let mut server = serve_on(own.number(), &data);
    // Clients know the future addresses of the members from the start.
    let mut servers = vec![format!("127.0.0.1:{}", own.number())];
    servers.extend(
        members
            .iter()
            .step_by(3)
            .map(|port| format!("127.0.0.1:{}", port.number())),
    );
    let servers = servers.join(",");
    let open = async || {
        let client = connect(&servers).session_timeout(SESSION_TIMEOUT);
        soon(client.into_future()).await.unwrap()
    };
    let (holder, waiter) = (open().await, open().await);
    fill(&holder).await;
    assert!(!holder.is_ensemble());

    let guard = soon(Lock::new(&holder, "/lock").acquire()).await.unwrap();
    let token = guard.token();
    let next = tokio::spawn({
        let waiter = waiter.clone();
        async move { Lock::new(&waiter, "/lock").acquire().await.unwrap() }
    });
    let queue = Queue::<String>::new(&holder, "/queue");
    for number in 0..ITEMS {
        soon(queue.put(&number.to_string())).await.unwrap();
    }
    for _ in 0..ITEMS / 2 - 1 {
        soon(soon(queue.take()).await.unwrap().ack()).await.unwrap();
    }
    let claim = soon(queue.take()).await.unwrap();
    let transactions = TwoPhase::new(&holder, "/transactions").no_deadline();
    let mut coordinator = soon(transactions.begin(["a", "b"], "")).await.unwrap();
    let id = coordinator.id().to_owned();
    let join = |client: &Client, site: &'static str| {
        let transaction = TwoPhase::new(client, "/transactions").transaction(&id);
        tokio::spawn(async move { transaction.participate(site, &mut Site).await.unwrap() })
    };
    // One site has voted before the move, the other votes after it.
    let first = join(&waiter, "a");
    soon(async {
        while transactions
            .transaction(&id)
            .status()
            .await
            .unwrap()
            .missing()
            .count()
            > 1
        {}
    })
    .await;

    server.signal(Signal::TERM);
    assert_eq!(server.code(), Some(0));
    let folders = make_ensemble(&data, &folder.path().join("members"), members);
    let session = holder.session_id();
    let mut ensemble = Ensemble::in_folders(&folders).await.unwrap();
    assert_filled(&holder).await;
    assert_eq!(holder.session_id(), session);
    assert!(guard.is_held() && guard.token() == token);
    // Every member is known as one, also the leader, whose `/zookeeper/config` is empty after a move.
    for (_, address) in &folders {
        let client = connect(address.to_string());
        let client = soon(client.into_future()).await.unwrap();
        assert!(client.is_ensemble(), "{address}");
        client.close().await;
    }
    // It now uses the proof of life for ensembles.
    soon(async {
        while !holder.is_ensemble() {
            tokio::task::yield_now().await
        }
    })
    .await;
    assert!(guard.is_held());
    soon(claim.ack()).await.unwrap();
    assert_eq!(soon(queue.depth()).await.unwrap().items, ITEMS / 2);
    let second = join(&waiter, "b");
    assert_eq!(soon(coordinator.decide()).await.unwrap(), Decision::Commit);
    for site in [first, second] {
        assert_eq!(soon(site).await.unwrap(), Decision::Commit);
    }
    soon(guard.release()).await.unwrap();
    let guard = soon(next).await.unwrap();
    assert!(guard.token() > token, "tokens rise over the move");

    let leader = ensemble.leader().await.unwrap();
    ensemble.stop().await.unwrap();
    let token = guard.token();
    let _server = serve_on(own.number(), &folders[leader].0);
    assert_filled(&waiter).await;
    assert!(guard.is_held());
    let next = Lock::new(&holder, "/lock");
    let next = tokio::spawn(async move { next.acquire().await.unwrap() });
    soon(guard.release()).await.unwrap();
    assert!(soon(next).await.unwrap().token() > token);
    let left = soon(queue.take()).await.unwrap();
    assert_eq!(left.payload(), &(ITEMS / 2).to_string());
}
