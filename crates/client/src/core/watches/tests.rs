//! What handles, requests and events do to the tables of watches.

use futures_util::FutureExt as _;

use super::*;
use crate::core::events::{EventReceiver, event_queue};

fn one_shot() -> (Listener, oneshot::Receiver<Event>) {
    let (sender, receiver) = oneshot::channel();
    (Listener::OneShot(sender), receiver)
}

fn stream() -> (Listener, EventReceiver) {
    let (sender, receiver) = event_queue(10);
    (Listener::Stream(sender), receiver)
}

fn event(kind: EventKind, path: &str) -> Event {
    Event {
        kind,
        path: path.to_owned(),
    }
}

fn arm(watches: &mut Watches, kind: Kind, path: &str, listener: Listener) -> u64 {
    let arming = watches.begin(kind, path, listener);
    let id = arming.id;
    assert_eq!(watches.armed(arming, false), None);
    id
}

#[test]
fn the_last_dropped_handle_removes_the_watch() {
    let mut watches = Watches::default();
    let (first, _first) = one_shot();
    let (second, _second) = one_shot();
    let first = arm(&mut watches, Kind::Data, "/a", first);
    let second = arm(&mut watches, Kind::Data, "/a", second);
    assert_eq!(watches.dropped(Kind::Data, "/a", first), None);
    let removal = watches.dropped(Kind::Data, "/a", second).unwrap();
    assert_eq!((removal.kind, removal.path.as_str()), (Kind::Data, "/a"));
}

#[test]
fn a_request_under_way_keeps_the_watch_that_it_arms() {
    let mut watches = Watches::default();
    let (first, _first) = one_shot();
    let first = arm(&mut watches, Kind::Child, "/a", first);
    let (second, second_end) = one_shot();
    let arming = watches.begin(Kind::Child, "/a", second);
    assert_eq!(watches.dropped(Kind::Child, "/a", first), None);
    // Its caller has given up too, so the answer has no receiver.
    drop(second_end);
    assert!(watches.armed(arming, false).is_some());
}

#[test]
fn an_event_uses_up_one_shot_watches_and_no_persistent_ones() {
    let mut watches = Watches::default();
    let (data, mut data_end) = one_shot();
    let (child, mut child_end) = one_shot();
    let (recursive, mut recursive_end) = stream();
    arm(&mut watches, Kind::Data, "/a/b", data);
    arm(&mut watches, Kind::Child, "/a/b", child);
    arm(&mut watches, Kind::Recursive, "/a", recursive);
    for (listener, event) in watches.fire(&event(EventKind::NodeDeleted, "/a/b")).0 {
        deliver(listener, event);
    }
    assert!(data_end.try_recv().is_ok() && child_end.try_recv().is_ok());
    assert!(recursive_end.recv().now_or_never().is_some());
    let (lists, _) = watches.rearm();
    assert_eq!(
        lists,
        [vec![], vec![], vec![], vec![], vec!["/a".to_owned()]]
    );
}

#[test]
fn a_persistent_watch_is_kept_for_the_one_shot_handles_at_its_path() {
    let mut watches = Watches::default();
    let (listener, _persistent) = stream();
    let arming = watches.begin(Kind::Persistent, "/a", listener);
    assert!(!watches.is_covered(Kind::Data, "/a"));
    watches.sent(&arming);
    assert!(watches.is_covered(Kind::Data, "/a") && watches.is_covered(Kind::Child, "/a"));
    let persistent = arming.id;
    watches.armed(arming, false);
    let (data, _data) = one_shot();
    let (child, _child) = one_shot();
    arm(&mut watches, Kind::Data, "/a", data);
    let child = arm(&mut watches, Kind::Child, "/a", child);
    assert_eq!(watches.dropped(Kind::Persistent, "/a", persistent), None);
    assert!(watches.is_covered(Kind::Child, "/a"));
    assert!(watches.has_other_mode(Kind::Recursive, "/a"));
    let (_, removal) = watches.fire(&event(EventKind::NodeDataChanged, "/a"));
    assert_eq!(removal, None);
    let removal = watches.dropped(Kind::Child, "/a", child).unwrap();
    assert_eq!(removal.kind, Kind::Persistent);
    assert!(!watches.is_covered(Kind::Data, "/a"));
}

#[test]
fn a_dropped_one_shot_handle_does_not_take_a_persistent_watch_along() {
    let mut watches = Watches::default();
    let (persistent, _persistent) = stream();
    let (data, _data) = one_shot();
    arm(&mut watches, Kind::Persistent, "/a", persistent);
    let id = arm(&mut watches, Kind::Data, "/a", data);
    assert_eq!(watches.dropped(Kind::Data, "/a", id), None);
}

#[test]
fn exists_on_a_missing_node_is_armed_again_for_its_creation() {
    let mut watches = Watches::default();
    let (listener, _end) = one_shot();
    let arming = watches.begin(Kind::Data, "/a", listener);
    watches.armed(arming, true);
    assert_eq!(watches.rearm().0[1], ["/a"]);
}

#[test]
fn lists_are_split_by_the_bytes_of_their_paths() {
    let path = |n: usize| format!("/{n:095}");
    let lists = [
        (0..10).map(path).collect(),
        vec![],
        (10..15).map(path).collect(),
        vec![],
        vec![path(15)],
    ];
    let parts = in_parts(lists.clone(), 350);
    assert!(parts.iter().all(|part| {
        let paths: Vec<_> = part.iter().flatten().collect();
        !paths.is_empty() && paths.len() <= 3
    }));
    for index in 0..5 {
        let joined: Vec<_> = parts.iter().flat_map(|part| part[index].clone()).collect();
        assert_eq!(joined, lists[index]);
    }
}

fn deliver(listener: Listener, event: PersistentEvent) {
    match (listener, event) {
        (Listener::OneShot(sender), PersistentEvent::Node(event)) => {
            sender.send(event).unwrap();
        }
        (Listener::OneShot(_), PersistentEvent::Missed) => unreachable!(),
        (Listener::Stream(sender), event) => sender.send(event),
    }
}
