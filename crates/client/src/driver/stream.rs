//! Streams to servers: TCP and Unix sockets, and those that a [`Dial`] opens.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use rand::seq::SliceRandom as _;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream, lookup_host};

use crate::options::address::Endpoint;
use crate::seam;

/// A connection to a server, in both directions.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The result of [`Dial::dial`].
pub type Dialing = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// Opens streams to servers. Implement it for a simulated network, a tunnel, or to start a server first.
pub trait Dial: fmt::Debug + Send + Sync + 'static {
    /// Opens a stream. It is called for each attempt, so names are resolved each time.
    fn dial(&self, endpoint: &Endpoint) -> Dialing;
}

/// TCP with `TCP_NODELAY`, and Unix sockets.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockets;

impl Dial for Sockets {
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
    fn dial(&self, endpoint: &Endpoint) -> Dialing {
        (**self).dial(endpoint)
    }
}

/// Connects to one of the addresses of a host, in random order.
pub(crate) async fn tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut addresses = match host.parse::<IpAddr>() {
        Ok(address) => vec![(address, port).into()],
        Err(_) => lookup_host((host, port))
            .await
            .map_err(|error| io::Error::new(error.kind(), format!("no such host ({error})")))?
            .collect::<Vec<_>>(),
    };
    addresses.shuffle(&mut seam::rng());
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    for address in addresses {
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
