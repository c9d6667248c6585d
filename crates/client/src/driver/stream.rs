//! Streams to servers: TCP and Unix sockets, and those that a [`Dial`] opens.

use std::fmt;
use std::future::ready;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use rand::seq::SliceRandom as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use crate::environment;
use crate::options::address::Endpoint;

/// A connection to a server, in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The result of [`Dial::dial`].
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// The result of [`Dial::resolve`].
pub type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<Endpoint>>> + Send>>;

/// Opens streams to servers. Implement it for a simulated network, a tunnel, or to start a server first.
pub trait Dial: fmt::Debug + Send + Sync + 'static {
    /// Looks up the addresses of a server. It is called for each attempt, and is not part of the time limit of the attempt. By default
    /// the address is that of the connect string.
    fn resolve(&self, endpoint: &Endpoint) -> Resolving {
        Box::pin(ready(Ok(vec![endpoint.clone()])))
    }

    /// Opens a stream to an address from [`resolve`](Self::resolve). Streams to several of them may be opened side by side; all but one
    /// are dropped.
    fn dial(&self, endpoint: &Endpoint) -> Dialing;
}

/// TCP with `TCP_NODELAY`, and Unix sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockets;

impl Dial for Sockets {
    fn resolve(&self, endpoint: &Endpoint) -> Resolving {
        let endpoint = endpoint.clone();
        Box::pin(async move {
            let Endpoint::Tcp(host, port) = &endpoint else {
                return Ok(vec![endpoint]);
            };
            let addresses = look_up(host, *port).await?.into_iter();
            let addresses = addresses.map(|address| match address {
                // An address of one link only: its text would leave the link out.
                SocketAddr::V6(address) if address.scope_id() != 0 => endpoint.clone(),
                address => Endpoint::Tcp(address.ip().to_string(), address.port()),
            });
            Ok(addresses.collect())
        })
    }

    fn dial(&self, endpoint: &Endpoint) -> Dialing {
        let endpoint = endpoint.clone();
        Box::pin(async move {
            let stream: Box<dyn Stream> = match endpoint {
                Endpoint::Tcp(host, port) => Box::new(tcp(&host, port).await?),
                Endpoint::Unix(path) => Box::new(UnixStream::connect(path).await?),
            };
            Ok(stream)
        })
    }
}

impl<D: Dial + ?Sized> Dial for Arc<D> {
    fn resolve(&self, endpoint: &Endpoint) -> Resolving {
        (**self).resolve(endpoint)
    }

    fn dial(&self, endpoint: &Endpoint) -> Dialing {
        (**self).dial(endpoint)
    }
}

/// Connects to one of the addresses of a host.
pub(crate) async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for address in look_up(host, port).await? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // Requests are small, and a caller waits for each of them.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The addresses of a host, in random order.
async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(vec![(address, port).into()]);
    }
    let found = lookup_host((host, port))
        .await
        .map_err(|error| io::Error::new(error.kind(), format!("no such host ({error})")))?;
    let mut addresses: Vec<_> = found.collect();
    addresses.shuffle(&mut environment::rng());
    Ok(addresses)
}
