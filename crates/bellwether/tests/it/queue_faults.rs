//! Queues when connections fail and sessions end.

use std::time::Duration;

use bellwether::blocking::Wait;
use bellwether::{
    Client, PriorityQueue, PutError, Queue, Sabotage, SettleError, TakeError, connect,
};
use bellwether_server::proto::op::Op;
use bellwether_testkit::{Cut, FaultProxy, TestServer};
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::sync::oneshot;

use crate::place::{Place, soon};

on_both_engines! {
    t65_lost_reply_to_an_acknowledgement_loses_nothing,
    t66_lost_reply_to_a_claim_is_still_our_claim,
    claim_in_doubt_is_looked_for_behind_a_sync,
    t67_stale_acknowledgement_is_refused,
    t67_acknowledging_any_version_would_be_noticed,
    t68_polls_of_an_empty_queue_leave_no_watches,
    t71_consumer_goes_on_after_its_session_and_says_so,
    t72_put_that_fails_says_so,
    t73_lost_reply_to_a_put_leaves_one_item,
    t73_retrying_blindly_would_be_noticed,
    t73_put_whose_session_died_too_is_unknown,
    lost_reply_to_giving_back_gives_back_once,
    lost_reply_to_forgetting_a_letter_is_made_up_for,
    lost_acknowledgement_from_outside_of_a_claim_that_ended_is_told_as_none,
    lost_request_is_sent_again,
    dropped_take_leaves_nothing_claimed,
    take_dropped_between_its_claim_and_what_it_reads_ahead_leaves_nothing_claimed,
    vanished_directories_are_made_anew,
}

/// A session whose connection goes through a proxy, and a queue whose directories are made.
struct Behind {
    proxy: FaultProxy,
    client: Client,
    queue: Queue<String>,
}

impl Behind {
    async fn a_proxy(place: &Place, sabotage: Option<Sabotage>) -> Self {
        let proxy = FaultProxy::start(place.server()).await.unwrap();
        let address = format!("{}{}", proxy.connect_string(), place.chroot());
        let mut options = connect(address).session_timeout(Duration::from_secs(2));
        if let Some(sabotage) = sabotage {
            options = options.sabotage(sabotage);
        }
        let client = options.await.unwrap();
        let queue = Queue::new(&client, "/queue").payload::<String>();
        queue.put(&text("warm-up")).await.unwrap();
        soon(queue.take()).await.unwrap().ack().await.unwrap();
        Self {
            proxy,
            client,
            queue,
        }
    }
}

async fn strings(place: &Place) -> Queue<String> {
    Queue::new(&place.client().await, "/queue").payload()
}

fn text(text: &str) -> String {
    text.to_owned()
}

async fn t65_lost_reply_to_an_acknowledgement_loses_nothing(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place, None).await;
    queue.put_all(&[text("a"), text("b")]).await.unwrap();
    let a = soon(queue.take()).await.unwrap();
    assert_eq!(a.payload(), "a");
    let lost = proxy.swallow_reply(Op::Multi);
    soon(a.ack()).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(place.children("/queue/items").await.len(), 1);
    let b = soon(queue.take()).await.unwrap();
    assert_eq!(b.payload(), "b");
    b.ack().await.unwrap();
}

async fn t66_lost_reply_to_a_claim_is_still_our_claim(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place, None).await;
    queue.put(&text("a")).await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    let claim = soon(queue.take()).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!((claim.payload().as_str(), claim.attempts()), ("a", 1));
    let name = place.children("/queue/claims").await.remove(0);
    let node = format!("/queue/claims/{name}");
    let stat = place.outside().exists(&node).await.unwrap().unwrap();
    assert_eq!(claim.token(), stat.czxid);
    claim.ack().await.unwrap();
    assert!(place.children("/queue/items").await.is_empty());
}

