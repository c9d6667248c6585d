//! Names of data files: kind and zxid.

/// A data file, by its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DataFile {
    /// Transactions from this zxid on.
    Log(i64),
    /// The tree as of this zxid.
    Snapshot(i64, Compression),
}

/// Compression of a snapshot; Apache decides by the file extension. Of two files with one zxid the uncompressed one sorts last: it may be
/// ours, written after a start from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Compression {
    Gzip,
    Snappy,
    None,
}

impl DataFile {
    /// Parses a name as Apache does: the first part is the kind, the second the zxid, and the rest is ignored except for the compression.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('.');
        let kind = parts.next()?;
        let zxid = i64::from_str_radix(parts.next()?, 16).ok()?;
        match (kind, parts.next()) {
            ("log", _) => Some(Self::Log(zxid)),
            ("snapshot", Some("gz")) => Some(Self::Snapshot(zxid, Compression::Gzip)),
            ("snapshot", Some("snappy")) => Some(Self::Snapshot(zxid, Compression::Snappy)),
            ("snapshot", _) => Some(Self::Snapshot(zxid, Compression::None)),
            _ => None,
        }
    }
}

/// Name of the log whose first transaction is `zxid`.
pub(crate) fn log(zxid: i64) -> String {
    format!("log.{zxid:x}")
}

/// Name of the snapshot after `zxid`.
pub(crate) fn snapshot(zxid: i64) -> String {
    format!("snapshot.{zxid:x}")
}

/// Temporary name of a file while it is being written. Apache ignores it.
pub(crate) fn unfinished(name: &str) -> String {
    format!("unfinished-{name}")
}

/// Name for the bytes that a repair removes from a file at `offset`. Both servers ignore it.
pub(crate) fn cut(name: &str, offset: u64) -> String {
    format!("cut-{name}-{offset}")
}

/// Whether this is a temporary name of an unfinished file.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.starts_with("unfinished-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_apache_reads_them() {
        assert_eq!(DataFile::parse("log.1f"), Some(DataFile::Log(0x1f)));
        assert_eq!(DataFile::parse("log.5.bak"), Some(DataFile::Log(5)));
        let snapshot = |packing| Some(DataFile::Snapshot(0x1_0000_0001, packing));
        assert_eq!(
            DataFile::parse("snapshot.100000001"),
            snapshot(Compression::None)
        );
        assert_eq!(
            DataFile::parse("snapshot.100000001.gz"),
            snapshot(Compression::Gzip)
        );
        assert_eq!(
            DataFile::parse("snapshot.100000001.snappy"),
            snapshot(Compression::Snappy)
        );
        for other in [
            "log",
            "log.",
            "log.xyz",
            "currentEpoch",
            "unfinished-log.5",
            "lock",
        ] {
            assert_eq!(DataFile::parse(other), None, "{other}");
        }
    }
}
