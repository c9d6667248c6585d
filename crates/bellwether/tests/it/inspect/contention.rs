//! Lines seen from outside: contenders, requests to release, breaking, and deadlocks.

use std::time::Duration;

use bellwether::hold::Previous;
use bellwether::inspect::{Contention, Ending, Survey, Wants};
use bellwether::line::Layout;
use bellwether::{Lock, RwLock, Semaphore, SimpleLock};
use bellwether_testkit::Cut;

use futures_util::StreamExt;

use crate::support::place::{Place, soon};

on_both_engines! {
    t40_revocation_keeps_the_payload_and_comes_before_or_after_the_grant,
    requests_come_one_after_the_other,
    three_forms_of_a_request_reach_every_kind_of_hold,
    line_tells_who_holds_and_who_waits,
    semaphore_line_counts_permits,
    lines_of_other_libraries_are_read,
    holder_that_lets_go_in_time_is_not_broken,
    broken_holder_hears_and_the_record_tells_who_did_it,
    simple_lock_in_the_root_is_broken_as_well,
    next_holder_of_the_same_name_is_not_broken,
    holder_of_the_same_name_is_not_broken_after_an_outage,
    circle_of_waiting_is_found_by_owner,
    tasks_of_one_session_without_names_are_no_circle_in_one_line,
}

const PATH: &str = "/line";

async fn contention(place: &Place) -> Contention {
    Contention::new(&place.client().await, PATH)
}

async fn t40_revocation_keeps_the_payload_and_comes_before_or_after_the_grant(place: Place) {
    let first = Lock::new(&place.client().await, PATH).message("first");
    let first = first.acquire().await.unwrap();
    let lock = Lock::new(&place.client().await, PATH).message("second");
    let second = tokio::spawn(async move { lock.acquire().await });
    place.until_children(PATH, 2).await;
    let outside = contention(&place).await.message("please");
    for entry in outside.line().await.unwrap() {
        assert!(outside.revoke(&entry.node, entry.token).await.unwrap());
    }
    let line = outside.line().await.unwrap();
    let messages = line.iter().map(|one| one.who.as_ref()?.message.as_deref());
    assert_eq!(
        messages.collect::<Vec<_>>(),
        [Some("first"), Some("second")],
        "the payload is intact"
    );
    assert!(line.iter().all(|one| one.revocation.is_some()));
    let asked = soon(first.revoked()).await;
    assert_eq!(asked.message.as_deref(), Some("please"));
    assert!(asked.by.is_some() && asked.grace().is_none());
    assert!(first.is_held(), "it was only asked");
    first.release().await.unwrap();
    let second = soon(second).await.unwrap().unwrap();
    let asked = soon(second.revoked()).await;
    assert_eq!(asked.message.as_deref(), Some("please"));
    assert!(second.revocation().is_some());
    second.release().await.unwrap();
}

async fn requests_come_one_after_the_other(place: Place) {
    let guard = Lock::new(&place.client().await, PATH);
    let guard = guard.acquire().await.unwrap();
    let outside = contention(&place).await;
    let mut requests = guard.revocations();
    // First a request to release, then a break.
    let (node, token) = (guard.node().to_owned(), guard.token());
    assert!(outside.revoke(&node, token).await.unwrap());
    assert_eq!(soon(requests.next()).await.unwrap().grace(), None);
    let grace = Duration::from_secs(60);
    let breaking = outside.break_hold(&node, token, grace);
    let letting_go = async {
        let asked = requests.next().await.unwrap();
        assert_eq!(asked.grace(), Some(grace));
        // A listener that starts now gets the last request.
        assert_eq!(guard.revocations().next().await, Some(asked));
        guard.release().await.unwrap();
        assert_eq!(requests.next().await, None, "it ends with the hold");
    };
    let (ending, ()) = soon(async { tokio::join!(breaking, letting_go) }).await;
    assert_eq!(ending.unwrap(), Ending::LetGo);
}

