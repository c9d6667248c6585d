//! Misbehaving clients, by bug or by intent.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Result, ensure};
use bellwether_testkit::{ConnectOptions, Request};
use clap::ValueEnum;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::flood;
use super::idle::open_session;

/// The directory that greedy clients list.
pub const LARGE_DIRECTORY: &str = "/large";

/// The number of children there, each of which has a name of some hundred bytes.
pub const LARGE_DIRECTORY_CHILDREN: usize = 2000;

/// Pause before an attacker connects again.
const PAUSE: Duration = Duration::from_millis(500);

/// Requests of a greedy client: some 40 MB of replies.
pub const GREEDY_REQUESTS: usize = 200;

/// What an attacker does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Harm {
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
    /// Writes without end.
    Writes,
    /// Reads without end.
    Reads,
    /// Sends transactions of a megabyte without end.
    Transactions,
    /// Watches a node, and changes it by transactions of a megabyte, one at a time.
    WatchedChanges,
    /// Watches each level of a deep path, and changes the lowest node.
    DeepWatches,
    /// Has a long id, and sends transactions of a megabyte, one at a time, to a server with an audit log.
    Audit,
}

impl Harm {
    /// Kinds of attackers that are many, and send little.
    pub const CROWD: [Self; 7] = [
        Self::Silence,
        Self::Slowness,
        Self::Noise,
        Self::OversizedFrame,
        Self::Greed,
        Self::TlsHalfHello,
        Self::TlsNoAnswer,
    ];

    /// Whether it is a client like any other, except that it sends as much as it can.
    pub fn is_flood(self) -> bool {
        !Self::CROWD.contains(&self)
    }
}

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
    connections: BTreeMap<Harm, Arc<AtomicUsize>>,
}

impl Attack {
    /// Starts `count` attackers, an equal number of each of these kinds.
    pub fn start(address: &str, tls_address: &str, count: usize, kinds: &[Harm]) -> Result<Self> {
        let target = Arc::new(Target {
            address: address.to_owned(),
            tls_address: tls_address.to_owned(),
            hello: tls_hello()?,
        });
        let mut attackers = JoinSet::new();
        let mut connections: BTreeMap<Harm, Arc<AtomicUsize>> = BTreeMap::new();
        for harm in kinds.iter().copied().cycle().take(count) {
            let target = target.clone();
            let connections = connections.entry(harm).or_default().clone();
            attackers.spawn(async move {
                loop {
                    // A server that defends itself closes connections, or refuses them.
                    let _ = harm.once(&target, &connections).await;
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
        let mut all = 0;
        for (harm, count) in &self.connections {
            let count = count.load(Relaxed);
            ensure!(count > 0, "{harm:?} had no connection");
            all += count;
        }
        Ok(all)
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
        if self.is_flood() || matches!(self, Self::OversizedFrame | Self::Greed) {
            open_session(&mut stream).await?;
        }
        connections.fetch_add(1, Relaxed);
        match self {
            _ if self.is_flood() => return flood::run(self, stream).await,
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
            _ => unreachable!("a flood"),
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
async fn pause() {
    sleep(PAUSE).await;
}