async fn claim_in_doubt_is_looked_for_behind_a_sync(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place, None).await;
    queue.put(&text("a")).await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    let (tell, mut seen) = tokio::sync::mpsc::unbounded_channel();
    let _never = proxy.drop_request_where(move |request| {
        if request
            .path()
            .is_some_and(|path| path.contains("/claims/item-"))
        {
            let _ = tell.send(request.op);
        }
        false
    });
    let claim = soon(queue.take()).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(seen.recv().await, Some(Op::Sync));
    assert_eq!(seen.recv().await, Some(Op::GetData));
    claim.ack().await.unwrap();
}

async fn t67_stale_acknowledgement_is_refused(place: Place) {
    let behind = Behind::a_proxy(&place, None).await;
    behind.queue.put(&text("a")).await.unwrap();
    let stale = soon(behind.queue.take()).await.unwrap();
    // Its session ends while it cannot know.
    behind.proxy.refuse(true);
    behind.proxy.cut(Cut::Close).await;
    let other = strings(&place).await;
    let claim = soon(other.take()).await.unwrap();
    assert_eq!((claim.payload().as_str(), claim.attempts()), ("a", 2));
    assert!(claim.token() > stale.token());
    assert!(!stale.is_held(), "two hold it");
    behind.proxy.refuse(false);
    let refused = soon(stale.ack()).await;
    assert!(
        matches!(refused, Err(SettleError::SessionEnded { .. })),
        "{refused:?}"
    );
    assert_eq!(place.children("/queue/items").await.len(), 1);
    claim.ack().await.unwrap();
}

/// Another hand ends a claim, somebody else takes the item, and the first one acknowledges: whether that went through.
async fn stale_acknowledgement(place: &Place, sabotage: Option<Sabotage>) -> bool {
    let Behind {
        proxy: _proxy,
        queue,
        ..
    } = Behind::a_proxy(place, sabotage).await;
    queue.put(&text("a")).await.unwrap();
    let stale = soon(queue.take()).await.unwrap();
    let name = place.children("/queue/claims").await.remove(0);
    let node = format!("/queue/claims/{name}");
    place.outside().delete(&node, None).await.unwrap();
    let claim = soon(strings(place).await.take()).await.unwrap();
    let acknowledged = soon(stale.ack()).await.is_ok();
    let gone = place.children("/queue/items").await.is_empty();
    assert_eq!(acknowledged, gone);
    assert_eq!(claim.ack().await.is_err(), gone);
    gone
}

async fn t67_acknowledging_any_version_would_be_noticed(place: Place) {
    assert!(!stale_acknowledgement(&place, None).await);
    assert!(stale_acknowledgement(&place, Some(Sabotage::SettleAnyVersion)).await);
}

async fn t71_consumer_goes_on_after_its_session_and_says_so(place: Place) {
    let behind = Behind::a_proxy(&place, None).await;
    let mut consumer = behind.queue.consumer();
    behind.queue.put(&text("a")).await.unwrap();
    let claim = soon(consumer.next()).await.unwrap().unwrap();
    assert_eq!(claim.payload(), "a");
    // Cut off for longer than the session lives.
    behind.proxy.refuse(true);
    behind.proxy.cut(Cut::Close).await;
    place.until_children("/queue/claims", 0).await;
    let told = tokio::spawn(async move {
        let told = consumer.next().await;
        (told, consumer)
    });
    soon(behind.client.ended()).await;
    behind.proxy.refuse(false);
    let (told, mut consumer) = soon(told).await.unwrap();
    assert!(
        matches!(told, Some(Err(TakeError::SessionEnded { .. }))),
        "{told:?}"
    );
    assert!(!claim.is_held());
    let again = soon(consumer.next()).await.unwrap().unwrap();
    assert_eq!((again.payload().as_str(), again.attempts()), ("a", 2));
    again.ack().await.unwrap();
    // While it waits in line, too.
    let waiter = tokio::spawn(async move { consumer.next().await });
    place.until_children("/queue/line", 1).await;
    strings(&place).await.put(&text("b")).await.unwrap();
    let claim = soon(waiter).await.unwrap().unwrap().unwrap();
    assert_eq!(claim.payload(), "b");
    claim.ack().await.unwrap();
}

