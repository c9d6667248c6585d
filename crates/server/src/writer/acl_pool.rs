//! Stores equal access lists only once.

use std::collections::HashSet;
use std::sync::Arc;

use bellwether_wire::acl::Acl;

use crate::tree::access;
use crate::tree::txn::AclList;

/// The access lists in use.
#[derive(Debug)]
pub(crate) struct AclPool {
    open: AclList,
    lists: HashSet<AclList>,
    /// Pool size at which lists no longer in use are dropped.
    clean_at: usize,
}

impl AclPool {
    pub(crate) fn new() -> Self {
        Self {
            open: access::open(),
            lists: HashSet::new(),
            clean_at: 1024,
        }
    }

    /// Returns the shared copy of `list`.
    pub(crate) fn share(&mut self, list: Vec<Acl>) -> AclList {
        if list[..] == self.open[..] {
            return self.open.clone();
        }
        if let Some(shared) = self.lists.get(&list[..]) {
            return shared.clone();
        }
        if self.lists.len() >= self.clean_at {
            self.lists.retain(|list| Arc::strong_count(list) > 1);
            self.clean_at = 1024.max(self.lists.len() * 2);
        }
        let shared: AclList = list.into();
        self.lists.insert(shared.clone());
        shared
    }
}
