//! Clients that are measured: each holds an ephemeral node and writes to it at a slow rate, on its own thread.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use bellwether_bench::measure::latency::Latencies;
use bellwether_bench::wire::Wire;
use bellwether_testkit::Request;

/// The time between two writes of a client.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// The clients.
pub(crate) struct GoodClients {
    threads: Vec<JoinHandle<Result<()>>>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    latencies: Mutex<Latencies>,
    /// When the write that is under way began, by client.
    under_way: Mutex<BTreeMap<String, Instant>>,
    is_over: AtomicBool,
    lost: AtomicUsize,
}

impl GoodClients {
    pub(crate) fn start(address: &str, count: usize) -> Result<Self> {
        let shared = Arc::new(Shared::default());
        let mut threads = Vec::new();
        for number in 0..count {
            let mut wire = Wire::connect(address)?;
            let path = format!("/good-{number}");
            wire.call(&Request::create_ephemeral(path.clone()))?;
            let shared = shared.clone();
            threads.push(thread::spawn(move || {
                let written = shared.write(&mut wire, &path);
                if written.is_err() {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                }
                written
            }));
        }
        Ok(Self { threads, shared })
    }

    /// The latencies of the writes in this time.
    pub(crate) fn measure(&self, duration: Duration) -> Result<Latencies> {
        self.shared.take();
        #[expect(clippy::disallowed_methods, reason = "a phase lasts for a time")]
        thread::sleep(duration);
        let latencies = self.shared.take();
        ensure!(latencies.count() > 0, "no write was answered");
        Ok(latencies)
    }

    /// Ends them. Returns how many had ended before, because their session or connection had.
    pub(crate) fn stop(self) -> usize {
        self.shared.is_over.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if let Err(error) = thread.join().unwrap_or_else(|_| Err(anyhow!("panicked"))) {
                println!("a good client: {error:#}");
            }
        }
        self.shared.lost.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn write(&self, wire: &mut Wire, path: &str) -> Result<()> {
        let request = Request::SetData {
            path: path.to_owned(),
            data: Some(b"alive".to_vec()),
            version: -1,
        };
        while !self.is_over.load(Ordering::Relaxed) {
            let begin = Instant::now();
            let under_way = || self.under_way.lock().expect("no panic under it");
            under_way().insert(path.to_owned(), begin);
            wire.call(&request)?;
            let took = begin.elapsed();
            under_way().remove(path);
            self.latencies.lock().expect("no panic under it").add(took);
            thread::park_timeout(WRITE_INTERVAL.saturating_sub(took));
        }
        Ok(())
    }

    /// The latencies since the last call. A write that is under way for longer than the interval counts with its time so far: a phase in which
    /// nothing is answered would have no latencies otherwise.
    fn take(&self) -> Latencies {
        let under_way = self.under_way.lock().expect("no panic under it");
        let mut latencies = std::mem::take(&mut *self.latencies.lock().expect("no panic under it"));
        let waits = under_way.values().map(Instant::elapsed);
        for wait in waits.filter(|wait| *wait > WRITE_INTERVAL) {
            latencies.add(wait);
        }
        latencies
    }
}
