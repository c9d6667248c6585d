//! Reads a log file of either server, and classifies its end: clean, torn or damaged.

use std::io::{self, BufReader, Read};

use adler2::adler32_slice;

use crate::storage::log::record::{END, HEADER, MAGIC, PREFIX_BYTES};
use crate::tree::txn::Txn;

/// Unit in which disks write.
const SECTOR_BYTES: usize = 512;

/// Leading zero bytes of every record: its 32-bit checksum is in a 64-bit field.
const CHECKSUM_ZEROS: usize = 4;

/// Shortest payload: a transaction header without a body.
const PAYLOAD_BYTES_MIN: usize = 32;

/// One record of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogRecord {
    /// Its position in the file.
    pub offset: u64,
    /// Its length in the file.
    pub bytes: usize,
    /// The transaction.
    pub txn: Txn,
    /// Digest of the tree after it, if recorded.
    pub digest: Option<u64>,
}

/// What follows the last valid record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogEnd {
    /// Nothing, or preallocated zeros.
    Clean,
    /// The start of a record that was never written completely, and so never acknowledged.
    Torn {
        /// Where it begins: the file is valid up to here.
        offset: u64,
        /// How this was recognized.
        why: &'static str,
    },
    /// Bytes that may have been a complete record once, or that are followed by complete records. An unfinished batch may look the same, if
    /// one of its earlier pages is the one that was lost.
    Damaged {
        /// Where it begins.
        offset: u64,
        /// What is wrong there.
        why: &'static str,
    },
}

/// Reads a log file record by record.
///
/// ```no_run
/// # fn main() -> std::io::Result<()> {
/// use bellwether_server::files::LogReader;
///
/// let mut log = LogReader::open(std::fs::File::open("version-2/log.1")?)?;
/// while let Some(record) = log.next()? {
///     println!("{:#x} {:?}", record.txn.zxid, record.txn.body);
/// }
/// println!("{:?}", log.end());
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct LogReader<R> {
    input: BufReader<R>,
    offset: u64,
    last_zxid: i64,
    end: Option<LogEnd>,
}

impl<R: Read> LogReader<R> {
    /// Reads the header of a log. A file that ends within its header has no records and is torn.
    pub fn open(input: R) -> io::Result<Self> {
        let mut input = BufReader::with_capacity(1 << 18, input);
        let mut header = Vec::new();
        input
            .by_ref()
            .take(HEADER.len() as u64)
            .read_to_end(&mut header)?;
        let end = if header.len() < HEADER.len() {
            Some(LogEnd::Torn {
                offset: 0,
                why: "the file ends before its header does",
            })
        } else if !header.starts_with(MAGIC) {
            Some(LogEnd::Damaged {
                offset: 0,
                why: "the file has no log header",
            })
        } else {
            None
        };
        Ok(Self {
            input,
            offset: HEADER.len() as u64,
            last_zxid: i64::MIN,
            end,
        })
    }

