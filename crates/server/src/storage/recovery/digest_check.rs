//! Compares the digests in data files with the recovered tree.

use crate::tree::Tree;

/// Result of comparing the digests of a snapshot and the logs after it.
///
/// As in Apache (`DataTree.compareDigest`), a mismatch is logged and counted, and recovery continues: checksums have proven that the bytes
/// are as written, and Apache's own digests are wrong in rare cases.
#[derive(Debug)]
pub(super) struct DigestCheck {
    /// Digest of the snapshot and its zxid, until replay reaches that zxid. A snapshot that Apache took while the tree changed matches no
    /// version before that, so digests of the log are not compared until then either.
    of_snapshot: Option<(i64, u64)>,
    mismatches: u64,
}

impl DigestCheck {
    /// Starts with the tree of the snapshot `file`, and the snapshot's digest if it has one.
    pub(super) fn begin(file: &str, digest: Option<(i64, u64)>, tree: &Tree) -> Self {
        // Apache writes zxid 0 before the first transaction, and one less than in the file name at the start of an epoch.
        let of_snapshot = digest.filter(|(zxid, _)| *zxid > 0 && *zxid >= tree.last_zxid());
        let mut check = Self {
            of_snapshot,
            mismatches: 0,
        };
        check.compare_snapshot(file, tree);
        check
    }

    /// Compares after a transaction of the log `file`, which may have a digest.
    pub(super) fn after(&mut self, file: &str, digest: Option<u64>, tree: &Tree) {
        if self.of_snapshot.is_some() {
            self.compare_snapshot(file, tree);
        } else if digest.is_some_and(|digest| digest != tree.digest()) {
            self.report(file, tree);
        }
    }

    /// Number of mismatches.
    pub(super) fn mismatches(&self) -> u64 {
        self.mismatches
    }

    fn compare_snapshot(&mut self, file: &str, tree: &Tree) {
        let reached = self
            .of_snapshot
            .take_if(|(zxid, _)| *zxid <= tree.last_zxid());
        if reached.is_some_and(|(zxid, digest)| zxid == tree.last_zxid() && digest != tree.digest())
        {
            self.report(file, tree);
        }
    }

    fn report(&mut self, file: &str, tree: &Tree) {
        self.mismatches += 1;
        // After the first mismatch most digests differ, so only the first is logged.
        if self.mismatches == 1 {
            tracing::error!(
                file,
                zxid = format_args!("{:#x}", tree.last_zxid()),
                "the digest of the tree is not the one in the file"
            );
        }
    }
}
