//! One change that many wait for: from the set to the last event.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bellwether_testkit::Request;

use crate::wire::Wire;

/// Lets `watchers` sessions watch one node, changes it `rounds` times, and tells how long it took each
/// time until the last of them knew.
pub fn run(address: &str, watchers: usize, rounds: usize) -> Result<Vec<Duration>> {
    let mut writer = Wire::connect(address)?;
    let path = format!("/fan-out-{watchers}");
    // Another run may have made it before.
    writer.send(&Request::create(&path, "").encode(1))?;
    writer.receive()?;
    let mut sessions = (0..watchers)
        .map(|_| Wire::connect(address))
        .collect::<Result<Vec<_>>>()?;
    let watch = Request::get_data(&path).watching();
    let mut times = Vec::new();
    for _ in 0..rounds {
        for session in &mut sessions {
            session.call(&watch)?;
        }
        let start = Instant::now();
        writer.send(&Request::set_data(&path, "changed").encode(1))?;
        for session in &mut sessions {
            let event = session.receive()?;
            ensure!(
                event[..4] == (-1i32).to_be_bytes(),
                "a reply instead of an event"
            );
        }
        times.push(start.elapsed());
        writer.receive()?;
    }
    Ok(times)
}
