//! What no server can do without: a round trip, and a sync.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use crate::latency::Latencies;

/// The median of a round trip of 100 bytes between two threads, in microseconds.
pub fn loopback_us() -> Result<f64> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let echo = std::thread::spawn(move || -> Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut bytes = [0; 100];
        while stream.read_exact(&mut bytes).is_ok() {
            stream.write_all(&bytes)?;
        }
        Ok(())
    });
    let mut stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut latencies = Latencies::default();
    let mut bytes = [0; 100];
    for _ in 0..20_000 {
        let start = Instant::now();
        stream.write_all(&bytes)?;
        stream.read_exact(&mut bytes)?;
        latencies.add(start.elapsed());
    }
    drop(stream);
    echo.join().expect("the echo does not panic")?;
    Ok(latencies.sorted().quantile_us(0.5))
}

/// The median of a sync of 200 bytes into a file that was made long before, in microseconds.
pub fn fdatasync_us(folder: &Path) -> Result<f64> {
    let mut file = File::create(folder.join("sync"))?;
    file.set_len(64 << 20)?;
    file.sync_all()?;
    let mut latencies = Latencies::default();
    for _ in 0..500 {
        let start = Instant::now();
        file.write_all(&[1; 200])?;
        file.sync_data()?;
        latencies.add(start.elapsed());
    }
    Ok(latencies.sorted().quantile_us(0.5))
}
