//! Buffers bytes received from a client.

use std::io::ErrorKind;

use bytes::BytesMut;

use super::connection::Over;
use crate::client::outbox::KEPT_BYTES;
use crate::client::{Peer, ReadHalf, Share};
use crate::metrics::Limit;

/// Bytes to read from a socket at once.
const READ_BYTES: usize = 16 << 10;

/// Bytes received but not parsed yet.
#[derive(Debug)]
pub(super) struct Input {
    socket: ReadHalf,
    pub(super) bytes: BytesMut,
    /// Whether the buffer has held more than [`KEPT_BYTES`]. If so, it is freed once it is empty.
    is_large: bool,
    share: Share,
}

impl Input {
    pub(super) fn new(socket: ReadHalf, share: Share) -> Self {
        Self {
            socket,
            bytes: BytesMut::new(),
            is_large: false,
            share,
        }
    }

    /// Continues with bytes that were received before.
    pub(super) fn resume(&mut self, bytes: BytesMut) {
        self.is_large |= bytes.len() > KEPT_BYTES;
        self.bytes = bytes;
    }

    /// Ends the buffer. Returns the socket and the bytes received.
    pub(super) fn end(self) -> (ReadHalf, BytesMut) {
        (self.socket, self.bytes)
    }

    /// Flushes the replies to the requests received so far, then waits for more bytes.
    pub(super) async fn fill(&mut self, peer: &Peer) -> Result<(), Over> {
        peer.outbox.flush();
        // Requests that were handled meanwhile do not count any more.
        self.share.set(self.bytes.len());
        // Do not keep the memory of one long frame for the life of the connection.
        if self.bytes.is_empty() && std::mem::take(&mut self.is_large) {
            self.bytes = BytesMut::new();
        }
        loop {
            tokio::select! {
                biased;
                () = peer.outbox.ended() => return Err(Over),
                // A socket error is reported by the read below.
                _ = self.socket.readable() => {}
            }
            // Reserved only now, so that idle connections hold no buffer.
            self.bytes.reserve(READ_BYTES);
            match self.socket.try_read_buf(&mut self.bytes) {
                Ok(count) if count > 0 => break,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                // The client has closed the connection and receives nothing more.
                _ => {
                    peer.outbox.close();
                    return Err(Over);
                }
            }
        }
        self.is_large |= self.bytes.len() > KEPT_BYTES;
        if !self.share.set(self.bytes.len()) {
            tracing::warn!(address = %peer.address, "too many bytes of incomplete requests, connection closed");
            peer.reach(Limit::InputBytes);
            peer.outbox.close();
            return Err(Over);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::AsyncWriteExt as _;
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::client::{Received, Socket};
    use crate::server::core::Core;

    #[tokio::test]
    async fn the_room_of_a_long_frame_is_given_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let (mut client, accepted) = (client.unwrap(), accepted.unwrap().0);
        let opened = Socket::Tcp(accepted).open();
        let peer = Core::new().connect().peer;
        let mut input = Input::new(
            opened.reading,
            Share::new(Arc::new(Received::new(usize::MAX))),
        );
        let long = vec![b'x'; 16 * KEPT_BYTES];
        let reading = async {
            while input.bytes.len() < long.len() {
                input.fill(&peer).await.unwrap();
            }
        };
        let (_, sent) = tokio::join!(reading, client.write_all(&long));
        sent.unwrap();
        assert!(input.bytes.capacity() >= long.len());
        // As when a frame is taken: no reference to the buffer remains once the request is answered.
        drop(input.bytes.split().freeze());
        client.write_all(b"next").await.unwrap();
        input.fill(&peer).await.unwrap();
        assert_eq!(input.bytes[..], b"next"[..]);
        let kept = input.bytes.capacity();
        assert!(kept <= KEPT_BYTES, "{kept} bytes kept");
    }
}
