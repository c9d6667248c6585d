//! Packets that a server has received and sent, by its own count.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context, Result};

/// Packets since the start of the server.
#[derive(Debug, Clone, Copy)]
pub struct Packets {
    received: f64,
    sent: f64,
}

impl Packets {
    /// Queries a server that answers `mntr`.
    pub fn of(address: &str) -> Result<Self> {
        let mut server = TcpStream::connect(address)?;
        server.write_all(b"mntr")?;
        let mut answer = String::new();
        server.read_to_string(&mut answer)?;
        let value = |key: &str| {
            let mut lines = answer.lines().map(str::split_whitespace);
            let value = lines.find_map(|mut words| {
                (words.next() == Some(key)).then(|| words.next().and_then(|n| n.parse().ok()))
            });
            value
                .flatten()
                .with_context(|| format!("no {key} in {answer:?}"))
        };
        Ok(Self {
            received: value("zk_packets_received")?,
            sent: value("zk_packets_sent")?,
        })
    }

    /// Requests and events between two counts. Every request has one answer; all other packets are events.
    pub fn since(&self, before: &Self) -> (f64, f64) {
        let requests = self.received - before.received;
        (requests, self.sent - before.sent - requests)
    }
}
