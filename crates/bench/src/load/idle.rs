//! Sessions that do nothing but ping.

use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result};
use bellwether_testkit::{ConnectOptions, Request};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

/// Interval of the pings of a session, a fraction of its timeout.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// The pings are spread over the interval, as those of independent clients are: this number of parts ping one after the other.
const PING_PARTS: usize = 100;

/// The timeout that sessions ask for.
const SESSION_TIMEOUT: Duration = Duration::from_secs(40);

/// Sessions that only ping, until they are dropped.
#[derive(Debug)]
pub struct IdleSessions {
    parts: Arc<Mutex<Vec<Vec<TcpStream>>>>,
    _pinging: JoinSet<()>,
}

impl IdleSessions {
    /// Opens `count` sessions, some at a time, within a time limit each.
    pub async fn open(address: &str, count: usize) -> Result<Self> {
        const AT_A_TIME: usize = 100;
        const LIMIT: Duration = Duration::from_secs(60);
        let parts = (0..PING_PARTS).map(|_| Vec::new()).collect();
        let parts: Arc<Mutex<Vec<Vec<TcpStream>>>> = Arc::new(Mutex::new(parts));
        let mut pinging = JoinSet::new();
        let all = parts.clone();
        pinging.spawn(async move {
            let ping = Request::Ping.encode(-2);
            let mut ticks = interval(PING_INTERVAL / u32::try_from(PING_PARTS).unwrap_or(1));
            for turn in (0..PING_PARTS).cycle() {
                ticks.tick().await;
                let part = &mut all.lock().expect("no panic under it")[turn];
                part.retain(|stream| is_alive(stream) && stream.try_write(&ping).is_ok());
            }
        });
        let mut opened = 0;
        while opened < count {
            let mut opening = JoinSet::new();
            for _ in 0..AT_A_TIME.min(count - opened) {
                let address = address.to_owned();
                opening.spawn(async move { timeout(LIMIT, idle_session(&address)).await });
            }
            while let Some(session) = opening.join_next().await {
                let session = session?.context("no session in time")??;
                parts.lock().expect("no panic under it")[opened % PING_PARTS].push(session);
                opened += 1;
            }
        }
        Ok(Self {
            parts,
            _pinging: pinging,
        })
    }

    /// How many of them the server has not closed.
    pub fn alive(&self) -> usize {
        let mut parts = self.parts.lock().expect("no panic under it");
        for part in parts.iter_mut() {
            part.retain(is_alive);
        }
        parts.iter().map(Vec::len).sum()
    }
}

/// Opens a session, and returns its connection.
async fn idle_session(address: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    open_session(&mut stream).await?;
    Ok(stream)
}

/// Opens a session on a new connection.
pub(super) async fn open_session(stream: &mut TcpStream) -> Result<()> {
    let options = ConnectOptions {
        timeout: SESSION_TIMEOUT,
        ..ConnectOptions::default()
    };
    stream.write_all(&options.encode()).await?;
    let length = usize::try_from(stream.read_i32().await?)?;
    let mut reply = vec![0; length];
    stream.read_exact(&mut reply).await.context("no session")?;
    Ok(())
}

/// Reads the replies to pings, and returns whether the connection is open.
fn is_alive(stream: &TcpStream) -> bool {
    let mut bytes = [0; 1024];
    match stream.try_read(&mut bytes) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