    /// Returns the next valid record, or `None` if there is none; then [`LogReader::end`] says why.
    #[expect(
        clippy::should_implement_trait,
        reason = "an iterator could not borrow or fail so simply"
    )]
    pub fn next(&mut self) -> io::Result<Option<LogRecord>> {
        if self.end.is_some() {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        self.read_more(&mut bytes, PREFIX_BYTES)?;
        if let Some(length) = payload_length(&bytes) {
            self.read_more(&mut bytes, length + 1)?;
        }
        let record = parse(&bytes)
            .ok()
            .filter(|(txn, _)| txn.zxid > self.last_zxid);
        let Some((txn, digest)) = record else {
            self.input.read_to_end(&mut bytes)?;
            self.end = Some(self.judge(&bytes));
            return Ok(None);
        };
        let offset = self.offset;
        self.offset += bytes.len() as u64;
        self.last_zxid = txn.zxid;
        Ok(Some(LogRecord {
            offset,
            bytes: bytes.len(),
            txn,
            digest,
        }))
    }

    /// What follows the last record; known once [`LogReader::next`] has returned `None`.
    pub fn end(&self) -> LogEnd {
        self.end.clone().unwrap_or(LogEnd::Clean)
    }

    /// Length of the valid part: the end of the last record read, 0 if not even the header is complete.
    pub(in crate::storage) fn good_bytes(&self) -> u64 {
        match self.end {
            Some(LogEnd::Torn { offset, .. } | LogEnd::Damaged { offset, .. }) => offset,
            Some(LogEnd::Clean) | None => self.offset,
        }
    }

    /// The underlying file.
    pub(in crate::storage) fn into_input(self) -> R {
        self.input.into_inner()
    }

    fn read_more(&mut self, bytes: &mut Vec<u8>, count: usize) -> io::Result<()> {
        self.input
            .by_ref()
            .take(count as u64)
            .read_to_end(bytes)
            .map(drop)
    }

    /// Classifies `tail`, the rest of the file, which does not begin with a valid record.
    fn judge(&self, tail: &[u8]) -> LogEnd {
        let offset = self.offset;
        if without_zeros(tail).is_empty() {
            return LogEnd::Clean;
        }
        if has_record_behind(tail, self.last_zxid) {
            return LogEnd::Damaged {
                offset,
                why: "the record is bad, and good ones follow it",
            };
        }
        let written = without_zeros(tail);
        let length = payload_length(tail);
        let record_bytes = PREFIX_BYTES + length.map_or(0, |length| length + 1);
        if written.len() != record_bytes && has_its_checksum(written) {
            return LogEnd::Damaged {
                offset,
                why: "the length of the record is wrong",
            };
        }
        // No record ends in a zero. Apache writes a batch in pieces of any length, so the end after a kill need not be at a sector
        // boundary.
        if written.len() < record_bytes {
            return LogEnd::Torn {
                offset,
                why: "the record was written in part",
            };
        }
        let within_sector = usize::try_from(offset % SECTOR_BYTES as u64).expect("less than 512");
        let record = match length {
            Some(_) => &tail[..record_bytes],
            // The length is unknown: check only the sectors of the prefix.
            None => {
                let sectors = (within_sector + PREFIX_BYTES).next_multiple_of(SECTOR_BYTES);
                &tail[..(sectors - within_sector).min(tail.len())]
            }
        };
        if has_unwritten_sector(record, within_sector) {
            return LogEnd::Torn {
                offset,
                why: "a sector of the record was not written",
            };
        }
        let why = match length {
            Some(_) => parse(record)
                .err()
                .unwrap_or("the record goes back in zxid"),
            None => "the record has an impossible length",
        };
        LogEnd::Damaged { offset, why }
    }
}

/// Payload length in a prefix, if a record can be that long.
fn payload_length(prefix: &[u8]) -> Option<usize> {
    let bytes = prefix.get(8..PREFIX_BYTES)?;
    let length = i32::from_be_bytes(bytes.try_into().expect("four bytes"));
    usize::try_from(length)
        .ok()
        .filter(|length| *length >= PAYLOAD_BYTES_MIN)
}

/// Parses one record that spans all of `bytes`.
fn parse(bytes: &[u8]) -> Result<(Txn, Option<u64>), &'static str> {
    let Some((prefix, rest)) = bytes.split_at_checked(PREFIX_BYTES) else {
        return Err("the record is cut off");
    };
    let Some((end, payload)) = rest.split_last() else {
        return Err("the record is cut off");
    };
    if payload_length(prefix) != Some(payload.len()) {
        return Err("the record is cut off");
    }
    if *end != END {
        return Err("the end mark of the record is missing");
    }
    let checksum = i64::from_be_bytes(prefix[..8].try_into().expect("eight bytes"));
    if checksum != i64::from(adler32_slice(payload)) {
        return Err("the checksum does not match");
    }
    Txn::decode(payload).map_err(|_| "the transaction cannot be read")
}

/// Whether a valid record begins anywhere after the first byte.
fn has_record_behind(tail: &[u8], last_zxid: i64) -> bool {
    records_in(&tail[1..], last_zxid).next().is_some()
}

/// Zxids of all valid records in `bytes`, whatever is between them.
pub(in crate::storage) fn records_in(bytes: &[u8], last_zxid: i64) -> impl Iterator<Item = i64> {
    let bytes = without_zeros(bytes);
    let mut start = 0;
    let mut last_zxid = last_zxid;
    std::iter::from_fn(move || {
        while start < bytes.len() {
            let rest = &bytes[start..];
            let length = payload_length(rest).map(|length| PREFIX_BYTES + length + 1);
            let record = length.and_then(|length| rest.get(..length));
            // Checking the last byte first avoids most checksums.
            let txn = record
                .filter(|record| record.last() == Some(&END))
                .and_then(|record| parse(record).ok())
                .filter(|(txn, _)| txn.zxid > last_zxid);
            if let (Some((txn, _)), Some(length)) = (txn, length) {
                start += length;
                last_zxid = txn.zxid;
                return Some(txn.zxid);
            }
            start += 1;
        }
        None
    })
}

