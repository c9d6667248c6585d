//! Queues when replies and requests are lost.

use bellwether::{Claim, Error, ErrorKind};
use bellwether_wire::op::Op;

use super::behind::{Behind, strings, text};
use crate::support::place::{Place, soon};

on_both_engines! {
    t65_lost_reply_to_an_acknowledgement_loses_nothing,
    t66_lost_reply_to_a_claim_is_still_our_claim,
    claim_in_doubt_is_looked_for_behind_a_sync,
    t73_lost_reply_to_a_put_leaves_one_item,
    t73_put_whose_session_died_too_is_unknown,
    acknowledgement_of_another_consumer_is_not_taken_for_the_own,
    end_of_another_claim_is_not_taken_for_that_of_the_own,
    acknowledgement_whose_receipt_was_deleted_is_unknown,
    lost_reply_to_giving_back_gives_back_once,
    lost_reply_to_forgetting_a_letter_is_made_up_for,
    lost_acknowledgement_from_outside_of_a_claim_that_ended_is_told_as_none,
    lost_request_is_sent_again,
}

async fn t65_lost_reply_to_an_acknowledgement_loses_nothing(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place).await;
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
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place).await;
    queue.put(&text("a")).await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    let claim = soon(queue.take()).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!((claim.payload().as_str(), claim.attempts()), ("a", 1));
    let name = place.children("/queue/claims").await.remove(0);
    let node = format!("/queue/claims/{name}");
    let stat = place.outside().exists(&node).await.unwrap().unwrap();
    assert_eq!(claim.token().number(), stat.czxid);
    claim.ack().await.unwrap();
    assert!(place.children("/queue/items").await.is_empty());
}

async fn claim_in_doubt_is_looked_for_behind_a_sync(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place).await;
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

/// Number of items after a put whose reply was lost.
async fn items_after_a_lost_reply(place: &Place) -> usize {
    let Behind { proxy, queue, .. } = Behind::a_proxy(place).await;
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
    assert_eq!(items_after_a_lost_reply(&place).await, 1);
    // One receipt at a time for all puts of a session.
    let behind = Behind::a_proxy(&place).await;
    for _ in 0..5 {
        behind.queue.put(&text("a")).await.unwrap();
    }
    let receipts = place.children("/queue/receipts").await;
    let session = format!("receipt-{:x}-", behind.client.session_id());
    let own = receipts.iter().filter(|name| name.starts_with(&session));
    assert_eq!(own.count(), 1, "{receipts:?}");
}

async fn t73_put_whose_session_died_too_is_unknown(place: Place) {
    let behind = Behind::a_proxy(&place).await;
    let lost = behind.proxy.swallow_reply(Op::Multi);
    let put = tokio::spawn({
        let queue = behind.queue.clone();
        async move { queue.put(&text("a")).await }
    });
    behind.proxy.refuse(true);
    lost.happened().await.unwrap();
    soon(behind.session.ended()).await;
    let unknown = soon(put).await.unwrap();
    assert_fails!(unknown, ErrorKind::OutcomeUnknown(_));
    assert_eq!(place.children("/queue/items").await.len(), 1);
}

/// An operator deletes the claim of the only item.
async fn delete_claim(place: &Place) {
    let name = place.children("/queue/claims").await.remove(0);
    let node = format!("/queue/claims/{name}");
    place.outside().delete(&node, None).await.unwrap();
}

/// A settle whose request is lost. Before it is sent again, an operator deletes the claim, and another consumer acknowledges the item.
async fn settled_too_late<F>(
    place: &Place,
    settle: impl FnOnce(Claim<String>) -> F,
) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let Behind { proxy, queue, .. } = Behind::a_proxy(place).await;
    queue.put(&text("a")).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    let lost = proxy.drop_request(Op::Multi);
    proxy.refuse(true);
    let settled = tokio::spawn(settle(claim));
    lost.happened().await.unwrap();
    delete_claim(place).await;
    let other = strings(place).await;
    let claim = soon(other.take()).await.unwrap();
    assert_eq!(claim.attempts(), 2);
    claim.ack().await.unwrap();
    proxy.refuse(false);
    soon(settled).await.unwrap()
}

async fn acknowledgement_of_another_consumer_is_not_taken_for_the_own(place: Place) {
    let settled = settled_too_late(&place, Claim::ack).await;
    assert_fails!(settled, ErrorKind::NotHeld);
}

async fn end_of_another_claim_is_not_taken_for_that_of_the_own(place: Place) {
    let give_back = async |claim: Claim<String>| claim.give_back("later").await;
    let given_back = settled_too_late(&place, give_back).await;
    assert_fails!(given_back, ErrorKind::NotHeld);
    let reject = async |claim: Claim<String>| claim.reject("never").await;
    let rejected = settled_too_late(&place, reject).await;
    assert_fails!(rejected, ErrorKind::NotHeld);
    assert_eq!(place.children("/queue/dead").await.len(), 0);
}

async fn acknowledgement_whose_receipt_was_deleted_is_unknown(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place).await;
    queue.put(&text("a")).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    proxy.refuse(true);
    let settled = tokio::spawn(claim.ack());
    lost.happened().await.unwrap();
    for receipt in place.children("/queue/receipts").await {
        let node = format!("/queue/receipts/{receipt}");
        place.outside().delete(&node, None).await.unwrap();
    }
    proxy.refuse(false);
    let settled = soon(settled).await.unwrap();
    assert_fails!(settled, ErrorKind::OutcomeUnknown(_));
}

async fn lost_reply_to_giving_back_gives_back_once(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place).await;
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
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place).await;
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
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place).await;
    let holder = strings(&place).await;
    holder.put(&text("a")).await.unwrap();
    let _claim = soon(holder.take()).await.unwrap();
    let listed = queue.list().await.unwrap().remove(0);
    delete_claim(&place).await;
    let lost = proxy.drop_request(Op::Multi);
    assert!(!soon(queue.ack_claimed(&listed)).await.unwrap());
    lost.happened().await.unwrap();
    assert_eq!(place.children("/queue/items").await.len(), 1);
}

async fn lost_request_is_sent_again(place: Place) {
    let Behind { proxy, queue, .. } = Behind::a_proxy(&place).await;
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
