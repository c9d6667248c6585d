//! Trace of a run: a checksum and, on demand, lines.

use std::fmt::{self, Write as _};
use std::hash::{Hash, Hasher};

use super::time::Ms;

/// Checksum over everything that a run decides, to compare two runs event by event: which task runs, the bytes in both directions, the
/// events of the servers, and what workers note.
#[derive(Debug)]
pub(crate) struct Trace {
    sum: u64,
    count: u64,
    lines: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn new(with_lines: bool) -> Self {
        Self {
            sum: BASIS,
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

    /// Checksum of bytes that were sent.
    pub(crate) fn bytes(bytes: &[u8]) -> u64 {
        let mut sum = TraceSum(BASIS);
        sum.write(bytes);
        sum.0
    }

    /// Checksum of a value.
    pub(crate) fn value(value: &impl Hash) -> u64 {
        let mut sum = TraceSum(BASIS);
        value.hash(&mut sum);
        sum.0
    }

    /// Checksum of the text of a value that has no hash.
    pub(crate) fn text(value: &impl fmt::Debug) -> u64 {
        let mut sum = TraceSum(BASIS);
        // A sum takes every text.
        let _ = write!(sum, "{value:?}");
        sum.0
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

/// The sum of nothing.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

/// A hash that is the same in every build, and needs little time: FNV-1a over words instead of bytes.
#[derive(Debug)]
struct TraceSum(u64);

impl TraceSum {
    fn add(&mut self, word: u64) {
        self.0 = (self.0 ^ word).wrapping_mul(0x0000_0100_0000_01b3);
    }
}

impl Hasher for TraceSum {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        self.add(u64::from_le_bytes(word));
        self.add(bytes.len() as u64);
    }

    fn write_u64(&mut self, word: u64) {
        self.add(word);
    }

    fn write_usize(&mut self, word: usize) {
        self.add(word as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

impl fmt::Write for TraceSum {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.write(text.as_bytes());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_and_every_length_counts() {
        let texts: [&[u8]; 6] = [b"", b"a", b"a\0", b"12345678", b"12345678\0", b"12345679"];
        let sums = texts.map(Trace::bytes);
        for (at, sum) in sums.iter().enumerate() {
            assert!(!sums[..at].contains(sum), "{:?}", texts[at]);
        }
    }
}