async fn three_forms_of_a_request_reach_every_kind_of_hold(place: Place) {
    let client = place.client().await;
    for form in [None, Some("unlock"), Some("__REVOKE__")] {
        let lock = Lock::new(&client, "/forms/lock").acquire().await.unwrap();
        let rwlock = RwLock::new(&client, "/forms/shared");
        let writing = rwlock.write().await.unwrap();
        let permit = Semaphore::new(&client, "/forms/permits", 1);
        let permit = permit.acquire().await.unwrap();
        for hold in [&*lock, &*writing, &*permit] {
            match form {
                None => {
                    let line = Contention::new(&client, hold.path());
                    assert!(line.revoke(hold.node(), hold.token()).await.unwrap());
                }
                Some(form) => {
                    let node = format!("{}/{}", hold.path(), hold.node());
                    let set = place.outside().set(&node, form.as_bytes(), None);
                    set.await.unwrap();
                }
            }
            let asked = soon(hold.revoked()).await;
            assert_eq!(asked.by.is_some(), form.is_none(), "{form:?}");
            assert!(hold.is_held());
        }
        // A downgrade keeps the request to release.
        let reading = writing.downgrade().await.unwrap();
        let line = Contention::new(&client, "/forms/shared")
            .line()
            .await
            .unwrap();
        assert!(line[0].is_downgraded && line[0].revocation.is_some());
        reading.release().await.unwrap();
        let reading = rwlock.read().await.unwrap();
        assert!(reading.revocation().is_none());
        reading.release().await.unwrap();
        lock.release().await.unwrap();
        permit.release().await.unwrap();
    }
}

async fn line_tells_who_holds_and_who_waits(place: Place) {
    let client = place.client().await;
    let named = |name: &str| RwLock::new(&client, PATH).owner(name).message(name);
    let one = named("one").read().await.unwrap();
    let two = named("two").read().await.unwrap();
    let three = named("three");
    let three = tokio::spawn(async move { three.write().await });
    place.until_children(PATH, 3).await;
    let four = named("four");
    let four = tokio::spawn(async move { four.read().await });
    place.until_children(PATH, 4).await;
    let line = contention(&place).await.line().await.unwrap();
    let told = line.iter().map(|one| (one.owner(), one.wants, one.holds));
    let expected = [
        ("one", Wants::Read, true),
        ("two", Wants::Read, true),
        ("three", Wants::Write, false),
        ("four", Wants::Read, false),
    ];
    let expected = expected.map(|(owner, wants, standing)| (owner.to_owned(), wants, standing));
    assert_eq!(told.collect::<Vec<_>>(), expected);
    assert_eq!(line[0].token, one.token());
    assert_eq!(line[1].node, two.node());
    for (place, one) in line.iter().enumerate() {
        assert_eq!((one.place, one.session), (place, client.session_id()));
        assert!(one.since.elapsed().unwrap() < Duration::from_secs(60));
    }
    three.abort();
    one.release().await.unwrap();
    two.release().await.unwrap();
    soon(four).await.unwrap().unwrap().release().await.unwrap();
    place.until_children(PATH, 0).await;
    assert!(contention(&place).await.line().await.unwrap().is_empty());
    let nowhere = Contention::new(&client, "/nowhere").line().await;
    assert!(nowhere.unwrap().is_empty());
}

async fn semaphore_line_counts_permits(place: Place) {
    let client = place.client().await;
    let semaphore = Semaphore::new(&client, PATH, 3);
    let held = semaphore.acquire_many(2).await.unwrap();
    let waiter = tokio::spawn({
        let semaphore = semaphore.clone();
        async move { semaphore.acquire_many(2).await }
    });
    place.until_children(PATH, 2).await;
    let line = contention(&place).await.line().await.unwrap();
    let told = line.iter().map(|one| (one.wants, one.holds));
    assert_eq!(
        told.collect::<Vec<_>>(),
        [(Wants::Permits(2), true), (Wants::Permits(2), false)]
    );
    held.release().await.unwrap();
    soon(waiter)
        .await
        .unwrap()
        .unwrap()
        .release()
        .await
        .unwrap();
}

