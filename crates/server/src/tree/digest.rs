//! Digest of a tree: a sum over its nodes, so that a change costs only the nodes it touches.

use super::node::Node;
use super::path::ROOT;

/// Contribution of a node to the digest (`DigestCalculator`): a CRC-32 of its path, data and numbers. Nodes below `/zookeeper` do not
/// count, because quotas change there without a transaction.
pub(crate) fn of_node(path: &str, node: &Node) -> u32 {
    if path.starts_with("/zookeeper/") {
        return 0;
    }
    let mut crc = crc32fast::Hasher::new();
    crc.update(if path == ROOT { b"" } else { path.as_bytes() });
    if let Some(data) = &node.data {
        crc.update(data);
    }
    for number in [node.czxid, node.mzxid, node.pzxid, node.ctime, node.mtime] {
        crc.update(&number.to_be_bytes());
    }
    for number in [node.version, node.cversion, node.aversion] {
        crc.update(&number.to_be_bytes());
    }
    crc.update(&node.owner.stored().to_be_bytes());
    crc.finalize()
}
