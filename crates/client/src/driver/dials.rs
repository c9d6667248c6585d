//! Streams that are being opened side by side, of which the first is used (RFC 8305, *happy eyeballs*): a machine that does not answer
//! delays the others by a moment only.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::time::timeout;

use crate::driver::stream::{Dial, Stream};
use crate::options::address::Endpoint;

/// How long a stream may take to open before another one is tried beside it.
pub(super) const STAGGER: Duration = Duration::from_millis(250);

/// Opens a stream, which may come with something that the caller wants to know of it.
type Dialling<T> = Pin<Box<dyn Future<Output = io::Result<T>> + Send>>;

/// The streams under way, oldest first.
pub(super) struct Dials<T = Box<dyn Stream>>(Vec<(Endpoint, Dialling<T>)>);

impl<T> Dials<T> {
    pub(super) fn new() -> Self {
        Self(Vec::new())
    }

    /// Begins to open a stream, unless one to that server is under way.
    pub(super) fn begin(
        &mut self,
        endpoint: Endpoint,
        open: impl FnOnce(&Endpoint) -> Dialling<T>,
    ) {
        if self.endpoints().all(|known| *known != endpoint) {
            let opening = open(&endpoint);
            self.0.push((endpoint, opening));
        }
    }

    /// The servers whose streams are under way.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Endpoint> {
        self.0.iter().map(|(endpoint, _)| endpoint)
    }

    /// Drops all that are under way.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// Waits for the first that opens or fails; `None` if none is under way.
    pub(super) async fn next(&mut self) -> Option<(Endpoint, io::Result<T>)> {
        poll_fn(|cx| {
            for index in 0..self.0.len() {
                if let Poll::Ready(done) = self.0[index].1.as_mut().poll(cx) {
                    let (endpoint, _) = self.0.remove(index);
                    return Poll::Ready(Some((endpoint, done)));
                }
            }
            match self.0.is_empty() {
                true => Poll::Ready(None),
                false => Poll::Pending,
            }
        })
        .await
    }
}

/// A stream, and the address that it leads to.
pub(super) type Opened = (Endpoint, Box<dyn Stream>);

/// Opens a stream to one of several addresses of a server, the earlier ones first.
pub(super) async fn open_first(dial: &dyn Dial, addresses: Vec<Endpoint>) -> io::Result<Opened> {
    let mut dials = Dials::new();
    let mut left = addresses.into_iter();
    let mut last = io::Error::new(io::ErrorKind::NotFound, "no such host");
    loop {
        if let Some(address) = left.next() {
            dials.begin(address, |address| dial.dial(address));
        }
        let wait = match left.len() {
            0 => Duration::MAX,
            _ => STAGGER,
        };
        match timeout(wait, dials.next()).await {
            Ok(Some((address, Ok(stream)))) => return Ok((address, stream)),
            Ok(Some((_, Err(error)))) => last = error,
            Ok(None) if left.len() == 0 => return Err(last),
            Ok(None) | Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::duplex;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::driver::stream::Dialing;

    /// An address whose port says how long it takes to open, in milliseconds; 1 fails at once, and 2 never answers.
    #[derive(Debug)]
    struct Timed;

    impl Dial for Timed {
        #[expect(clippy::disallowed_methods, reason = "in virtual time")]
        fn dial(&self, endpoint: &Endpoint) -> Dialing {
            let Endpoint::Tcp(_, port) = *endpoint else {
                panic!("{endpoint}");
            };
            Box::pin(async move {
                match port {
                    1 => return Err(io::ErrorKind::ConnectionRefused.into()),
                    2 => pending().await,
                    _ => sleep(Duration::from_millis(port.into())).await,
                }
                Ok(Box::new(duplex(1).0) as Box<dyn Stream>)
            })
        }
    }

    /// The port of the address that wins, and after how many milliseconds; `None` if all fail.
    async fn race(ports: &[u16]) -> Option<(u16, u128)> {
        let began = Instant::now();
        let addresses = ports
            .iter()
            .map(|port| Endpoint::Tcp("a".to_owned(), *port));
        let opened = open_first(&Timed, addresses.collect()).await;
        let (Endpoint::Tcp(_, port), _) = opened.ok()? else {
            panic!("no address");
        };
        Some((port, began.elapsed().as_millis()))
    }

    #[tokio::test(start_paused = true)]
    async fn address_that_does_not_answer_delays_the_next_by_a_moment() {
        assert_eq!(race(&[10, 20]).await, Some((10, 10)));
        assert_eq!(race(&[2, 10]).await, Some((10, 260)));
        assert_eq!(race(&[1, 10]).await, Some((10, 10)));
        assert_eq!(race(&[300, 100]).await, Some((300, 300)));
        assert_eq!(race(&[2, 1, 600, 20]).await, Some((20, 520)));
        assert_eq!(race(&[400, 1]).await, Some((400, 400)));
        assert_eq!(race(&[1, 1]).await, None);
        assert_eq!(race(&[]).await, None);
    }
}
