//! Items that fail repeatedly.

use bellwether::{ErrorKind, Queue, Tasks};

use super::{drain, strings, text};
use crate::support::place::{Place, SESSION_TIMEOUT, kill, soon};

on_both_engines! {
    t74_poison_becomes_a_dead_letter,
    t74_item_of_consumers_that_die_becomes_a_dead_letter,
    t74_unreadable_item_becomes_a_dead_letter,
    dead_letters_can_be_put_back_and_forgotten,
    letter_that_two_put_back_at_once_comes_back_once,
    letter_is_not_put_back_at_a_bad_path,
}

async fn t74_poison_becomes_a_dead_letter(place: Place) {
    let queue = strings(&place).await.attempts_max(3);
    let id = queue.put(&text("poison")).await.unwrap();
    for attempt in 1..=3 {
        let claim = soon(queue.take()).await.unwrap();
        assert_eq!(claim.attempts(), attempt);
        claim.give_back(&format!("failed {attempt}")).await.unwrap();
    }
    assert!(queue.try_take().await.unwrap().is_none());
    let letters = queue.dead_letters().await.unwrap();
    let [letter] = letters.as_slice() else {
        panic!("{letters:?}");
    };
    assert_eq!(letter.id, id);
    assert_eq!(letter.payload, b"poison");
    assert_eq!((letter.attempts, letter.reason.as_str()), (3, "failed 3"));
    assert!(place.children("/queue/items").await.is_empty());
}

async fn t74_item_of_consumers_that_die_becomes_a_dead_letter(place: Place) {
    let producer = strings(&place).await;
    producer.put(&text("deadly")).await.unwrap();
    let mut dead = Vec::new();
    for attempt in 1..=2 {
        let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
        let queue = Queue::<Vec<u8>>::new(&client, "/queue").attempts_max(2);
        let claim = soon(queue.take()).await.unwrap();
        assert_eq!(claim.attempts(), attempt);
        kill(&proxy).await;
        dead.push((proxy, claim));
    }
    place.until_children("/queue/claims", 0).await;
    let queue = strings(&place).await.attempts_max(2);
    assert!(queue.try_take().await.unwrap().is_none());
    let letters = queue.dead_letters().await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].attempts, 2);
    assert!(letters[0].reason.contains("died"), "{}", letters[0].reason);
}

async fn t74_unreadable_item_becomes_a_dead_letter(place: Place) {
    let bytes = Queue::<Vec<u8>>::new(&place.client().await, "/queue");
    bytes.put(&vec![0xff]).await.unwrap();
    bytes.put(&b"good".to_vec()).await.unwrap();
    let queue = strings(&place).await;
    assert_eq!(drain(&queue).await, ["good"]);
    let letters = queue.dead_letters().await.unwrap();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].payload, [0xff]);
    assert!(letters[0].reason.starts_with("cannot be decoded"));
}

async fn dead_letters_can_be_put_back_and_forgotten(place: Place) {
    let queue = strings(&place).await;
    queue.put_all(&[text("a"), text("b")]).await.unwrap();
    for _ in 0..2 {
        let claim = soon(queue.take()).await.unwrap();
        claim.reject("no").await.unwrap();
    }
    let letters = queue.dead_letters().await.unwrap();
    let payloads: Vec<_> = letters
        .iter()
        .map(|letter| letter.payload.clone())
        .collect();
    assert_eq!(payloads, [b"a", b"b"]);
    assert!(queue.forget(&letters[0]).await.unwrap());
    assert!(!queue.forget(&letters[0]).await.unwrap());
    assert!(queue.revive(&letters[1]).await.unwrap());
    assert!(!queue.revive(&letters[1]).await.unwrap());
    assert!(queue.dead_letters().await.unwrap().is_empty());
    let claim = soon(queue.take()).await.unwrap();
    assert_eq!((claim.payload().as_str(), claim.attempts()), ("b", 1));
    assert_eq!(claim.id(), letters[1].id);
    claim.ack().await.unwrap();
}

async fn letter_that_two_put_back_at_once_comes_back_once(place: Place) {
    let queue = strings(&place).await;
    for round in 0..10 {
        queue.put(&text("a")).await.unwrap();
        let claim = soon(queue.take()).await.unwrap();
        claim.reject("no").await.unwrap();
        let letter = queue.dead_letters().await.unwrap().remove(0);
        let both = async { tokio::join!(queue.revive(&letter), queue.revive(&letter)) };
        let (one, other) = soon(both).await;
        assert!(one.unwrap() != other.unwrap(), "round {round}");
        assert_eq!(drain(&queue).await, ["a"]);
    }
}

async fn letter_is_not_put_back_at_a_bad_path(place: Place) {
    let client = place.client().await;
    let queue = strings(&place).await;
    queue.put(&text("a")).await.unwrap();
    let claim = soon(queue.take()).await.unwrap();
    claim.reject("no").await.unwrap();
    let letter = queue.dead_letters().await.unwrap().remove(0);
    let refused = Queue::<Vec<u8>>::new(&client, "/a//b")
        .revive(&letter)
        .await;
    assert_fails!(refused, ErrorKind::BadPath(_));
    let refused = Tasks::<Vec<u8>>::new(&client, "/a//b").retry(&letter).await;
    assert_fails!(refused, ErrorKind::BadPath(_));
}
