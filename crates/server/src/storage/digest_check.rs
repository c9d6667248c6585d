//! Compares the digests in data files with the tree that is recovered from them.

use crate::tree::Tree;

/// What the digests of a snapshot and of the logs behind it have told so far.
///
/// As in Apache (`DataTree.compareDigest`), a digest that differs is reported and counted, and the recovery goes on: the
/// checksums have proven that the bytes are those which were written, and Apache's own digests are wrong in rare cases.
#[derive(Debug)]
pub(super) struct DigestCheck {
    /// The digest of the snapshot and its zxid, until the tree has got there. A snapshot that Apache took while the tree
    /// changed matches no version before that one, and digests of the log are not compared either.
    of_snapshot: Option<(i64, u64)>,
    mismatches: u64,
}

impl DigestCheck {
    /// Begins with a tree as it was read from the snapshot `file`, which may have a digest of this zxid.
    pub(super) fn begin(file: &str, digest: Option<(i64, u64)>, tree: &Tree) -> Self {
        // Apache writes zxid 0 before anything has happened, and one below the name's at the begin of an epoch.
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

    /// How many digests differed.
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
        // After the first one most others differ as well.
        if self.mismatches == 1 {
            tracing::error!(
                file,
                zxid = format_args!("{:#x}", tree.last_zxid()),
                "the digest of the tree is not the one in the file"
            );
        }
    }
}