async fn t72_put_that_fails_says_so(place: Place) {
    let behind = Behind::a_proxy(&place, None).await;
    behind.proxy.refuse(true);
    behind.proxy.cut(Cut::Close).await;
    soon(behind.client.ended()).await;
    let refused = soon(behind.queue.put(&text("a"))).await;
    assert!(
        matches!(refused, Err(PutError::SessionEnded { .. })),
        "{refused:?}"
    );
    assert!(place.children("/queue/items").await.is_empty());
}

/// How many items there are after a put whose reply was lost.
async fn items_after_a_lost_reply(place: &Place, sabotage: Option<Sabotage>) -> usize {
    let Behind { proxy, queue, .. } = Behind::a_proxy(place, sabotage).await;
    let lost = proxy.swallow_reply(Op::Multi);
    let id = soon(queue.put(&text("a"))).await.unwrap();
    lost.happened().await.unwrap();
    let mut items = 0;
    while let Some(claim) = queue.try_take().await.unwrap() {
        assert_eq!(claim.id(), id);
        claim.ack().await.unwrap();
        items += 1;
    }
    items
}

async fn t73_lost_reply_to_a_put_leaves_one_item(place: Place) {
    assert_eq!(items_after_a_lost_reply(&place, None).await, 1);
    // One receipt for all puts of a session, one after the other.
    let behind = Behind::a_proxy(&place, None).await;
    for _ in 0..5 {
        behind.queue.put(&text("a")).await.unwrap();
    }
    let receipts = place.children("/queue/receipts").await;
    let session = format!("receipt-{:x}-", behind.client.session_id());
    let own = receipts.iter().filter(|name| name.starts_with(&session));
    assert_eq!(own.count(), 1, "{receipts:?}");
}

async fn t73_retrying_blindly_would_be_noticed(place: Place) {
    let sabotage = Some(Sabotage::RetryBlindly);
    assert_eq!(items_after_a_lost_reply(&place, sabotage).await, 2);
}

async fn t73_put_whose_session_died_too_is_unknown(place: Place) {
    let behind = Behind::a_proxy(&place, None).await;
    let lost = behind.proxy.swallow_reply(Op::Multi);
    let put = tokio::spawn({
        let queue = behind.queue.clone();
        async move { queue.put(&text("a")).await }
    });
    behind.proxy.refuse(true);
    lost.happened().await.unwrap();
    soon(behind.client.ended()).await;
    let unknown = soon(put).await.unwrap();
    assert!(
        matches!(unknown, Err(PutError::OutcomeUnknown { .. })),
        "{unknown:?}"
    );
    assert_eq!(place.children("/queue/items").await.len(), 1);
}

async fn lost_reply_to_giving_back_gives_back_once(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place, None).await;
    queue.put(&text("a")).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    soon(claim.give_back("again")).await.unwrap();
    lost.happened().await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!(claim.attempts(), 2);
    let lost = proxy.swallow_reply(Op::Multi);
    soon(claim.reject("no")).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(queue.dead_letters().await.unwrap().len(), 1);
    assert!(queue.try_take().await.unwrap().is_none());
}

async fn lost_reply_to_forgetting_a_letter_is_made_up_for(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place, None).await;
    queue.put(&text("a")).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    claim.reject("no").await.unwrap();
    let letter = queue.dead_letters().await.unwrap().remove(0);
    let lost = proxy.swallow_reply(Op::Delete);
    assert!(soon(queue.forget(&letter)).await.unwrap());
    lost.happened().await.unwrap();
    assert!(!queue.forget(&letter).await.unwrap());
}

async fn lost_acknowledgement_from_outside_of_a_claim_that_ended_is_told_as_none(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place, None).await;
    let holder = strings(&place).await;
    holder.put(&text("a")).await.unwrap();
    let _claim = soon(holder.take()).await.unwrap();
    let listed = queue.list().await.unwrap().remove(0);
    let name = place.children("/queue/claims").await.remove(0);
    let node = format!("/queue/claims/{name}");
    place.outside().delete(&node, None).await.unwrap();
    let lost = proxy.drop_request(Op::Multi);
    assert!(!soon(queue.ack_claimed(&listed)).await.unwrap());
    lost.happened().await.unwrap();
    assert_eq!(place.children("/queue/items").await.len(), 1);
}

