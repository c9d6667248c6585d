//! The access list of the nodes that a recipe creates.

use std::sync::Arc;

use bellwether_client as zk;

/// The access control list of a recipe's nodes and of its own directory. Directories above it are created open.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access(Option<Arc<[zk::Acl]>>);

impl Access {
    pub(crate) fn new(acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self(Some(acl.into().into()))
    }

    /// All clients, unless set.
    pub(crate) fn acl(&self) -> Vec<zk::Acl> {
        match &self.0 {
            Some(acl) => acl.to_vec(),
            None => vec![zk::Acl::open()],
        }
    }

    /// What the list takes in a request.
    pub(crate) fn bytes(&self) -> usize {
        let entries = self.acl().iter().map(zk::Acl::encoded_bytes).sum::<usize>();
        4 + entries
    }
}
