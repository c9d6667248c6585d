//! The floor for any server and library: a round trip, and a sync.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::measure::latency::Latencies;

/// Bytes of a round trip, and bytes of a synced record.
const MESSAGE_BYTES: usize = 100;
const RECORD_BYTES: usize = 200;

/// A connection over loopback to a thread that echoes.
#[derive(Debug)]
struct Echo {
    stream: TcpStream,
    thread: JoinHandle<std::io::Result<()>>,
}

impl Echo {
    /// Starts the thread and connects to it.
    fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            let mut bytes = [0; MESSAGE_BYTES];
            while stream.read_exact(&mut bytes).is_ok() {
                stream.write_all(&bytes)?;
            }
            Ok(())
        });
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, thread })
    }

    /// One round trip.
    fn round_trip(&mut self) -> Result<()> {
        let mut bytes = [0; MESSAGE_BYTES];
        self.stream.write_all(&bytes)?;
        Ok(self.stream.read_exact(&mut bytes)?)
    }

    /// Ends the thread.
    fn stop(self) -> Result<()> {
        drop(self.stream);
        Ok(self.thread.join().expect("the echo does not panic")?)
    }
}

/// A preallocated file that is synced record by record.
#[derive(Debug)]
struct SyncedFile(File);

impl SyncedFile {
    /// Creates the file in a folder.
    fn create(folder: &Path) -> Result<Self> {
        let file = File::create(folder.join("sync"))?;
        file.set_len(64 << 20)?;
        file.sync_all()?;
        Ok(Self(file))
    }

    /// Writes one record and syncs it.
    fn write(&mut self) -> Result<()> {
        self.0.write_all(&[1; RECORD_BYTES])?;
        Ok(self.0.sync_data()?)
    }
}

/// The median of a round trip between two threads, in microseconds.
pub fn loopback_us() -> Result<f64> {
    let mut echo = Echo::start()?;
    let median = median_us(20_000, || echo.round_trip())?;
    echo.stop()?;
    Ok(median)
}

/// The median of a sync of one record, in microseconds.
pub fn fdatasync_us(folder: &Path) -> Result<f64> {
    let mut file = SyncedFile::create(folder)?;
    median_us(500, || file.write())
}

/// How often per second one sync and two round trips can happen one after the other: the floor for a hand-over from one
/// client to another over a server with a log.
pub fn hand_overs_per_second(folder: &Path, duration: Duration) -> Result<f64> {
    let mut echo = Echo::start()?;
    let mut file = SyncedFile::create(folder)?;
    let start = Instant::now();
    let mut count = 0.0;
    while start.elapsed() < duration {
        echo.round_trip()?;
        file.write()?;
        echo.round_trip()?;
        count += 1.0;
    }
    let elapsed = start.elapsed();
    echo.stop()?;
    Ok(count / elapsed.as_secs_f64())
}

fn median_us(times: usize, mut one: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut latencies = Latencies::default();
    for _ in 0..times {
        let start = Instant::now();
        one()?;
        latencies.add(start.elapsed());
    }
    Ok(latencies.sorted().quantile_us(0.5))
}