async fn lost_request_is_sent_again(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place, None).await;
    for _ in 0..3 {
        let lost = proxy.drop_request(Op::Multi);
        soon(queue.put(&text("a"))).await.unwrap();
        lost.happened().await.unwrap();
        let lost = proxy.drop_request(Op::Multi);
        let claim = soon(queue.take()).await.unwrap();
        lost.happened().await.unwrap();
        assert_eq!(claim.attempts(), 1);
        let lost = proxy.drop_request(Op::Multi);
        soon(claim.ack()).await.unwrap();
        lost.happened().await.unwrap();
        assert!(place.children("/queue/items").await.is_empty());
    }
}

async fn dropped_take_leaves_nothing_claimed(place: Place) {
    let behind = Behind::a_proxy(&place, None).await;
    // In line.
    let waiter = tokio::spawn({
        let queue = behind.queue.clone();
        async move { queue.take().await }
    });
    place.until_children("/queue/line", 1).await;
    waiter.abort();
    place.until_children("/queue/line", 0).await;
    // With the claim made, and its reply held back.
    behind.queue.put(&text("a")).await.unwrap();
    behind.queue.peek().await.unwrap().unwrap();
    let lost = behind.proxy.swallow_reply(Op::Multi);
    let waiter = tokio::spawn({
        let queue = behind.queue.clone();
        async move { queue.take().await }
    });
    behind.proxy.refuse(true);
    lost.happened().await.unwrap();
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    behind.proxy.refuse(false);
    place.until_children("/queue/claims", 0).await;
    let claim = soon(behind.queue.take()).await.unwrap();
    assert_eq!(claim.payload(), "a");
    claim.ack().await.unwrap();
}

async fn take_dropped_between_its_claim_and_what_it_reads_ahead_leaves_nothing_claimed(
    place: Place,
) {
    let (proxy, client) = place.proxied(Duration::from_secs(10)).await;
    let queue = PriorityQueue::new(&client, "/queue");
    queue.put_all(&vec![(1, Vec::new()); 2]).await.unwrap();
    soon(queue.take()).await.unwrap().ack().await.unwrap();
    // The claim is answered; what was read behind it is not.
    let lost = proxy.swallow_reply(Op::MultiRead);
    proxy.refuse(true);
    let waiter = tokio::spawn({
        let queue = queue.clone();
        async move { queue.take().await }
    });
    lost.happened().await.unwrap();
    assert_eq!(place.children("/queue/claims").await.len(), 1);
    waiter.abort();
    assert!(waiter.await.unwrap_err().is_cancelled());
    proxy.refuse(false);
    place.until_children("/queue/claims", 0).await;
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!(claim.attempts(), 2);
    claim.ack().await.unwrap();
}

async fn vanished_directories_are_made_anew(place: Place) {
    let queue = strings(&place).await;
    for name in ["a", "b"] {
        queue.put(&text(name)).await.unwrap();
        let claim = soon(queue.take()).await.unwrap();
        assert_eq!(claim.payload(), name);
        claim.ack().await.unwrap();
        let waiter = tokio::spawn({
            let queue = queue.clone();
            async move { queue.take().await }
        });
        place.until_children("/queue/line", 1).await;
        for dir in ["items", "claims"] {
            let dir = format!("/queue/{dir}");
            place.outside().delete(&dir, None).await.unwrap();
        }
        queue.put(&text("woken")).await.unwrap();
        let claim = soon(waiter).await.unwrap().unwrap();
        assert_eq!(claim.payload(), "woken");
        claim.ack().await.unwrap();
    }
}

