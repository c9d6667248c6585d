//! Load that the dashboard puts on a server: little while a page is open, and none otherwise.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bellwether::zk::CreateMode;
use bellwether::{Client, Lock, connect};
use bellwether_dashboard::{Dashboard, Member};
use bellwether_testkit::raw::four_letter_word;
use bellwether_testkit::{FaultProxy, Op, TestServer};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::{LONG, request};

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

/// A server, and a dashboard whose requests are counted.
struct Watched {
    server: TestServer,
    proxy: FaultProxy,
    address: SocketAddr,
    dashboard: JoinHandle<io::Result<()>>,
}

impl Watched {
    async fn start() -> Result<Self> {
        let server = TestServer::start().await?;
        let proxy = FaultProxy::start(server.address()).await?;
        let client = connect(proxy.connect_string()).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        // Tells the dashboard how busy the server is.
        let words = server.address();
        let member = Member::new("server", move |word| async move {
            four_letter_word(words, word)
                .await
                .map_err(io::Error::other)
        });
        let dashboard = Dashboard::new(&client).member(member).open_to_this_host();
        Ok(Self {
            server,
            proxy,
            address,
            dashboard: tokio::spawn(dashboard.serve(listener)),
        })
    }

    /// Opens a stream of events, as a page does.
    async fn open(&self, path: &str) -> Result<BufReader<TcpStream>> {
        let mut page = BufReader::new(TcpStream::connect(self.address).await?);
        let head = format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address);
        page.write_all(head.as_bytes()).await?;
        Ok(page)
    }

    /// Opens a page that has been sent everything.
    async fn open_page(&self) -> Result<BufReader<TcpStream>> {
        let mut page = self.open("/api/live").await?;
        until_line(&mut page, r#""ready":true"#).await?;
        Ok(page)
    }

    /// Requests of the dashboard, except heartbeats; and those of all clients.
    async fn requests(&self) -> Result<(usize, usize)> {
        let text = four_letter_word(self.server.address(), "srvr").await?;
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix("Received: "));
        Ok((self.own(), line.context("no count")?.trim().parse()?))
    }

    fn own(&self) -> usize {
        let counts = self.proxy.counts().into_iter();
        counts
            .filter(|(op, _)| *op != Op::Ping)
            .map(|(_, count)| count)
            .sum()
    }

    /// Checks that the dashboard has sent a twentieth of the requests since `before` at most, or the minimum that it may always send, apart
    /// from a burst; and some at all.
    /// Returns the numbers as text.
    async fn assert_little_since(&self, before: (usize, usize), begin: Instant) -> Result<String> {
        let now = self.requests().await?;
        let (asked, all) = (now.0 - before.0, now.1 - before.1);
        // Ten requests per second for changes, and half as many for everything.
        let least = 15 * usize::try_from(begin.elapsed().as_secs())?;
        let most = (all / 20).max(least) + BURST + LOOK_REQUESTS;
        assert!(asked <= most, "{asked} of {all}, not {most}");
        assert!(asked > 0, "changes were looked at");
        Ok(format!("{asked} of {all} requests are the dashboard's"))
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.dashboard.abort();
    }
}

/// Requests that may be sent at once after a quiet time.
const BURST: usize = 200;

/// Requests by which one look, or one page, may exceed the budget.
const LOOK_REQUESTS: usize = 110;

/// Waits for a line that contains a text.
async fn until_line(page: &mut BufReader<TcpStream>, text: &str) -> Result<()> {
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        let read = timeout(LONG, page.read_line(&mut line)).await??;
        ensure!(read > 0, "the page was closed");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn open_page_adds_a_twentieth_to_a_busy_server_and_none_adds_nothing() -> Result<()> {
    let watched = Watched::start().await?;
    let holder = connect(watched.server.connect_string()).await?;
    // A waiter keeps its directory alive, so the load finds a thousand lines.
    let mut waiting = Vec::new();
    for number in 0..1000 {
        let lock = Lock::new(&holder, format!("/locks/l{number:04}/inner"));
        waiting.push(lock.acquire().await?);
    }
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(connect(watched.server.connect_string()).await?);
    }
    let before = watched.own();
    let idle = load(&clients).await?;
    assert_eq!(watched.own(), before, "no page is open");

    let mut page = watched.open_page().await?;
    let reading = tokio::spawn(async move {
        let mut line = String::new();
        while page.read_line(&mut line).await.is_ok_and(|read| read > 0) {
            line.clear();
        }
    });
    let (before, begin) = (watched.requests().await?, Instant::now());
    let hand_overs = load(&clients).await?;
    println!("{idle} hand-overs without a page, {hand_overs} with one");
    println!("{}", watched.assert_little_since(before, begin).await?);

    reading.abort();
    let _ = reading.await;
    until_quiet(&watched.proxy).await?;
    let before = watched.own();
    load(&clients).await?;
    assert_eq!(watched.own(), before, "the page is closed");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn page_on_which_nothing_changes_sends_no_request() -> Result<()> {
    /// Each is two seconds after the one before.
    const SAMPLES: usize = 5;
    let watched = Watched::start().await?;
    let holder = connect(watched.server.connect_string()).await?;
    let _guard = Lock::new(&holder, "/held").acquire().await?;
    let mut page = watched.open_page().await?;
    until_line(&mut page, r#""sample":"#).await?;
    let before = watched.own();
    for _ in 0..SAMPLES {
        until_line(&mut page, r#""sample":"#).await?;
    }
    assert_eq!(watched.own(), before);
    Ok(())
}

/// The page of a node reads it again after each event.
#[tokio::test(flavor = "multi_thread")]
async fn page_of_a_busy_node_reads_it_no_more_often_than_the_server_can_spare() -> Result<()> {
    let watched = Watched::start().await?;
    let client = connect(watched.server.connect_string()).await?;
    let zk = client.raw();
    zk.create("/busy", b"", CreateMode::Persistent).await?;
    for number in 0..100 {
        let path = format!("/busy/n{number:02}");
        zk.create(&path, b"", CreateMode::Persistent).await?;
    }
    // Everything was read, and the watch is armed.
    let _overview = watched.open_page().await?;
    let mut page = watched.open("/api/touched?path=/busy").await?;
    let address = watched.address.to_string();
    let reading = tokio::spawn(async move {
        while until_line(&mut page, "data:").await.is_ok() {
            request(&address, "GET", "/api/children?path=/busy", &[], "").await?;
            request(&address, "GET", "/api/node?path=/busy", &[], "").await?;
        }
        anyhow::Ok(())
    });
    let (before, begin) = (watched.requests().await?, Instant::now());
    while begin.elapsed() < LOAD {
        zk.set("/busy/n00", b"x", None).await?;
    }
    println!("{}", watched.assert_little_since(before, begin).await?);
    reading.abort();
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