async fn lines_of_other_libraries_are_read(place: Place) {
    let client = place.client().await;
    for layout in [Layout::Curator, Layout::Kazoo] {
        let lock = RwLock::new(&client, PATH).layout(layout).crash_mark();
        let reading = lock.read().await.unwrap();
        let waiting = tokio::spawn(async move { lock.write().await });
        place.until_children(PATH, 2).await;
        let line = contention(&place).await.line().await.unwrap();
        assert_eq!(line[0].wants, Wants::Read);
        assert_ne!(line[1].wants, Wants::Read);
        assert!(!line[1].holds);
        reading.release().await.unwrap();
        let writing = soon(waiting).await.unwrap().unwrap();
        assert_eq!(*writing.previous(), Previous::Unknown);
        assert_eq!(place.children(PATH).await.len(), 1, "no mark");
        writing.release().await.unwrap();
    }
}

async fn holder_that_lets_go_in_time_is_not_broken(place: Place) {
    let guard = Lock::new(&place.client().await, PATH)
        .acquire()
        .await
        .unwrap();
    let (node, token) = (guard.node().to_owned(), guard.token());
    let outside = contention(&place).await;
    let grace = Duration::from_secs(30);
    let breaking = tokio::spawn({
        let (outside, node) = (outside.clone(), node.clone());
        async move { outside.break_hold(&node, token, grace).await }
    });
    let asked = soon(guard.revoked()).await;
    assert_eq!(asked.grace(), Some(grace));
    guard.release().await.unwrap();
    assert_eq!(soon(breaking).await.unwrap().unwrap(), Ending::LetGo);
    assert_eq!(outside.last_broken().await.unwrap(), None);
    // The node is long gone.
    let ending = outside.break_hold(&node, token, grace).await;
    assert_eq!(ending.unwrap(), Ending::LetGo);
    assert!(!outside.revoke(&node, token).await.unwrap());
}

async fn broken_holder_hears_and_the_record_tells_who_did_it(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, PATH).message("stubborn").crash_mark();
    let outside = contention(&place).await;
    for _ in 0..2 {
        let guard = lock.acquire().await.unwrap();
        let grace = Duration::from_secs(1);
        let breaking = outside.break_hold(guard.node(), guard.token(), grace);
        let (asked, ending) = soon(async { tokio::join!(guard.revoked(), breaking) }).await;
        assert_eq!(asked.grace(), Some(grace));
        assert_eq!(ending.unwrap(), Ending::Broken);
        soon(guard.lost()).await;
        let record = outside.last_broken().await.unwrap().unwrap();
        assert_eq!(record.token, guard.token());
        assert_eq!(record.node, guard.node());
        assert_eq!(record.who.unwrap().message.as_deref(), Some("stubborn"));
        assert_eq!(record.by.pid, std::process::id());
        assert!(guard.release().await.is_err());
        let next = soon(lock.acquire()).await.unwrap();
        assert!(matches!(next.previous(), Previous::Crashed(_)));
        next.release().await.unwrap();
    }
}

async fn simple_lock_in_the_root_is_broken_as_well(place: Place) {
    let guard = SimpleLock::new(&place.client().await, "/simple")
        .acquire()
        .await
        .unwrap();
    let outside = Contention::new(&place.client().await, "/");
    assert!(outside.revoke("simple", guard.token()).await.unwrap());
    soon(guard.revoked()).await;
    let ending = outside
        .break_hold("simple", guard.token(), Duration::ZERO)
        .await;
    assert_eq!(ending.unwrap(), Ending::Broken);
    soon(guard.lost()).await;
}

