//! One change that many sessions watch: from the set to the last event.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bellwether_testkit::Request;

use crate::load::connect_string::ConnectString;
use crate::measure::latency::Latencies;
use crate::wire::Wire;

/// Lets `watchers` sessions watch one node and changes it repeatedly for `duration`. Returns the times until the last watcher received its
/// event.
pub fn run(connect: &ConnectString, watchers: usize, duration: Duration) -> Result<Latencies> {
    let mut writer = Wire::connect(connect.server(0))?;
    let path = connect.path(&format!("/fan-out-{watchers}"));
    // Another run may have made it before.
    writer.send(&Request::create(&path, "").encode(1))?;
    writer.receive()?;
    let mut sessions = (0..watchers)
        .map(|number| Wire::connect(connect.server(number)))
        .collect::<Result<Vec<_>>>()?;
    let watch = Request::get_data(&path).watching().encode(1);
    let change = Request::set_data(&path, "changed").encode(1);
    let mut latencies = Latencies::default();
    let start = Instant::now();
    while start.elapsed() < duration {
        for session in &mut sessions {
            session.send(&watch)?;
        }
        for session in &mut sessions {
            session.count_replies()?;
        }
        let sent = Instant::now();
        writer.send(&change)?;
        for session in &mut sessions {
            let event = session.receive()?;
            ensure!(
                event[..4] == (-1i32).to_be_bytes(),
                "a reply instead of an event"
            );
        }
        latencies.add(sent.elapsed());
        writer.receive()?;
    }
    Ok(latencies)
}
