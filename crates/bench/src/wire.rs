//! A connection with minimal overhead between the benchmark and the socket.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use bellwether_testkit::{ConnectOptions, Request};
use bellwether_wire::connect::ConnectReply;

/// Longer than any reply takes, so that a benchmark that hangs fails.
const DEADLINE: Duration = Duration::from_secs(60);

/// The size of the read buffer.
const READ_BYTES: usize = 64 << 10;

/// A session on a blocking socket. Frames are counted, not decoded.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    /// The id of the session.
    pub session_id: i64,
    /// Unprocessed bytes are between `start` and `end`.
    input: Vec<u8>,
    start: usize,
    end: usize,
}

impl Wire {
    /// Opens a session.
    pub fn connect(address: &str) -> Result<Self> {
        Self::connect_within(address, DEADLINE)
    }

    /// Opens a session within a time limit: a starting server may never answer.
    pub fn connect_within(address: &str, limit: Duration) -> Result<Self> {
        let stream =
            TcpStream::connect(address).with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(limit))?;
        let mut wire = Self {
            stream,
            session_id: 0,
            input: vec![0; READ_BYTES],
            start: 0,
            end: 0,
        };
        wire.send(&ConnectOptions::default().encode())?;
        let reply = ConnectReply::decode(&wire.receive()?)?;
        ensure!(reply.timeout_ms > 0, "no session at {address}");
        wire.session_id = reply.session_id;
        wire.stream.set_read_timeout(Some(DEADLINE))?;
        Ok(wire)
    }

    /// Sends bytes in one call.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Sends a request and waits for the reply, which must be a success; its body is returned.
    pub fn call(&mut self, request: &Request) -> Result<Vec<u8>> {
        self.send(&request.encode(1))?;
        self.receive_success()
            .with_context(|| format!("{request:?}"))
    }

    /// The body of the next reply, which must be a success.
    pub fn receive_success(&mut self) -> Result<Vec<u8>> {
        let mut reply = self.receive()?;
        ensure!(
            reply[12..16] == [0; 4],
            "a request failed: {:?}",
            &reply[12..16]
        );
        Ok(reply.split_off(16))
    }

    /// The next frame, without its length.
    pub fn receive(&mut self) -> Result<Vec<u8>> {
        loop {
            if let Some(length) = self.whole_frame() {
                let frame = self.input[self.start + 4..self.start + 4 + length].to_vec();
                self.start += 4 + length;
                return Ok(frame);
            }
            self.read_more()?;
        }
    }

    /// Waits for bytes and counts complete replies. An error in one of them is returned.
    pub fn count_replies(&mut self) -> Result<usize> {
        let mut count = 0;
        loop {
            while let Some(length) = self.whole_frame() {
                let err = &self.input[self.start + 16..self.start + 20];
                ensure!(*err == [0; 4], "a request failed: {err:?}");
                self.start += 4 + length;
                count += 1;
            }
            if count > 0 {
                return Ok(count);
            }
            self.read_more()?;
        }
    }

    fn whole_frame(&self) -> Option<usize> {
        let rest = &self.input[self.start..self.end];
        let length = usize::try_from(i32::from_be_bytes(*rest.first_chunk()?)).ok()?;
        (rest.len() >= 4 + length).then_some(length)
    }

    fn read_more(&mut self) -> Result<()> {
        self.input.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if self.end == self.input.len() {
            self.input.resize(2 * self.end, 0);
        }
        let read = self.stream.read(&mut self.input[self.end..])?;
        self.end += read;
        if read == 0 {
            bail!("the server closed the connection");
        }
        Ok(())
    }
}