/// The bytes without trailing zeros, of which there may be many: no record ends in one.
pub(in crate::storage) fn without_zeros(bytes: &[u8]) -> &[u8] {
    const ZEROS: [u8; 4096] = [0; 4096];
    let written = bytes
        .rchunks(ZEROS.len())
        .take_while(|part| **part == ZEROS[..part.len()])
        .fold(bytes, |bytes, part| &bytes[..bytes.len() - part.len()]);
    let end = written.iter().rposition(|byte| *byte != 0);
    &written[..end.map_or(0, |last| last + 1)]
}

/// Whether `written` is a complete record, whatever length its prefix says.
fn has_its_checksum(written: &[u8]) -> bool {
    let parts = written.split_at_checked(PREFIX_BYTES);
    parts.is_some_and(|(prefix, rest)| {
        let payload = rest.strip_suffix(&[END]);
        payload
            .is_some_and(|payload| prefix[..8] == i64::from(adler32_slice(payload)).to_be_bytes())
    })
}

/// Whether a sector of the record was never written: a whole sector of zeros, zeros in place of the last byte, or zeros in place of the
/// checksum. `within_sector` is the offset of the record in its first sector.
fn has_unwritten_sector(record: &[u8], within_sector: usize) -> bool {
    let (first, rest) = record.split_at((SECTOR_BYTES - within_sector).min(record.len()));
    let zero = |part: &[u8]| part.iter().all(|byte| *byte == 0);
    let last = rest.chunks(SECTOR_BYTES).next_back().unwrap_or(first);
    let lacks_first = first.len() > CHECKSUM_ZEROS && zero(first);
    lacks_first || zero(last) || rest.chunks_exact(SECTOR_BYTES).any(zero)
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;

    use super::*;
    use crate::storage::log::record;
    use crate::tree::txn::TxnBody;

    /// A log of records with data of these sizes.
    fn log(sizes: &[usize]) -> (Vec<u8>, Vec<usize>) {
        let mut bytes = BytesMut::from(&HEADER[..]);
        let mut ends = vec![bytes.len()];
        for (zxid, size) in (1..).zip(sizes) {
            let data = Some(vec![0xAB; *size].into());
            let body = TxnBody::SetData {
                path: "/a".into(),
                data,
                version: 1,
            };
            let txn = Txn {
                session_id: 1,
                cxid: 1,
                zxid,
                time_ms: 1,
                body,
            };
            record::put(&mut bytes, &txn, Some(7));
            ends.push(bytes.len());
        }
        (bytes.to_vec(), ends)
    }

    fn read(bytes: &[u8]) -> (usize, LogEnd) {
        let mut reader = LogReader::open(bytes).unwrap();
        let mut count = 0;
        while reader.next().unwrap().is_some() {
            count += 1;
        }
        (count, reader.end())
    }

    #[test]
    fn zeros_behind_the_last_record_are_reserved() {
        let (mut bytes, _) = log(&[1, 1000]);
        bytes.resize(bytes.len() + 3000, 0);
        assert_eq!(read(&bytes), (2, LogEnd::Clean));
    }

    #[test]
    fn a_log_cut_anywhere_is_the_records_before_the_cut() {
        let (bytes, ends) = log(&[1, 700, 3]);
        for cut in 0..bytes.len() {
            let (count, end) = read(&bytes[..cut]);
            let whole = ends
                .iter()
                .filter(|end| **end <= cut)
                .count()
                .saturating_sub(1);
            assert_eq!(count, whole, "cut at {cut}");
            let clean = ends.contains(&cut) || matches!(end, LogEnd::Clean);
            assert!(
                clean || matches!(end, LogEnd::Torn { .. }),
                "cut at {cut}: {end:?}"
            );
        }
    }

    /// What Apache leaves when it is killed in the middle of a batch.
    #[test]
    fn a_log_cut_anywhere_before_reserved_zeros_is_the_records_before_the_cut() {
        let (bytes, ends) = log(&[1, 700, 3]);
        for cut in ends[0]..bytes.len() {
            let mut torn = bytes[..cut].to_vec();
            torn.resize(bytes.len() + 3000, 0);
            let (count, end) = read(&torn);
            let whole = ends.iter().filter(|end| **end <= cut).count() - 1;
            assert_eq!(count, whole, "cut at {cut}");
            let damaged = matches!(end, LogEnd::Damaged { .. });
            assert!(!damaged, "cut at {cut}: {end:?}");
        }
    }

    #[test]
    fn a_last_record_that_was_whole_is_damaged_even_if_its_length_is_wrong() {
        let (mut bytes, ends) = log(&[1, 700]);
        bytes.resize(bytes.len() + 3000, 0);
        for position in ends[1] + PREFIX_BYTES - 2..ends[2] {
            let mut flipped = bytes.clone();
            flipped[position] ^= 0x04;
            let (count, end) = read(&flipped);
            assert_eq!(count, 1, "flipped at {position}");
            let damaged = matches!(end, LogEnd::Damaged { .. });
            assert!(damaged, "flipped at {position}: {end:?}");
        }
    }

    #[test]
    fn a_flipped_bit_before_good_records_is_damage() {
        let (bytes, ends) = log(&[1, 700, 3]);
        for position in HEADER.len()..ends[2] {
            let mut flipped = bytes.clone();
            flipped[position] ^= 0x10;
            let (count, end) = read(&flipped);
            assert!(count < 2, "flipped at {position}");
            assert!(
                matches!(end, LogEnd::Damaged { .. }),
                "flipped at {position}: {end:?}"
            );
        }
    }

    #[test]
    fn a_flipped_bit_in_the_last_record_drops_at_most_that_record() {
        let (mut bytes, ends) = log(&[1, 700, 3]);
        bytes.resize(bytes.len() + 3000, 0);
        for position in ends[2]..ends[3] {
            let mut flipped = bytes.clone();
            flipped[position] ^= 0x10;
            let (count, end) = read(&flipped);
            assert_eq!(count, 2, "flipped at {position}");
            assert_ne!(end, LogEnd::Clean, "flipped at {position}");
        }
    }

    #[test]
    fn a_sector_that_was_not_written_is_a_torn_record() {
        let (bytes, ends) = log(&[1, 2000]);
        for sector in (ends[1]..ends[2])
            .step_by(SECTOR_BYTES)
            .map(|at| at / SECTOR_BYTES)
        {
            let mut torn = bytes.clone();
            let lost =
                (sector * SECTOR_BYTES).max(ends[1])..((sector + 1) * SECTOR_BYTES).min(ends[2]);
            torn[lost].fill(0);
            torn.resize(torn.len() + 2000, 0);
            let (count, end) = read(&torn);
            assert_eq!(count, 1);
            assert!(
                matches!(end, LogEnd::Torn { .. }),
                "sector {sector}: {end:?}"
            );
        }
    }

    /// The first bytes of a record may be alone in a sector.
    #[test]
    fn a_sector_that_was_not_written_is_a_torn_record_wherever_it_begins() {
        for before in 1..=PREFIX_BYTES {
            let (_, ends) = log(&[0]);
            let (bytes, ends) = log(&[2 * SECTOR_BYTES - ends[1] - before, 900]);
            let boundary = 2 * SECTOR_BYTES;
            assert_eq!(ends[1], boundary - before);
            for lost in [
                ends[1]..boundary,
                boundary..boundary + SECTOR_BYTES,
                boundary..ends[2],
            ] {
                let mut torn = bytes.clone();
                let same = torn[lost.clone()].iter().all(|byte| *byte == 0);
                torn[lost.clone()].fill(0);
                torn.resize(torn.len() + 2000, 0);
                let (count, end) = read(&torn);
                assert_eq!(count, if same { 2 } else { 1 });
                let damaged = matches!(end, LogEnd::Damaged { .. });
                assert!(!damaged, "{before} before, {lost:?} lost: {end:?}");
            }
        }
    }

    #[test]
    fn what_is_no_log_is_damaged() {
        assert!(matches!(
            read(&[7; 100]).1,
            LogEnd::Damaged { offset: 0, .. }
        ));
        assert!(matches!(read(&[]).1, LogEnd::Torn { offset: 0, .. }));
    }
}
