//! Stores equal access lists only once.

use std::collections::HashSet;
use std::sync::Arc;

use bellwether_wire::acl::Acl;

use crate::tree::access;
use crate::tree::txn::AclList;

/// Lists that no node uses may take this much memory, or as much as the lists in use.
const UNUSED_BYTES: usize = 1 << 20;

/// Memory of an entry of a hash set, and of the heap blocks of a list and of each string, beyond their content.
const OVERHEAD_BYTES: usize = 16;

/// The access lists in use, and some that were until recently.
#[derive(Debug)]
pub(crate) struct AclPool {
    open: AclList,
    lists: HashSet<AclList>,
    /// Memory of all lists.
    bytes: usize,
    /// Memory at which lists no longer in use are dropped.
    clean_at: usize,
}

impl AclPool {
    pub(crate) fn new() -> Self {
        Self {
            open: access::open(),
            lists: HashSet::new(),
            bytes: 0,
            clean_at: UNUSED_BYTES,
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
        let bytes = bytes_of(&list);
        if self.bytes + bytes > self.clean_at {
            self.clean();
        }
        let shared: AclList = list.into();
        self.lists.insert(shared.clone());
        self.bytes += bytes;
        shared
    }

    /// Drops the lists that only the pool has. The memory must double before the next time, so a list in use is looked at rarely.
    fn clean(&mut self) {
        self.lists.retain(|list| Arc::strong_count(list) > 1);
        self.lists.shrink_to(self.lists.len() * 2);
        self.bytes = self.lists.iter().map(|list| bytes_of(list)).sum();
        self.clean_at = self.bytes + self.bytes.max(UNUSED_BYTES);
    }
}

/// Memory of a list, which is many times the length of its message if its strings are short.
fn bytes_of(list: &[Acl]) -> usize {
    let strings = list.iter().map(|acl| {
        let Acl { id, .. } = acl;
        id.scheme.len() + id.id.len() + 2 * OVERHEAD_BYTES
    });
    size_of_val(list) + strings.sum::<usize>() + size_of::<AclList>() + 2 * OVERHEAD_BYTES
}

#[cfg(test)]
mod tests {
    use bellwether_wire::acl::Id;

    use super::*;

    /// A list of `length` entries, different for each `number`.
    fn list(number: usize, length: usize) -> Vec<Acl> {
        let id = |entry| Id::new("ip", format!("{number}.{entry}"));
        (0..length).map(|entry| Acl::new(1, id(entry))).collect()
    }

    #[test]
    fn dead_lists_take_a_bounded_number_of_bytes() {
        const ENTRIES: usize = 1000;
        let one = bytes_of(&list(1000, ENTRIES));
        let mut pool = AclPool::new();
        let mut most = 0;
        for number in 0..1023 {
            drop(pool.share(list(number, ENTRIES)));
            let held: usize = pool.lists.iter().map(|list| bytes_of(list)).sum();
            assert_eq!(pool.bytes, held);
            most = most.max(held);
        }
        eprintln!("{one} bytes a list, {most} bytes for 1,023 dead ones");
        assert!(1023 * one > 64 * UNUSED_BYTES, "{one}");
        assert!(most <= UNUSED_BYTES + one, "{most}");
    }

    #[test]
    fn lists_in_use_are_shared_and_kept() {
        let mut pool = AclPool::new();
        let used: Vec<_> = (0..300)
            .map(|number| pool.share(list(number, 100)))
            .collect();
        assert!(pool.bytes > 2 * UNUSED_BYTES, "{}", pool.bytes);
        let mut cleanings = 0;
        for number in 300..3000 {
            let before = pool.bytes;
            drop(pool.share(list(number, 100)));
            cleanings += usize::from(pool.bytes < before);
        }
        for (number, shared) in used.iter().enumerate() {
            assert!(Arc::ptr_eq(shared, &pool.share(list(number, 100))));
        }
        let in_use: usize = used.iter().map(|list| bytes_of(list)).sum();
        assert!(pool.bytes <= 2 * in_use + UNUSED_BYTES, "{}", pool.bytes);
        assert!(cleanings < 20, "{cleanings}");
    }
}
