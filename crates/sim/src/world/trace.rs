//! Trace of a run: a checksum and, on demand, lines.

use super::time::Ms;

/// Checksum over everything that a run decides, to compare two runs event by event.
#[derive(Debug)]
pub(crate) struct Trace {
    sum: u64,
    count: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(with_lines: bool) -> Self {
        Self {
            sum: 0xcbf2_9ce4_8422_2325,
            count: 0,
            lines: with_lines.then(Vec::new),
        }
    }

    /// Adds one event.
    pub(crate) fn add(&mut self, now: Ms, what: u64, detail: u64, line: impl FnOnce() -> String) {
        for word in [now, what, detail] {
            self.sum = (self.sum ^ word).wrapping_mul(0x0000_0100_0000_01b3);
            self.sum ^= self.sum >> 29;
        }
        self.count += 1;
        if let Some(lines) = &mut self.lines {
            lines.push(format!("{:>10.3} {}", now as f64 / 1000.0, line()));
        }
    }

    /// Adds bytes that were sent.
    pub(crate) fn bytes(bytes: &[u8]) -> u64 {
        let mut sum = 0xcbf2_9ce4_8422_2325_u64;
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            sum = (sum ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        sum ^ (bytes.len() as u64)
    }

    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        self.lines.take().unwrap_or_default()
    }
}
