//! What stands above a node.

use bellwether::zk;
use zk::CreateMode;

use crate::node_path;
use crate::refusal::{Refusal, Verb};
use crate::walk::ask_all;

/// Makes what is missing above a path, the chroot included, as plain nodes that stay.
pub(crate) async fn make_above(zk: &zk::Client, path: &str) -> Result<(), Refusal> {
    let whole = node_path::join(zk.root(), path);
    let root = zk.at_root();
    let mut last = None;
    let created = ask_all(node_path::above(&whole), |above| {
        root.create(above, b"", CreateMode::Persistent)
    });
    for (above, created) in created.await {
        // Only the last one counts: above it, nodes may exist where this client may not create any.
        last = match created {
            Ok(_) | Err(zk::Error::NODE_EXISTS) => None,
            Err(error) => Some(Refusal::of(Verb::Create, above, error)),
        };
    }
    last.map_or(Ok(()), Err)
}
