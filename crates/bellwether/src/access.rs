//! Who may touch the nodes that a recipe makes.

use std::sync::Arc;

use zookeeper_client as zk;

/// The access control list of a recipe's nodes and of the directories that it has to make.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access(Option<Arc<[zk::Acl]>>);

impl Access {
    pub(crate) fn new(acl: impl Into<Vec<zk::Acl>>) -> Self {
        Self(Some(acl.into().into()))
    }

    /// Open to everybody unless set.
    pub(crate) fn acls(&self) -> zk::Acls<'_> {
        match &self.0 {
            Some(acls) => zk::Acls::new(acls),
            None => zk::Acls::anyone_all(),
        }
    }

    /// How much it takes in a request.
    pub(crate) fn bytes(&self) -> usize {
        /// Rights, and the lengths of the two texts.
        const ENTRY_OVERHEAD_BYTES: usize = 12;
        const ANYONE: usize = "worldanyone".len();
        match &self.0 {
            Some(acls) => acls
                .iter()
                .map(|acl| acl.scheme().len() + acl.id().len() + ENTRY_OVERHEAD_BYTES)
                .sum(),
            None => ANYONE + ENTRY_OVERHEAD_BYTES,
        }
    }
}