async fn t68_polls_of_an_empty_queue_leave_no_watches(place: Place) {
    let client = place.client().await;
    let queue = Queue::new(&client, "/queue");
    for _ in 0..100 {
        let polls = (0..100).map(|_| Box::pin(queue.try_take()));
        for taken in soon(join_all(polls)).await {
            assert!(taken.unwrap().is_none());
        }
    }
    assert_eq!(place.watches().await, 0);
    // These wait, and so they watch.
    for _ in 0..100 {
        let late = queue.take_timeout(Duration::from_millis(2)).await;
        assert!(matches!(late, Err(TakeError::TimedOut { .. })), "{late:?}");
    }
    place.until_no_watches().await;
    // Still in the same session.
    queue.put(&Vec::new()).await.unwrap();
    soon(queue.take()).await.unwrap().ack().await.unwrap();
}

#[tokio::test]
async fn t77_directory_that_is_larger_than_a_frame_is_drained() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    let queue = Queue::new(&client, "/queue").depth_max(100_000);
    let batch = vec![Vec::new(); 1000];
    // A list of so many names is larger than the 1 MiB that other clients take.
    for _ in 0..32 {
        queue.put_all(&batch).await.unwrap();
    }
    let consumer = Queue::new(&client, "/queue");
    for _ in 0..100 {
        soon(consumer.take()).await.unwrap().ack().await.unwrap();
    }
    let refused = Queue::new(&client, "/queue").put(&Vec::new()).await;
    assert!(
        matches!(refused, Err(PutError::Full { depth: 31_900, .. })),
        "{refused:?}"
    );
}

#[tokio::test]
async fn put_near_the_end_of_the_sequence_is_refused() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).await.unwrap();
    // Each put looks when there is no room to spare.
    let queue = Queue::new(&client, "/queue").depth_max(5);
    queue.put(&Vec::new()).await.unwrap();
    for counter in [i32::MAX - 1_000_000, i32::MAX - 1] {
        let items = "/queue/items";
        server.set_child_counter(items, counter).await.unwrap();
        let refused = soon(queue.put(&Vec::new())).await;
        assert!(
            matches!(refused, Err(PutError::SequenceUsedUp { .. })),
            "{counter}: {refused:?}"
        );
    }
    let below = i32::MAX - 1_000_001;
    let items = "/queue/items";
    server.set_child_counter(items, below).await.unwrap();
    queue.put(&Vec::new()).await.unwrap();
}

/// One who takes waits for another take of the handle, which nobody polls meanwhile.
#[tokio::test]
async fn takes_go_on_by_themselves_on_the_runtime_of_the_caller() {
    let server = TestServer::start().await.unwrap();
    let client = connect(server.connect_string()).on_current_runtime();
    let client = client.await.unwrap();
    let queue = Queue::new(&client, "/queue");
    for _ in 0..2 {
        queue.put(&Vec::new()).await.unwrap();
    }
    let mut first = Box::pin(queue.take());
    assert!(futures_util::poll!(&mut first).is_pending());
    let second = soon(queue.try_take()).await.unwrap();
    second.expect("there are two").ack().await.unwrap();
    soon(first).await.unwrap().ack().await.unwrap();
}

/// A plain thread outlives the runtime that carries its session.
#[tokio::test(flavor = "multi_thread")]
async fn take_ends_with_the_runtime_of_its_session() {
    let place = Place::embedded().await;
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let address = format!("{}{}", place.server(), place.chroot());
    let connected = runtime.spawn(async { connect(address).on_current_runtime().await });
    let queue = Queue::new(&connected.await.unwrap().unwrap(), "/queue");
    let take = || {
        let (queue, (tell, taken)) = (queue.clone(), oneshot::channel());
        std::thread::spawn(move || tell.send(queue.take().wait().map(drop)));
        taken
    };
    let taken = take();
    place.until_children("/queue/line", 1).await;
    runtime.shutdown_background();
    // One that waited, and one that comes later.
    for taken in [taken, take()] {
        let taken = soon(taken).await.unwrap();
        assert!(
            matches!(taken, Err(TakeError::SessionEnded { .. })),
            "{taken:?}"
        );
    }
}
