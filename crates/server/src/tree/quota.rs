//! Quotas: limits on the nodes and bytes below a path, and the statistics kept for them.
//!
//! A quota on `/x` is the node `/zookeeper/quota/x/zookeeper_limits`. Current usage is in `zookeeper_stats` beside it, which is updated
//! outside the log, as in Apache.

use std::sync::Arc;

use bellwether_wire::code::ErrorCode;

use super::below::signed;
use super::tree::Tree;

const QUOTA_ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

/// Path that a quota node refers to, if `node` is a quota node named `name`.
fn subject<'a>(node: &'a str, name: &str) -> Option<&'a str> {
    node.strip_prefix(QUOTA_ROOT)?
        .strip_suffix(name)?
        .strip_suffix('/')
}

/// Parses numbers such as `count=3,bytes=7` or `count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3`.
fn number(text: &str, key: &str) -> Option<i64> {
    text.split([',', ';', '='])
        .zip(text.split([',', ';', '=']).skip(1))
        .find(|(name, _)| *name == key)
        .and_then(|(_, value)| value.parse().ok())
}

impl Tree {
    /// Called after a create: the node may be a quota, or be subject to one.
    pub(super) fn quota_after_create(&mut self, node: &str) {
        if let Some(subject) = subject(node, LIMITS) {
            self.quotas.insert(subject.into());
        }
        if let Some(subject) = subject(node, STATS) {
            self.recount(subject);
        }
        if !self.quotas.is_empty() {
            let bytes = self.get(node).map_or(0, |node| signed(node.data_len()));
            self.adjust(node, 1, bytes);
        }
    }

    /// Called after the delete of a node with `bytes` of data.
    pub(super) fn quota_after_delete(&mut self, node: &str, bytes: usize) {
        if let Some(subject) = subject(node, LIMITS) {
            self.quotas.remove(subject);
        }
        if !self.quotas.is_empty() {
            self.adjust(node, -1, -signed(bytes));
        }
    }

    /// Called after the data of a node grew by `bytes`.
    pub(super) fn quota_after_set(&mut self, node: &str, bytes: i64) {
        if !self.quotas.is_empty() {
            self.adjust(node, 0, bytes);
        }
    }

    /// Finds the quotas of a restored tree, and counts their usage again.
    pub(super) fn restore_quotas(&mut self) {
        let mut limits = Vec::new();
        self.walk(&Arc::from(QUOTA_ROOT), |node, _| {
            limits.extend(subject(node, LIMITS).map(Arc::<str>::from));
        });
        for subject in limits {
            self.recount(&subject);
            self.quotas.insert(subject);
        }
    }

    /// Refuses a write whose result exceeds a hard limit. If usage already exceeds it, as with a limit set later, a write that reduces
    /// usage is refused too unless the result is within the limit.
    pub(crate) fn check_quota(&self, node: &str, count: i64, bytes: i64) -> Result<(), ErrorCode> {
        let Some(subject) = self.quota_over(node) else {
            return Ok(());
        };
        let text = |name: &str| {
            let data = self
                .get(&format!("{QUOTA_ROOT}{subject}/{name}"))?
                .data
                .clone()?;
            Some(String::from_utf8_lossy(&data).into_owned())
        };
        let (Some(limits), Some(stats)) = (text(LIMITS), text(STATS)) else {
            return Ok(());
        };
        let exceeded = |limit: &str, used: &str, more: i64| {
            let limit = number(&limits, limit).filter(|limit| *limit > -1);
            let used = number(&stats, used).unwrap_or(0);
            more != 0 && limit.is_some_and(|limit| used.wrapping_add(more) > limit)
        };
        if exceeded("countHardLimit", "count", count) || exceeded("byteHardLimit", "bytes", bytes) {
            return Err(ErrorCode::QuotaExceeded);
        }
        Ok(())
    }

    /// Deepest path with a quota at or above `node`. A quota on the root is ignored.
    fn quota_over(&self, node: &str) -> Option<Arc<str>> {
        self.quotas.over(node).cloned()
    }

    fn adjust(&mut self, node: &str, count: i64, bytes: i64) {
        let Some(subject) = self.quota_over(node) else {
            return;
        };
        let stats = format!("{QUOTA_ROOT}{subject}/{STATS}");
        let Some(found) = self.get(&stats) else {
            return;
        };
        let text = String::from_utf8_lossy(found.data.as_deref().unwrap_or_default()).into_owned();
        // Any client may write anything there, and Apache's numbers wrap around as well.
        let count = number(&text, "count").unwrap_or(0).wrapping_add(count);
        let bytes = number(&text, "bytes").unwrap_or(0).wrapping_add(bytes);
        self.write_stats(&stats, count, bytes);
    }

    /// Counts the usage of a subtree again: the root of the quota counts, and only data counts as bytes. Clients can trigger this as often
    /// as they like, so it never walks the subtree. Too deep for a known count, the numbers stay unchanged.
    fn recount(&mut self, subject: &str) {
        let (count, bytes) = match (self.get(subject), self.below(subject)) {
            (None, _) => (0, 0),
            (Some(_), None) => return,
            (Some(top), Some(below)) => (below.nodes + 1, below.bytes + signed(top.data_len())),
        };
        let stats = format!("{QUOTA_ROOT}{subject}/{STATS}");
        self.write_stats(&stats, count, bytes);
    }

    /// Changes the data of the statistics in place: version, zxid and times stay the same.
    fn write_stats(&mut self, stats: &str, count: i64, bytes: i64) {
        let text = format!("count={count},bytes={bytes}");
        let after = signed(text.len());
        let data = Some(text.into_bytes().into());
        let before = self.update(stats, |node| std::mem::replace(&mut node.data, data));
        if let Some(before) = before {
            let before = signed(before.map_or(0, |data| data.len()));
            self.tally(stats, 0, after - before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_limits_are_read() {
        let soft = "count=5,bytes=-1";
        assert_eq!(number(soft, "count"), Some(5));
        assert_eq!(number(soft, "countHardLimit"), None);
        let hard = "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=3";
        assert_eq!(number(hard, "countHardLimit"), Some(3));
        assert_eq!(number(hard, "byteHardLimit"), Some(-1));
        assert_eq!(number(hard, "bytes"), Some(-1));
    }

    #[test]
    fn the_subject_of_a_quota_is_the_path_between() {
        assert_eq!(
            subject("/zookeeper/quota/x/y/zookeeper_limits", LIMITS),
            Some("/x/y")
        );
        assert_eq!(
            subject("/zookeeper/quota/zookeeper_limits", LIMITS),
            Some("")
        );
        assert_eq!(subject("/x/zookeeper_limits", LIMITS), None);
    }
}
