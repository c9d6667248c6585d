//! Creates the missing parents of a node.

use bellwether::zk;
use zk::CreateMode;

use crate::output::refusal::{Refusal, Verb};
use crate::tree::walk::ask_all;
use crate::value::node_path;

/// Creates the missing parents of a path, including the chroot, as persistent nodes.
pub(crate) async fn make_above(zk: &zk::Client, path: &str) -> Result<(), Refusal> {
    let whole = node_path::join(zk.root(), path);
    let root = zk.at_root();
    let mut last = None;
    let created = ask_all(node_path::above(&whole), |above| {
        root.create(above, b"", CreateMode::Persistent)
    });
    for (above, created) in created.await {
        // Only the last answer counts: above it, nodes may exist where this client has no right to create.
        last = match created {
            Ok(_) | Err(zk::Error::NODE_EXISTS) => None,
            Err(error) => Some(Refusal::of(Verb::Create, above, error)),
        };
    }
    last.map_or(Ok(()), Err)
}
