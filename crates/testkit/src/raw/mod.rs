//! A client that sends only what the test tells it to.

pub mod contents;
pub mod reply;
pub mod request;

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bellwether_wire::connect::ConnectReply;
use bellwether_wire::frame;
use bellwether_wire::jute::Writer;
use bellwether_wire::op::Op;
use bytes::{BufMut, Bytes, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::time::timeout;

use crate::raw::reply::{Frame, Reply, WatchEvent};
use crate::raw::request::Request;

/// The default time limit of a receive; see [`RawClient::set_deadline`].
pub const DEADLINE: Duration = Duration::from_secs(10);

/// The error of a receive from a server that closed the connection.
const CLOSED: &str = "the server closed the connection";

/// One connection to a server, frame by frame.
///
/// It sends no pings, restores no watches and never reconnects: a session outlives its timeout
/// only if the test sends something. Every receive has a deadline, and its error names what it waited for.
///
/// ```no_run
/// # async fn example() -> anyhow::Result<()> {
/// use bellwether_testkit::{Body, RawClient, Request};
///
/// let mut client = RawClient::connect("127.0.0.1:2181").await?;
/// let reply = client.call(Request::create("/a", "data")).await?;
/// assert_eq!(reply.outcome, Ok(Body::Path("/a".into())));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RawClient {
    stream: TcpStream,
    input: BytesMut,
    deadline: Duration,
    session: ConnectReply,
    last_xid: i32,
    last_zxid: i64,
    /// The operations of unanswered requests; `None` for raw ones.
    pending: VecDeque<(i32, Option<Op>)>,
    events: Vec<WatchEvent>,
}

/// Options of a connection.
#[derive(Debug, Clone)]
pub struct ConnectOptions {
    /// The session timeout to ask for.
    pub timeout: Duration,
    /// The session to reattach to, or 0 for a new one.
    pub session_id: i64,
    /// The password of that session.
    pub password: Vec<u8>,
    /// The highest zxid that the client claims to have seen.
    pub last_zxid_seen: i64,
    /// Whether to send the read-only byte, which old clients omit.
    pub read_only_byte: bool,
}

impl Default for ConnectOptions {
    /// A new session with a requested timeout of thirty seconds.
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(30),
            session_id: 0,
            password: vec![0; 16],
            last_zxid_seen: 0,
            read_only_byte: true,
        }
    }
}

impl RawClient {
    /// Connects and opens a session.
    pub async fn connect(address: impl ToSocketAddrs) -> Result<Self> {
        let client = Self::connect_with(address, &ConnectOptions::default()).await?;
        ensure!(!client.is_refused(), "the server refused a new session");
        Ok(client)
    }

    /// Connects and sends the handshake; [`Self::is_refused`] says whether the server refused.
    pub async fn connect_with(
        address: impl ToSocketAddrs,
        options: &ConnectOptions,
    ) -> Result<Self> {
        let mut client = Self::open(address).await?;
        client.handshake(options).await?;
        Ok(client)
    }

    /// Connects and reattaches to this client's session, as after a lost connection.
    pub async fn reattach(&self, address: impl ToSocketAddrs) -> Result<Self> {
        let options = ConnectOptions {
            timeout: Duration::from_millis(self.session.timeout_ms.unsigned_abs().into()),
            session_id: self.session.session_id,
            password: self.session.password.to_vec(),
            last_zxid_seen: self.last_zxid,
            ..ConnectOptions::default()
        };
        let mut client = Self::connect_with(address, &options).await?;
        client.last_zxid = self.last_zxid;
        Ok(client)
    }

