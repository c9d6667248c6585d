//! A closed loop: each connection keeps so many requests under way, and sends the next when one is
//! answered.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use bellwether_testkit::{Create, Request};

use crate::latency::{Latencies, Sorted};
use crate::wire::Wire;

/// How many bytes each node has.
const DATA_BYTES: usize = 100;

/// What every connection does over and over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Work {
    /// Reads one node.
    Get,
    /// Writes one node.
    Set,
    /// Creates nodes that stay.
    Create,
    /// Creates a sequential ephemeral node and deletes it: one after the other, whatever the depth.
    CreateDelete,
    /// Opens a session and closes it: one after the other, whatever the depth.
    Connect,
}

/// A load on a server.
#[derive(Debug, Clone)]
pub struct Load {
    /// Where the server is.
    pub address: String,
    /// What to do.
    pub work: Work,
    /// On how many connections at once.
    pub connections: usize,
    /// How many requests each has under way.
    pub depth: usize,
    /// For how long.
    pub duration: Duration,
}

/// What came of it.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Requests answered in a second, on all connections together.
    pub per_second: f64,
    /// How long each took.
    pub latencies: Sorted,
}

impl Load {
    /// Runs the load; `/load` on the server is used and left behind.
    pub fn run(&self) -> Result<Outcome> {
        let folder = self.prepare()?;
        let start = Instant::now();
        let stop = AtomicBool::new(false);
        let mut latencies = Latencies::default();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.connections)
                .map(|number| {
                    scope.spawn({
                        let (folder, stop) = (&folder, &stop);
                        move || self.connection(folder, number, stop)
                    })
                })
                .collect();
            thread::park_timeout(self.duration);
            while start.elapsed() < self.duration {
                thread::park_timeout(self.duration - start.elapsed());
            }
            stop.store(true, Ordering::Relaxed);
            for thread in threads {
                latencies.extend(thread.join().expect("a connection does not panic")?);
            }
            anyhow::Ok(())
        })?;
        let elapsed = start.elapsed();
        #[expect(clippy::cast_precision_loss, reason = "shown with a few digits")]
        let per_second = latencies.count() as f64 / elapsed.as_secs_f64();
        Ok(Outcome {
            per_second,
            latencies: latencies.sorted(),
        })
    }

    /// Makes a folder of its own for this run.
    fn prepare(&self) -> Result<String> {
        let mut wire = Wire::connect(&self.address)?;
        // Another run may have made it before.
        wire.send(&Request::create("/load", "").encode(1))?;
        wire.receive()?;
        let path = wire.call(&Request::create_mode(
            "/load/run-",
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

    fn connection(&self, folder: &str, number: usize, stop: &AtomicBool) -> Result<Latencies> {
        let node = format!("{folder}/{number}");
        let data = vec![b'y'; DATA_BYTES];
        match self.work {
            Work::Get => self.pipelined(&Request::get_data(node), stop),
            Work::Set => self.pipelined(&Request::set_data(node, data), stop),
            Work::Create => {
                let path = format!("{node}/n-");
                self.pipelined(
                    &Request::create_mode(path, data, Create::PERSISTENT_SEQUENTIAL),
                    stop,
                )
            }
            Work::CreateDelete => self.create_delete(&node, stop),
            Work::Connect => self.connect(stop),
        }
    }

    /// Sends the same request again and again. Replies come in order, so the oldest is answered first.
    fn pipelined(&self, request: &Request, stop: &AtomicBool) -> Result<Latencies> {
        let mut wire = Wire::connect(&self.address)?;
        let one = request.encode(1);
        let window = one.repeat(self.depth);
        let mut latencies = Latencies::default();
        let mut under_way: VecDeque<Instant> = VecDeque::from(vec![Instant::now(); self.depth]);
        wire.send(&window)?;
        while !under_way.is_empty() {
            let answered = wire.count_replies()?;
            let now = Instant::now();
            for sent in under_way.drain(..answered) {
                latencies.add(now - sent);
            }
            if !stop.load(Ordering::Relaxed) {
                under_way.extend(std::iter::repeat_n(now, answered));
                wire.send(&window[..one.len() * answered])?;
            }
        }
        Ok(latencies)
    }

    fn create_delete(&self, node: &str, stop: &AtomicBool) -> Result<Latencies> {
        let mut wire = Wire::connect(&self.address)?;
        let create = Request::create_mode(format!("{node}/e-"), "", Create::EPHEMERAL_SEQUENTIAL);
        let mut latencies = Latencies::default();
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            let path = wire.call(&create)?;
            wire.call(&Request::delete(String::from_utf8(path[4..].to_vec())?))?;
            latencies.add(start.elapsed());
        }
        Ok(latencies)
    }

    fn connect(&self, stop: &AtomicBool) -> Result<Latencies> {
        let mut latencies = Latencies::default();
        while !stop.load(Ordering::Relaxed) {
            let start = Instant::now();
            let mut wire = Wire::connect(&self.address)?;
            latencies.add(start.elapsed());
            wire.call(&Request::CloseSession)?;
        }
        Ok(latencies)
    }
}
