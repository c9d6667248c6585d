//! Nodes of creates without an answer, which may exist, or may still be created.

use crate::request::leftover::Leftover;
use crate::session::open_session::Session;

/// A node that a create without an answer may have made, or may still make: a slow server may forward the create after its retry. When
/// this is dropped, the cleaner deletes the node, which would otherwise stand for a client that has given up until the session ends.
#[derive(Debug)]
pub(crate) struct Latecomer {
    session: Session,
    leftover: Option<Leftover>,
    /// The number of the connection through which the create was sent.
    connection: u64,
}

impl Latecomer {
    pub(crate) fn new(session: &Session, leftover: Leftover, connection: u64) -> Self {
        Self {
            session: session.clone(),
            leftover: Some(leftover),
            connection,
        }
    }
}

impl Drop for Latecomer {
    fn drop(&mut self) {
        if let Some(leftover) = self.leftover.take() {
            self.session
                .cleaner()
                .remove_late(leftover, self.connection);
        }
    }
}