    /// Connects and sends nothing yet.
    pub async fn open(address: impl ToSocketAddrs) -> Result<Self> {
        let stream = timeout(DEADLINE, TcpStream::connect(address))
            .await
            .with_context(|| format!("no connection within {DEADLINE:?}"))?
            .context("cannot connect")?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            input: BytesMut::new(),
            deadline: DEADLINE,
            session: ConnectReply::REFUSED,
            last_xid: 0,
            last_zxid: 0,
            pending: VecDeque::new(),
            events: Vec::new(),
        })
    }

    /// Sends the first frame and reads the answer, which must be of the right length.
    pub async fn handshake(&mut self, options: &ConnectOptions) -> Result<()> {
        self.stream.write_all(&options.encode()).await?;
        let frame = self.receive_raw().await.context("waiting for a session")?;
        let length = 36 + usize::from(options.read_only_byte);
        ensure!(
            frame.len() == length,
            "connect reply of {} bytes instead of {length}",
            frame.len()
        );
        self.session = ConnectReply::decode(&frame)?;
        Ok(())
    }

    /// Whether the server refused the session; it closes the connection then.
    pub fn is_refused(&self) -> bool {
        self.session == ConnectReply::REFUSED
    }

    /// The session.
    pub fn session_id(&self) -> i64 {
        self.session.session_id
    }

    /// The password of the session.
    pub fn password(&self) -> [u8; 16] {
        self.session.password
    }

    /// The negotiated session timeout.
    pub fn timeout_ms(&self) -> i32 {
        self.session.timeout_ms
    }

    /// The highest zxid in the replies so far.
    pub fn last_zxid(&self) -> i64 {
        self.last_zxid
    }

    /// The local address of the connection.
    pub fn local_address(&self) -> Result<SocketAddr> {
        Ok(self.stream.local_addr()?)
    }

    /// Changes the time limit of receives.
    pub fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
    }

    /// Sends a request and returns its xid: -2 for pings and -4 for auths, as clients do.
    pub async fn send(&mut self, request: &Request) -> Result<i32> {
        let xids = self.send_all(std::slice::from_ref(request)).await?;
        Ok(xids[0])
    }

    /// Sends several requests in one write, hence in one segment if they fit.
    pub async fn send_all(&mut self, requests: &[Request]) -> Result<Vec<i32>> {
        let mut out = BytesMut::new();
        let mut xids = Vec::new();
        for request in requests {
            let xid = match request {
                Request::Ping => -2,
                Request::Auth { .. } => -4,
                _ => {
                    self.last_xid += 1;
                    self.last_xid
                }
            };
            request.encode_into(xid, &mut out);
            self.note_sent(xid, request);
            xids.push(xid);
        }
        self.send_bytes(&out).await?;
        Ok(xids)
    }

    /// Sends a request under an xid of the caller's choice.
    pub async fn send_with_xid(&mut self, xid: i32, request: &Request) -> Result<()> {
        self.note_sent(xid, request);
        self.send_bytes(&request.encode(xid)).await
    }

    fn note_sent(&mut self, xid: i32, request: &Request) {
        let op = match request {
            Request::Raw { .. } => None,
            decoded => decoded.op(),
        };
        self.pending.push_back((xid, op));
    }

    /// Sends raw bytes, in one write; requests in them are not recorded.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream
            .write_all(bytes)
            .await
            .context("cannot send a request")
    }

    /// Closes the sending direction only.
    pub async fn shut_down_sending(&mut self) -> Result<()> {
        Ok(self.stream.shutdown().await?)
    }

    /// Waits for the next reply or event.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: bytes received so far are kept for the next receive.
    pub async fn receive(&mut self) -> Result<Frame> {
        self.receive_or_close().await?.context(CLOSED)
    }

    /// Waits for the next reply or event, or `None` once the server has closed the connection.
    ///
    /// # Cancel safety
    ///
    /// As [`Self::receive`].
    pub async fn receive_or_close(&mut self) -> Result<Option<Frame>> {
        let raw = self.receive_raw_or_close().await.with_context(|| {
            let waiting: Vec<_> = self.pending.iter().take(5).collect();
            format!("waiting for a frame; next unanswered: {waiting:?}")
        })?;
        let Some(raw) = raw else {
            return Ok(None);
        };
        let pending = &mut self.pending;
        let frame = Frame::decode(&raw, |xid| {
            // Not always the first: auth and sasl are answered out of order.
            let place = pending.iter().position(|sent| sent.0 == xid)?;
            pending.remove(place)?.1
        })?;
        if let Frame::Reply(reply) = &frame {
            self.last_zxid = self.last_zxid.max(reply.zxid);
        }
        Ok(Some(frame))
    }

    /// Waits for the next frame and returns it without its length.
    ///
    /// # Cancel safety
    ///
    /// As [`Self::receive`].
    pub async fn receive_raw(&mut self) -> Result<Bytes> {
        self.receive_raw_or_close().await?.context(CLOSED)
    }

    async fn receive_raw_or_close(&mut self) -> Result<Option<Bytes>> {
        loop {
            if let Some(frame) = frame::take(&mut self.input, usize::MAX)? {
                return Ok(Some(frame));
            }
            if self.read_some().await? == 0 {
                return Ok(None);
            }
        }
    }

    /// Waits for the next reply; events before it are kept for [`Self::take_events`].
    pub async fn receive_reply(&mut self) -> Result<Reply> {
        loop {
            match self.receive().await? {
                Frame::Reply(reply) => return Ok(reply),
                Frame::Event(event) => self.events.push(event),
            }
        }
    }

    /// Waits for the next event, kept ones first; a reply instead is an error.
    pub async fn receive_event(&mut self) -> Result<WatchEvent> {
        if !self.events.is_empty() {
            return Ok(self.events.remove(0));
        }
        match self.receive().await? {
            Frame::Event(event) => Ok(event),
            Frame::Reply(reply) => bail!("a reply instead of an event: {reply:?}"),
        }
    }

    /// Releases the memory of the input buffer if all frames were taken.
    pub fn forget_input(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
    }

    /// Sends a request and waits for its reply, which must be the next one.
    pub async fn call(&mut self, request: Request) -> Result<Reply> {
        let xid = self.send(&request).await?;
        let reply = self
            .receive_reply()
            .await
            .with_context(|| format!("calling {request:?}"))?;
        ensure!(
            reply.xid == xid,
            "reply {} instead of {xid} to {request:?}",
            reply.xid
        );
        Ok(reply)
    }

    /// The events that arrived before replies, in order.
    pub fn take_events(&mut self) -> Vec<WatchEvent> {
        std::mem::take(&mut self.events)
    }

    /// Waits until the server has closed the connection; any byte before that is an error.
    pub async fn closed(&mut self) -> Result<()> {
        if self.input.is_empty() && self.read_some().await.context("waiting for a close")? == 0 {
            return Ok(());
        }
        bail!("bytes instead of a close: {:?}", self.input)
    }

    /// Reads until the server has closed the connection.
    pub async fn receive_to_end(&mut self) -> Result<Bytes> {
        while self.read_some().await? != 0 {}
        Ok(self.input.split().freeze())
    }

    /// Appends received bytes to the input; 0 means that the peer closed, in whatever way.
    async fn read_some(&mut self) -> Result<usize> {
        match timeout(self.deadline, self.stream.read_buf(&mut self.input)).await {
            Err(_) => bail!("nothing received within {:?}", self.deadline),
            Ok(Err(error)) if error.kind() == ErrorKind::ConnectionReset => Ok(0),
            Ok(result) => Ok(result?),
        }
    }
}

impl ConnectOptions {
    /// The whole frame, length included.
    pub fn encode(&self) -> BytesMut {
        let mut out = BytesMut::new();
        frame::put(&mut out, |out| {
            out.put_i32(0);
            out.put_i64(self.last_zxid_seen);
            out.put_i32(i32::try_from(self.timeout.as_millis()).unwrap_or(i32::MAX));
            out.put_i64(self.session_id);
            out.put_buffer(Some(&self.password));
            if self.read_only_byte {
                out.put_bool(false);
            }
        });
        out
    }
}

/// Sends a four-letter word and returns the answer.
pub async fn four_letter_word(address: impl ToSocketAddrs, word: &str) -> Result<String> {
    let mut client = RawClient::open(address).await?;
    client.send_bytes(word.as_bytes()).await?;
    let answer = client.receive_to_end().await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
