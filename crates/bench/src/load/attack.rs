//! Misbehaving clients, by bug or by intent.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bellwether_testkit::{ConnectOptions, Request};
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

/// The directory that greedy clients list.
pub const LARGE_DIRECTORY: &str = "/large";

/// The number of children there, each of which has a name of some hundred bytes.
pub const LARGE_DIRECTORY_CHILDREN: usize = 2000;

/// Pause before an attacker connects again.
const PAUSE: Duration = Duration::from_millis(500);

/// Interval of the pings of an idle session, a fraction of its timeout.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Requests of a greedy client: some 40 MB of replies.
const GREEDY_REQUESTS: usize = 200;

/// What an attacker does.
#[derive(Debug, Clone, Copy)]
enum Harm {
    /// Connects, and sends nothing.
    Silence,
    /// Sends its first message one byte at a time.
    Slowness,
    /// Sends noise.
    Noise,
    /// Announces a frame of two gigabytes, and sends the beginning of it.
    OversizedFrame,
    /// Asks for large replies, and does not read them.
    Greed,
    /// Sends half of the first message of a TLS handshake.
    TlsHalfHello,
    /// Starts a TLS handshake, for which the server has to sign, and does not answer it.
    TlsNoAnswer,
}

const HARMS: [Harm; 7] = [
    Harm::Silence,
    Harm::Slowness,
    Harm::Noise,
    Harm::OversizedFrame,
    Harm::Greed,
    Harm::TlsHalfHello,
    Harm::TlsNoAnswer,
];

/// What attackers need to know.
#[derive(Debug)]
struct Target {
    address: String,
    tls_address: String,
    /// The first message of a TLS handshake.
    hello: Vec<u8>,
}

/// Attackers at work, until they are dropped.
#[derive(Debug)]
pub struct Attack {
    _attackers: JoinSet<()>,
    connections: Arc<[AtomicUsize; HARMS.len()]>,
}

impl Attack {
    /// Starts `count` attackers, an equal number of each kind.
    pub fn start(address: &str, tls_address: &str, count: usize) -> Result<Self> {
        let target = Arc::new(Target {
            address: address.to_owned(),
            tls_address: tls_address.to_owned(),
            hello: tls_hello()?,
        });
        let mut attackers = JoinSet::new();
        let connections: Arc<[AtomicUsize; HARMS.len()]> = Arc::default();
        for (kind, harm) in HARMS.into_iter().enumerate().cycle().take(count) {
            let (target, connections) = (target.clone(), connections.clone());
            attackers.spawn(async move {
                loop {
                    // A server that defends itself closes connections, or refuses them.
                    let _ = harm.once(&target, &connections[kind]).await;
                    pause().await;
                }
            });
        }
        Ok(Self {
            _attackers: attackers,
            connections,
        })
    }

    /// The number of connections so far on which harm was done. Fails if a kind of attacker has had none: then the attack was not what it is
    /// said to be.
    pub fn connections(&self) -> Result<usize> {
        let counts = self.connections.each_ref().map(|count| count.load(Relaxed));
        for (harm, count) in HARMS.iter().zip(counts) {
            ensure!(count > 0, "{harm:?} had no connection");
        }
        Ok(counts.iter().sum())
    }
}

