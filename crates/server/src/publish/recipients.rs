//! Clients that receive replies or events of a group of writes, and the order in which their sockets are written.

use std::sync::Arc;

use crate::client::Peer;
use crate::slow_requests::SlowRequest;

/// Clients whose outboxes have new bytes.
#[derive(Debug, Default)]
pub(super) struct Recipients {
    /// Clients that wait for a reply.
    pub(super) answered: Vec<Arc<Peer>>,
    /// Clients that watch a changed node. There may be thousands of them.
    pub(super) watching: Vec<Arc<Peer>>,
    /// Requests among those answered that took long.
    pub(super) slow: Vec<SlowRequest>,
}

impl Recipients {
    /// Flushes all of their outboxes.
    pub(super) fn flush(&self) {
        for peer in self.in_order() {
            peer.outbox.flush();
        }
    }

    /// Replies first: a reply does not wait for thousands of events.
    fn in_order(&self) -> impl Iterator<Item = &Arc<Peer>> {
        self.answered.iter().chain(&self.watching)
    }
}

#[cfg(test)]
mod tests {
    use bellwether_testkit::Request;

    use crate::server::core::Core;
    use crate::writer::Publish as _;

    /// Many watchers and one writer: all events are queued, and the reply is written first.
    #[test]
    fn the_answer_to_a_write_is_written_before_the_events_of_its_watchers() {
        let mut core = Core::new();
        let writer = core.connect();
        core.write(&writer, vec![writer.request(&Request::create("/a", ""))]);
        let watchers: Vec<_> = (0..100).map(|_| core.connect()).collect();
        for watcher in &watchers {
            let get = watcher.request(&Request::get_data("/a").watching());
            assert!(core.published.read(&watcher.session, get));
        }
        let set = writer.request(&Request::set_data("/a", "new"));
        let submission = core.submission(&writer, set);
        let group = core.decide(vec![submission]);
        let (_, recipients) = core.published.make_visible(group);
        let order: Vec<u64> = recipients.in_order().map(|peer| peer.number).collect();
        assert_eq!(order[0], writer.peer.number);
        let mut rest = order[1..].to_vec();
        rest.sort_unstable();
        let expected: Vec<u64> = watchers.iter().map(|one| one.peer.number).collect();
        assert_eq!(rest, expected);
    }

    /// The caller drops the previous version. That `publish` returns it shows that freeing it, which takes long after many changes, does
    /// not happen under the lock.
    #[test]
    fn the_version_before_outlives_the_lock() {
        let mut core = Core::new();
        let client = core.connect();
        let zxid = core.published.last_zxid();
        let submission = core.submission(&client, client.request(&Request::create("/a", "")));
        let group = core.decide(vec![submission]);
        let before = core.published.publish(group);
        assert_eq!(before.last_zxid(), zxid);
        assert!(before.get("/a").is_none());
        assert!(core.published.tree().get("/a").is_some());
    }
}
