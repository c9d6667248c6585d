//! A request through the whole client, as one function whose instructions can be counted: see
//! `crates/bench/instructions`, which runs this test.
//!
//! Handle, core, driver and a runtime of one thread; in place of a socket a stream that answers by itself, so that no
//! system call, thread or clock of a server changes the count. The answers of the stream are counted too: they cost little.

use std::hint::black_box;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bellwether_wire::connect::ConnectReply;
use bellwether_wire::frame;
use bellwether_wire::jute::Reader;
use bellwether_wire::reply;
use bellwether_wire::request::RequestHeader;
use bellwether_wire::stat::Stat;
use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::{Builder, Runtime};

use crate::{Client, Dial, Dialing, Endpoint, Stream};

/// The number of requests, each sent after the answer to the previous one.
const COUNT: usize = 5000;

#[test]
fn exists() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let client = runtime.block_on(async {
        let connect = Client::connect("nowhere:1").dial(CountedAnswer);
        connect.on_current_runtime().await.unwrap()
    });
    // Warms up: buffers and other one-time allocations exist afterwards.
    runtime.block_on(client.exists("/warm")).unwrap();
    assert_eq!(counted::exists(&runtime, &client), COUNT);
}

/// The counted code: this function and all that it calls.
mod counted {
    use super::*;

    #[inline(never)]
    pub(super) fn exists(runtime: &Runtime, client: &Client) -> usize {
        runtime.block_on(async {
            let mut found = 0;
            for _ in 0..COUNT {
                let stat = client.exists(black_box("/services/worker-17")).await;
                found += usize::from(stat.unwrap().is_some());
            }
            found
        })
    }
}

/// Dials streams that open a session and answer every request as if the node existed.
#[derive(Debug)]
struct CountedAnswer;

impl Dial for CountedAnswer {
    fn dial(&self, _: &Endpoint) -> Dialing {
        let stream: Box<dyn Stream> = Box::new(AnsweringStream::default());
        Box::pin(async { Ok(stream) })
    }
}

#[derive(Debug, Default)]
struct AnsweringStream {
    has_session: bool,
    requests: BytesMut,
    replies: BytesMut,
    reader: Option<Waker>,
}

impl AnsweringStream {
    fn answer(&mut self) {
        while let Some(request) = frame::take(&mut self.requests, usize::MAX).unwrap() {
            if !self.has_session {
                self.has_session = true;
                let session = ConnectReply {
                    timeout_ms: 30_000,
                    session_id: 1,
                    password: [0; 16],
                };
                frame::put(&mut self.replies, |out| session.encode(true, out));
                continue;
            }
            let header = RequestHeader::decode(&mut Reader::new(&request)).unwrap();
            let stat = Stat::default();
            reply::put(&mut self.replies, header.xid, 1, Ok(()), |out| {
                stat.encode(out);
            });
        }
    }
}

impl AsyncWrite for AnsweringStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.requests.extend_from_slice(bytes);
        self.answer();
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for AnsweringStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.replies.is_empty() {
            self.reader = Some(cx.waker().clone());
            return Poll::Pending;
        }
        let count = room.remaining().min(self.replies.len());
        room.put_slice(&self.replies[..count]);
        self.replies.advance(count);
        Poll::Ready(Ok(()))
    }
}
