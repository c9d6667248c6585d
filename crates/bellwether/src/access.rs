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

    /// What the list takes in a request: how many entries there are, and of each the rights, scheme and id with their lengths.
    pub(crate) fn bytes(&self) -> usize {
        let acls = self.acls();
        let entries = acls
            .iter()
            .map(|acl| 12 + acl.scheme().len() + acl.id().len());
        4 + entries.sum::<usize>()
    }
}
