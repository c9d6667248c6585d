//! The events of a group of writes, from the changes to the outboxes of their watchers.
//!
//! Each event is encoded once. What a watcher receives is a range of these bytes, and becomes one entry of its outbox; if it is long, watchers
//! share it. So a write of thousands of changes costs each watcher one entry. Clients receive exactly the events that they would receive one by
//! one: the protocol demands an event for each change, which is shorter than the request for that change.

use std::ops::Range;
use std::sync::Arc;

use bellwether_wire::acl::{Acl, Id, READ};
use bellwether_wire::event::{self, EVENT_XID, EVENT_ZXID, EventKind};
use bellwether_wire::reply;
use bytes::{Bytes, BytesMut};

use crate::client::Peer;
use crate::tree::{Change, ChangeKind, access};

/// Shorter ranges are copied into outboxes, which is cheaper than an entry of its own.
const SHARED_BYTES_MIN: usize = 4 << 10;

/// Events that are not in outboxes yet.
#[derive(Debug)]
pub(super) struct Events {
    bytes: BytesMut,
    receivers: Vec<Receiver>,
    /// The receivers of the last event, by index, and the range of that event and its repetitions.
    last: Vec<usize>,
    last_range: Range<usize>,
    /// Number of the last event, to tell it each receiver once.
    number: usize,
    /// The change that the last event is about, if another one like it has the same receivers.
    run: Option<Change>,
    skip_acl: bool,
}

/// A client that receives some of the events.
#[derive(Debug)]
struct Receiver {
    peer: Arc<Peer>,
    ids: Arc<[Id]>,
    /// What it receives and its outbox does not have.
    range: Range<usize>,
    /// Number of the last event that it was told.
    told: usize,
}

/// One event, while its receivers are collected.
#[derive(Debug)]
pub(super) struct Event<'a> {
    events: &'a mut Events,
    kind: EventKind,
    path: &'a str,
    acl: &'a [Acl],
}

impl Events {
    pub(super) fn new(skip_acl: bool) -> Self {
        Self {
            bytes: BytesMut::new(),
            receivers: Vec::new(),
            last: Vec::new(),
            last_range: 0..0,
            number: 0,
            run: None,
            skip_acl,
        }
    }

    /// Begins an event, which nobody receives yet. `acl` is the access list of the node.
    pub(super) fn begin<'a>(
        &'a mut self,
        kind: EventKind,
        path: &'a str,
        acl: &'a [Acl],
    ) -> Event<'a> {
        self.settle();
        let end = self.bytes.len();
        self.last_range = end..end;
        self.number += 1;
        Event {
            events: self,
            kind,
            path,
            acl,
        }
    }

    /// Remembers that `change` caused the last event alone, and that another change like it has the same receivers: nobody was told for the
    /// last time. Only changes of data: their order is free of other events.
    pub(super) fn begin_run(&mut self, change: &Change) {
        debug_assert_eq!(change.kind, ChangeKind::DataChanged);
        self.run = Some(change.clone());
    }

    /// Adds the last event once more if `change` is like the one before. Returns whether it is.
    pub(super) fn repeat(&mut self, change: &Change) -> bool {
        let is_like = |before: &Change| {
            before.kind == change.kind
                && Arc::ptr_eq(&before.acl, &change.acl)
                && before.path == change.path
        };
        let is_repeated = self.run.as_ref().is_some_and(is_like);
        if is_repeated && !self.last.is_empty() {
            put_event(&mut self.bytes, EventKind::NodeDataChanged, &change.path);
            self.last_range.end = self.bytes.len();
        }
        is_repeated
    }

    /// Gives the last event and its repetitions to their receivers.
    fn settle(&mut self) {
        self.run = None;
        for index in self.last.drain(..) {
            self.receivers[index].add(self.last_range.clone(), &self.bytes);
        }
    }

    /// Puts the events of `peer` into its outbox, before its next reply is put there.
    pub(super) fn deliver_to(&mut self, peer: &Peer) {
        if let Some(index) = self.index_of(peer) {
            self.settle();
            self.receivers[index].copy(&self.bytes);
        }
    }

    /// Puts all events into the outboxes. Returns the receivers, whose outboxes have to be flushed.
    pub(super) fn deliver(mut self) -> impl Iterator<Item = Arc<Peer>> {
        self.settle();
        let mut shared = None;
        for receiver in &mut self.receivers {
            receiver.share_or_copy(&self.bytes, &mut shared);
        }
        self.receivers.into_iter().map(|receiver| receiver.peer)
    }

    /// The index of `peer` in the list of receivers, which its connection remembers. It may remember that of another list.
    fn index_of(&self, peer: &Peer) -> Option<usize> {
        let index = peer.receiver_index();
        let receiver = self.receivers.get(index)?;
        (receiver.peer.number == peer.number).then_some(index)
    }
}

impl Event<'_> {
    /// Adds a receiver, unless it receives this event already, or may not read the node (CVE-2024-23944).
    pub(super) fn tell(&mut self, peer: &Arc<Peer>) {
        let events = &mut *self.events;
        let index = events.index_of(peer).unwrap_or_else(|| {
            let index = events.receivers.len();
            peer.set_receiver_index(index);
            events.receivers.push(Receiver {
                peer: peer.clone(),
                ids: peer.ids(),
                range: 0..0,
                told: 0,
            });
            index
        });
        let receiver = &mut events.receivers[index];
        if std::mem::replace(&mut receiver.told, events.number) == events.number {
            return;
        }
        if events.skip_acl || access::allows(self.acl, READ, &receiver.ids) {
            if events.last.is_empty() {
                put_event(&mut events.bytes, self.kind, self.path);
                events.last_range.end = events.bytes.len();
            }
            events.last.push(index);
        }
    }
}

impl Receiver {
    /// Adds a range behind those before it. If it does not follow directly, these are put into the outbox.
    fn add(&mut self, range: Range<usize>, bytes: &[u8]) {
        if self.range.end != range.start {
            self.copy(bytes);
            self.range.start = range.start;
        }
        self.range.end = range.end;
    }

    /// Copies what it receives into the outbox.
    fn copy(&mut self, bytes: &[u8]) {
        if !self.range.is_empty() {
            let range = std::mem::take(&mut self.range);
            self.peer
                .outbox
                .push(|out| out.extend_from_slice(&bytes[range]));
        }
    }

    /// Puts what it receives into the outbox: without a copy if it is at least half of `bytes`. A client that does not read can thus keep at
    /// most twice the memory of what waits for it.
    fn share_or_copy(&mut self, bytes: &[u8], shared: &mut Option<Bytes>) {
        let length = self.range.len();
        if length < SHARED_BYTES_MIN || length < bytes.len() / 2 {
            return self.copy(bytes);
        }
        let outbox = &self.peer.outbox;
        let shared = shared.get_or_insert_with(|| outbox.share(bytes));
        outbox.push_shared(shared.slice(std::mem::take(&mut self.range)));
    }
}

/// Appends an event to the outbox of `peer`.
pub(super) fn send(peer: &Peer, kind: EventKind, path: &str) {
    peer.outbox.push(|out| put_event(out, kind, path));
}

fn put_event(out: &mut BytesMut, kind: EventKind, path: &str) {
    reply::put(out, EVENT_XID, EVENT_ZXID, Ok(()), |out| {
        event::encode(kind, path, out)
    });
}

#[cfg(test)]
mod tests;
