//! Nodes of creates that were given up.

use crate::node::path::NodePath;
use crate::request::litter::Litter;
use crate::session::open_session::Session;

/// Nodes that creates without an answer may have made, or may still make: a slow member of an ensemble may forward a create after its
/// retry. Dropped, the janitor deletes them, since they would block the line until the session ends.
#[derive(Debug)]
pub(super) struct Stragglers {
    pub(super) session: Session,
    pub(super) dir: NodePath,
    pub(super) prefix: String,
}

impl Drop for Stragglers {
    fn drop(&mut self) {
        self.session.janitor().remove(Litter::Acquisition {
            dir: self.dir.clone(),
            prefix: self.prefix.clone(),
        });
    }
}