async fn next_holder_of_the_same_name_is_not_broken(place: Place) {
    let simple = SimpleLock::new(&place.client().await, "/simple");
    let guard = simple.acquire().await.unwrap();
    let token = guard.token();
    let outside = Contention::new(&place.client().await, "/");
    // Its description stays, and the recipe is still recognized.
    assert!(outside.revoke("simple", token).await.unwrap());
    let survey = Survey::new(&place.client().await, "/");
    let overview = survey.look().await.unwrap();
    assert!(
        overview.recipes.iter().any(|sight| sight.path == "/simple"),
        "{overview:?}"
    );
    guard.release().await.unwrap();
    let next = simple.acquire().await.unwrap();
    assert!(!outside.revoke("simple", token).await.unwrap());
    let ending = outside.break_hold("simple", token, Duration::ZERO).await;
    assert_eq!(ending.unwrap(), Ending::LetGo);
    assert!(next.is_held() && next.revocation().is_none());
    next.release().await.unwrap();
}

async fn holder_of_the_same_name_is_not_broken_after_an_outage(place: Place) {
    let simple = SimpleLock::new(&place.client().await, "/simple");
    let guard = simple.acquire().await.unwrap();
    let (proxy, client) = place.proxied(Duration::from_secs(60)).await;
    let outside = Contention::new(&client, "/");
    let (token, grace) = (guard.token(), Duration::from_secs(60));
    let breaking = tokio::spawn(async move { outside.break_hold("simple", token, grace).await });
    soon(guard.revoked()).await;
    place
        .until_waits_for(&["/simple"], client.session_id(), &breaking)
        .await;
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    guard.release().await.unwrap();
    let next = simple.acquire().await.unwrap();
    proxy.refuse(false);
    assert_eq!(soon(breaking).await.unwrap().unwrap(), Ending::LetGo);
    assert!(next.is_held() && next.revocation().is_none());
    next.release().await.unwrap();
}

async fn circle_of_waiting_is_found_by_owner(place: Place) {
    let client = place.client().await;
    let search = Contention::new(&client, "/accounts");
    let x = Lock::new(&client, "/accounts/x").owner("one");
    let _x = x.acquire().await.unwrap();
    assert!(search.deadlocks().await.unwrap().is_empty());
    // The second holds what the first waits for, and the other way round.
    let y = Lock::new(&client, "/accounts/deep/y").owner("two");
    let _y = y.acquire().await.unwrap();
    let waits = [("one", "/accounts/deep/y"), ("two", "/accounts/x")];
    let waiting = waits.map(|(owner, path)| {
        let lock = Lock::new(&client, path).owner(owner);
        tokio::spawn(async move { lock.acquire().await })
    });
    place.until_children("/accounts/deep/y", 2).await;
    place.until_children("/accounts/x", 2).await;
    let circles = search.deadlocks().await.unwrap();
    assert_eq!(circles.len(), 1, "{circles:?}");
    let mut steps = circles[0]
        .iter()
        .map(|wait| {
            (
                wait.owner.as_str(),
                wait.path.as_str(),
                wait.waits_for.as_str(),
            )
        })
        .collect::<Vec<_>>();
    steps.sort_unstable();
    assert_eq!(
        steps,
        [
            ("one", "/accounts/deep/y", "two"),
            ("two", "/accounts/x", "one")
        ]
    );
    for waiter in waiting {
        waiter.abort();
    }
}

async fn tasks_of_one_session_without_names_are_no_circle_in_one_line(place: Place) {
    let client = place.client().await;
    let lock = Lock::new(&client, PATH);
    let guard = lock.acquire().await.unwrap();
    let waiter = tokio::spawn(async move { lock.acquire().await });
    place.until_children(PATH, 2).await;
    let search = contention(&place).await;
    assert!(search.deadlocks().await.unwrap().is_empty());
    guard.release().await.unwrap();
    let guard = soon(waiter).await.unwrap().unwrap();
    // An owner with a name that waits for itself is a deadlock.
    guard.release().await.unwrap();
    let named = Lock::new(&client, PATH).owner("me");
    let _guard = named.acquire().await.unwrap();
    let waiter = tokio::spawn(async move { named.acquire().await });
    place.until_children(PATH, 2).await;
    assert_eq!(search.deadlocks().await.unwrap().len(), 1);
    waiter.abort();
}
