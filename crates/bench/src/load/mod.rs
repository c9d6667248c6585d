//! A closed loop: each connection keeps `depth` requests in flight, and sends the next when one is
//! answered.

pub mod attack;
pub mod connect_string;
pub mod fan_out;
pub mod flood;
pub mod idle;
pub mod population;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether_testkit::{Create, Request};

use crate::load::connect_string::ConnectString;
use crate::load::population::Population;
use crate::measure::latency::{Latencies, Sorted};
use crate::wire::Wire;

/// Bytes of data of each node.
const DATA_BYTES: usize = 100;

/// Different nodes of a population that each connection uses.
const SAMPLE: usize = 1 << 14;

/// The operation that every connection repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// Reads nodes.
    Get,
    /// Writes nodes.
    Set,
    /// Creates persistent nodes.
    Create,
    /// Creates `depth` sequential ephemeral nodes and deletes them: a pair counts once.
    CreateDelete,
    /// Opens a session and closes it, one at a time for any depth.
    Connect,
    /// Watches a node that one more connection changes: the time from the set to the last event.
    FanOut,
}

/// A load on a server.
#[derive(Debug, Clone)]
pub struct Load {
    /// The servers.
    pub connect: ConnectString,
    /// The operation.
    pub work: Work,
    /// The number of connections.
    pub connections: usize,
    /// Requests in flight on each connection.
    pub depth: usize,
    /// The duration.
    pub duration: Duration,
    /// The node below which nodes are created, instead of one for each connection.
    pub parent: Option<String>,
    /// The nodes that are read and written, instead of one for each connection.
    pub population: Option<Population>,
}

/// The result of a load.
#[derive(Debug, Clone)]
pub struct LoadOutcome {
    /// Requests per second, of all connections.
    pub per_second: f64,
    /// The latencies.
    pub latencies: Sorted,
}

impl Load {
    /// Runs the load. It uses `/load` on the server and does not delete it.
    pub fn run(&self) -> Result<LoadOutcome> {
        let start;
        let latencies = if self.work == Work::FanOut {
            start = Instant::now();
            fan_out::run(&self.connect, self.connections, self.duration)?
        } else {
            let folder = self.prepare()?;
            start = Instant::now();
            self.connections(&folder)?
        };
        let elapsed = start.elapsed();
        #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
        let per_second = latencies.count() as f64 / elapsed.as_secs_f64();
        Ok(LoadOutcome {
            per_second,
            latencies: latencies.sorted(),
        })
    }

    /// Creates a directory for this run, with a node for each connection.
    fn prepare(&self) -> Result<String> {
        let mut wire = Wire::connect(self.connect.server(0))?;
        let all = self.connect.path("/load");
        // Another run may have made it before.
        wire.send(&Request::create(&all, "").encode(1))?;
        wire.receive()?;
        let path = wire.call(&Request::create_mode(
            format!("{all}/run-"),
            "",
            Create::PERSISTENT_SEQUENTIAL,
        ))?;
        let folder = String::from_utf8(path[4..].to_vec())?;
        for number in 0..self.connections {
            wire.call(&Request::create(
                format!("{folder}/{number}"),
                vec![b'x'; DATA_BYTES],
            ))?;
        }
        Ok(folder)
    }

    fn connections(&self, folder: &str) -> Result<Latencies> {
        let stop = AtomicBool::new(false);
        let start = Instant::now();
        let mut latencies = Latencies::default();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.connections)
                .map(|number| {
                    let stop = &stop;
                    scope.spawn(move || self.connection(folder, number, stop))
                })
                .collect();
            while start.elapsed() < self.duration {
                thread::park_timeout(self.duration.saturating_sub(start.elapsed()));
            }
            stop.store(true, Ordering::Relaxed);
            for thread in threads {
                latencies.extend(thread.join().expect("a connection does not panic")?);
            }
            anyhow::Ok(latencies)
        })
    }

    fn connection(&self, folder: &str, number: usize, stop: &AtomicBool) -> Result<Latencies> {
        let own = format!("{folder}/{number}");
        let parent = self.parent.as_ref().unwrap_or(&own);
        let data = || vec![b'y'; DATA_BYTES];
        let nodes = match self.population {
            Some(population) => population.sample(number, SAMPLE),
            None => vec![own.clone()],
        };
        let nodes = nodes.into_iter();
        let server = self.connect.server(number);
        match self.work {
            Work::Get => self.pipelined(server, nodes.map(Request::get_data), stop),
            Work::Set => {
                let set = nodes.map(|node| Request::set_data(node, data()));
                self.pipelined(server, set, stop)
            }
            Work::Create => {
                let path = format!("{parent}/n-");
                let create = Request::create_mode(path, data(), Create::PERSISTENT_SEQUENTIAL);
                self.pipelined(server, [create], stop)
            }
            Work::CreateDelete => self.create_delete(server, parent, stop),
            Work::Connect => connect(server, stop),
            Work::FanOut => unreachable!("it has a loop of its own"),
        }
    }

    /// Sends requests of one length repeatedly. Replies come in order, so the oldest is answered
    /// first.
    fn pipelined(
        &self,
        server: &str,
        requests: impl IntoIterator<Item = Request>,
        stop: &AtomicBool,
    ) -> Result<Latencies> {
        let mut wire = Wire::connect(server)?;
        let requests: Vec<_> = requests.into_iter().map(|one| one.encode(1)).collect();
        let length = requests[0].len();
        // The first requests are repeated after the last, so that any number up to the depth can be sent in one write.
        let ring: Vec<u8> = requests
            .iter()
            .cycle()
            .take(requests.len() + self.depth)
            .flatten()
            .copied()
            .collect();
        let mut at = 0;
        let mut send = |wire: &mut Wire, count: usize| {
            let start = at;
            at = (at + count) % requests.len();
            wire.send(&ring[start * length..(start + count) * length])
        };
        let mut latencies = Latencies::default();
        let mut under_way: VecDeque<Instant> = VecDeque::from(vec![Instant::now(); self.depth]);
        send(&mut wire, self.depth)?;
        while !under_way.is_empty() {
            let answered = wire.count_replies()?;
            let now = Instant::now();
            for sent in under_way.drain(..answered) {
                latencies.add(now - sent);
            }
            if !stop.load(Ordering::Relaxed) {
                under_way.extend(std::iter::repeat_n(now, answered));
                send(&mut wire, answered)?;
            }
        }
        Ok(latencies)
    }

    fn create_delete(&self, server: &str, parent: &str, stop: &AtomicBool) -> Result<Latencies> {
        let mut wire = Wire::connect(server)?;
        let create = Request::create_mode(format!("{parent}/e-"), "", Create::EPHEMERAL_SEQUENTIAL);
        let creates = create.encode(1).repeat(self.depth);
        let mut latencies = Latencies::default();
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            wire.send(&creates)?;
            let mut deletes = Vec::new();
            for _ in 0..self.depth {
                let path = String::from_utf8(wire.receive_success()?[4..].to_vec())?;
                deletes.extend_from_slice(&Request::delete(path).encode(1));
            }
            wire.send(&deletes)?;
            for _ in 0..self.depth {
                wire.receive_success()?;
                latencies.add(start.elapsed());
            }
        }
        Ok(latencies)
    }
}

fn connect(server: &str, stop: &AtomicBool) -> Result<Latencies> {
    let mut latencies = Latencies::default();
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        let mut wire = Wire::connect(server)?;
        latencies.add(start.elapsed());
        wire.call(&Request::CloseSession)?;
    }
    Ok(latencies)
}
