//! Load that the dashboard puts on a server: little while a page is open, and none otherwise.

use std::io;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use bellwether::{Client, Lock, connect};
use bellwether_dashboard::{Dashboard, Member};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{FaultProxy, Op, TestServer};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::support::LONG;

/// Duration of each load.
const LOAD: Duration = Duration::from_secs(5);

/// Hand-overs at a thousand locks by some clients at once; returns their number.
async fn load(clients: &[Client]) -> Result<u64> {
    let end = Instant::now() + LOAD;
    let workers = clients
        .iter()
        .enumerate()
        .map(|(worker, client)| async move {
            let mut hand_overs = 0;
            while Instant::now() < end {
                let number = (hand_overs * 7 + worker as u64 * 131) % 1000;
                let lock = Lock::new(client, format!("/locks/l{number:04}"));
                lock.acquire().await?.release().await?;
                hand_overs += 1;
            }
            Ok::<_, anyhow::Error>(hand_overs)
        });
    let counts = futures_util::future::try_join_all(workers).await?;
    Ok(counts.iter().sum())
}

async fn received(server: &TestServer) -> Result<usize> {
    let text = four_letter_word(server.address(), "srvr").await?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Received: "));
    Ok(line.context("no count")?.trim().parse()?)
}

/// Requests of the dashboard, except heartbeats.
fn own(proxy: &FaultProxy) -> usize {
    let counts = proxy.counts().into_iter();
    counts
        .filter(|(op, _)| *op != Op::Ping)
        .map(|(_, count)| count)
        .sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn open_page_adds_a_twentieth_to_a_busy_server_and_none_adds_nothing() -> Result<()> {
    let server = TestServer::start().await?;
    let holder = connect(server.connect_string()).await?;
    // A waiter keeps its directory alive, so the load finds a thousand lines.
    let mut waiting = Vec::new();
    for number in 0..1000 {
        let lock = Lock::new(&holder, format!("/locks/l{number:04}/inner"));
        waiting.push(lock.acquire().await?);
    }
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(connect(server.connect_string()).await?);
    }
    let proxy = FaultProxy::start(server.address()).await?;
    let own_client = connect(proxy.connect_string()).await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // Tells the dashboard how busy the server is.
    let words = server.address();
    let member = Member::new("server", move |word| async move {
        four_letter_word(words, word)
            .await
            .map_err(io::Error::other)
    });
    let dashboard = Dashboard::new(&own_client).member(member);
    let dashboard = tokio::spawn(dashboard.serve(listener));

    let before = own(&proxy);
    let idle = load(&clients).await?;
    assert_eq!(own(&proxy), before, "no page is open");

    let mut page = BufReader::new(TcpStream::connect(address).await?);
    let head = format!("GET /api/live HTTP/1.1\r\nHost: {address}\r\n\r\n");
    page.write_all(head.as_bytes()).await?;
    let mut line = String::new();
    while !line.contains(r#""ready":true"#) {
        line.clear();
        timeout(LONG, page.read_line(&mut line)).await??;
    }
    let reading = tokio::spawn(async move {
        let mut line = String::new();
        while page.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            line.clear();
        }
    });
    let (own_before, all_before) = (own(&proxy), received(&server).await?);
    let watched = load(&clients).await?;
    let (own_after, all_after) = (own(&proxy), received(&server).await?);
    let (asked, all) = (own_after - own_before, all_after - all_before);
    println!(
        "{idle} hand-overs without a page, {watched} with one; {asked} of {all} requests are the dashboard's"
    );
    // Below 3,000 requests a second the minimum rate is more than a twentieth.
    let least = 150 * usize::try_from(LOAD.as_secs())? + 400;
    assert!(asked <= (all / 20).max(least), "{asked} of {all}");
    assert!(asked > 0, "changes were looked at");

    reading.abort();
    let _ = reading.await;
    until_quiet(&proxy).await?;
    let before = own(&proxy);
    load(&clients).await?;
    assert_eq!(own(&proxy), before, "the page is closed");
    dashboard.abort();
    Ok(())
}

/// Waits until the dashboard has noticed that its page is closed: then it removes its watch.
async fn until_quiet(proxy: &FaultProxy) -> Result<()> {
    let removed = async {
        while proxy.count(Op::RemoveWatches) == 0 {
            tokio::task::yield_now().await;
        }
    };
    Ok(timeout(LONG, removed).await?)
}