impl Harm {
    /// One connection, until the server closes it. It is counted once the first bytes are sent.
    async fn once(self, target: &Target, connections: &AtomicUsize) -> Result<()> {
        let address = match self {
            Self::TlsHalfHello | Self::TlsNoAnswer => &target.tls_address,
            _ => &target.address,
        };
        let mut stream = TcpStream::connect(address).await?;
        if matches!(self, Self::OversizedFrame | Self::Greed) {
            open_session(&mut stream).await?;
        }
        connections.fetch_add(1, Relaxed);
        match self {
            Self::Silence => {}
            Self::Slowness => {
                for byte in ConnectOptions::default().encode() {
                    stream.write_all(&[byte]).await?;
                    pause().await;
                }
            }
            Self::TlsHalfHello => {
                let half = &target.hello[..target.hello.len() / 2];
                stream.write_all(half).await?;
            }
            Self::TlsNoAnswer => stream.write_all(&target.hello).await?,
            Self::Noise => stream.write_all(&[0x5A; 4096]).await?,
            Self::OversizedFrame => {
                stream.write_all(&i32::MAX.to_be_bytes()).await?;
                stream.write_all(&[0; 64 << 10]).await?;
            }
            Self::Greed => {
                let list = Request::GetChildren {
                    path: LARGE_DIRECTORY.to_owned(),
                    watch: false,
                };
                for xid in 1..=GREEDY_REQUESTS {
                    stream.write_all(&list.encode(i32::try_from(xid)?)).await?;
                }
                // Whether the server closes it or not: nothing is read.
                return unread(&stream).await;
            }
        }
        let mut bytes = vec![0; 4096];
        while stream.read(&mut bytes).await? > 0 {}
        Ok(())
    }
}

/// The first message of a TLS client.
fn tls_hello() -> Result<Vec<u8>> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        // The handshake never gets as far as a certificate.
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let name = ServerName::try_from("localhost")?;
    let mut hello = Vec::new();
    ClientConnection::new(Arc::new(config), name)?.write_tls(&mut hello)?;
    Ok(hello)
}

/// Opens a session, and returns its connection.
async fn idle_session(address: &str) -> Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    open_session(&mut stream).await?;
    Ok(stream)
}

async fn open_session(stream: &mut TcpStream) -> Result<()> {
    let options = ConnectOptions {
        timeout: Duration::from_secs(40),
        ..ConnectOptions::default()
    };
    stream.write_all(&options.encode()).await?;
    let length = usize::try_from(stream.read_i32().await?)?;
    let mut reply = vec![0; length];
    stream.read_exact(&mut reply).await.context("no session")?;
    Ok(())
}

/// Waits until the connection is reset.
async fn unread(stream: &TcpStream) -> Result<()> {
    loop {
        pause().await;
        match stream.take_error()? {
            None => {}
            Some(error) if error.kind() == ErrorKind::WouldBlock => {}
            Some(error) => return Err(error.into()),
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "attackers keep a pace, on a real clock"
)]
async fn pause_for(time: Duration) {
    sleep(time).await;
}

async fn pause() {
    pause_for(PAUSE).await;
}

/// Sessions that only ping, until they are dropped.
#[derive(Debug)]
pub struct IdleSessions {
    open: Arc<Mutex<Vec<TcpStream>>>,
    _pinging: JoinSet<()>,
}

impl IdleSessions {
    /// Opens `count` sessions, some at a time, within a time limit each.
    pub async fn open(address: &str, count: usize) -> Result<Self> {
        const AT_A_TIME: usize = 100;
        const LIMIT: Duration = Duration::from_secs(60);
        let open: Arc<Mutex<Vec<TcpStream>>> = Arc::default();
        let mut pinging = JoinSet::new();
        let all = open.clone();
        pinging.spawn(async move {
            let ping = Request::Ping.encode(-2);
            loop {
                pause_for(PING_INTERVAL).await;
                let mut all = all.lock().expect("no panic under it");
                all.retain(|stream| is_alive(stream) && stream.try_write(&ping).is_ok());
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
                open.lock().expect("no panic under it").push(session);
                opened += 1;
            }
        }
        Ok(Self {
            open,
            _pinging: pinging,
        })
    }

    /// How many of them the server has not closed.
    pub fn alive(&self) -> usize {
        let mut open = self.open.lock().expect("no panic under it");
        open.retain(is_alive);
        open.len()
    }
}

/// Reads the replies to pings, and returns whether the connection is open.
fn is_alive(stream: &TcpStream) -> bool {
    let mut bytes = [0; 1024];
    match stream.try_read(&mut bytes) {
        Ok(count) => count > 0,
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
