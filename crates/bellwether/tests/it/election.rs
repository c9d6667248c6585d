//! The election.

use std::time::{Duration, Instant};

use bellwether::blocking::{self, Wait};
use bellwether::election::{Candidacy, CandidacyState};
use bellwether::hold::Previous;
use bellwether::inspect::Contention;
use bellwether::{Client, Election, Error, ErrorKind, Leadership, SessionId, connect};
use bellwether_testkit::{Cut, Direction, FaultProxy};
use futures_util::StreamExt;
use tokio::task::JoinHandle;

use crate::support::place::{Place, SESSION_TIMEOUT, kill, soon};

on_both_engines! {
    leads_one_after_the_other_with_rising_tokens,
    candidates_are_listed_in_order_with_their_values,
    campaign_that_timed_out_leaves_no_candidate,
    only_a_leader_can_proclaim,
    proclamation_leaves_a_request_to_step_down_in_place,
    crash_mark_tells_that_the_leader_before_died,
    cleared_crash_of_a_leader_is_forgotten,
    observer_follows_leaders_and_what_they_proclaim,
    observer_goes_on_in_a_new_session,
    t41_candidacy_that_was_dropped_makes_no_node,
    t42_flapping_connection_costs_no_new_candidate,
    t43_leader_that_is_cut_off_ends_before_the_next_begins,
    t44_leader_of_an_expired_session_starts_at_the_end_with_a_new_node,
    t45_directory_that_was_wiped_is_made_anew,
    t46_candidate_goes_on_over_every_end_and_says_so,
    t47_not_leader_here_before_it_is_on_the_server,
    bad_path_is_refused,
}

fn election(client: &Client) -> Election {
    Election::new(client, "/election")
}

fn campaign(client: &Client) -> JoinHandle<Result<Leadership, Error>> {
    let election = election(client);
    tokio::spawn(async move { election.campaign().await })
}

/// The next event of a candidacy, which must be that it is waiting in line.
async fn running(candidacy: &mut Candidacy) -> SessionId {
    match soon(candidacy.next()).await {
        Some(CandidacyState::Running { session }) => session,
        other => panic!("{other:?}"),
    }
}

async fn elected(candidacy: &mut Candidacy) -> Leadership {
    match soon(candidacy.next()).await {
        Some(CandidacyState::Elected(leadership)) => leadership,
        other => panic!("{other:?}"),
    }
}

/// Ends the session behind a proxy at once. Its client must not resume it meanwhile, and learns it when it can connect again.
async fn expire(proxy: &FaultProxy) {
    proxy.refuse(true);
    proxy.cut(Cut::Close).await;
    proxy.expire_session().await.unwrap();
}

async fn leads_one_after_the_other_with_rising_tokens(place: Place) {
    let first = soon(election(&place.client().await).campaign())
        .await
        .unwrap();
    let (one, two) = (place.client().await, place.client().await);
    let second = campaign(&one);
    place.until_children("/election", 2).await;
    let third = campaign(&two);
    place.until_children("/election", 3).await;
    let node = |leader: &Leadership| format!("/election/{}", leader.node());
    place
        .until_waits_for(&[&node(&first)], one.session_id(), &second)
        .await;
    let token = first.token();
    first.resign().await.unwrap();
    let second = soon(second).await.unwrap().unwrap();
    assert!(second.token() > token && second.is_held());
    place
        .until_waits_for(&[&node(&second)], two.session_id(), &third)
        .await;
    let token = second.token();
    drop(second);
    let third = soon(third).await.unwrap().unwrap();
    assert!(third.token() > token);
    third.resign().await.unwrap();
    place.until_children("/election", 0).await;
    place.until_no_watches().await;
}

async fn candidates_are_listed_in_order_with_their_values(place: Place) {
    let looking = election(&place.client().await);
    assert_eq!(looking.candidates().await.unwrap(), []);
    assert_eq!(looking.leader().await.unwrap(), None);
    let clients = [place.client().await, place.client().await];
    let first = election(&clients[0]).value("a:1").message("first");
    let leadership = soon(first.campaign()).await.unwrap();
    let second = election(&clients[1]).value("b:2");
    let _second = tokio::spawn(async move { second.campaign().await });
    place.until_children("/election", 2).await;
    let candidates = looking.candidates().await.unwrap();
    let values: Vec<_> = candidates
        .iter()
        .filter_map(|c| c.value.as_deref())
        .collect();
    assert_eq!(values, ["a:1", "b:2"]);
    assert_eq!(candidates[0].who.message.as_deref(), Some("first"));
    assert_eq!(candidates[0].token, leadership.token());
    assert_eq!(looking.leader().await.unwrap().as_ref(), candidates.first());
}

async fn campaign_that_timed_out_leaves_no_candidate(place: Place) {
    let client = place.client().await;
    let leadership = soon(election(&client).campaign()).await.unwrap();
    let limit = Duration::from_millis(50);
    let ran = election(&client).campaign_timeout(limit).await;
    assert_fails!(ran, ErrorKind::TimedOut { .. });
    place.until_children("/election", 1).await;
    leadership.resign().await.unwrap();
    place.until_no_watches().await;
}

async fn only_a_leader_can_proclaim(place: Place) {
    let leadership = soon(election(&place.client().await).campaign())
        .await
        .unwrap();
    leadership.set_value("here").await.unwrap();
    let leader = election(&place.client().await).leader().await.unwrap();
    assert_eq!(leader.unwrap().value.as_deref(), Some("here"));
    let node = format!("/election/{}", leadership.node());
    place.outside().delete(&node, None).await.unwrap();
    let refused = leadership.set_value("still here").await;
    assert_fails!(refused, ErrorKind::NotHeld);
}

async fn crash_mark_tells_that_the_leader_before_died(place: Place) {
    let marked = |client: &Client| election(client).crash_mark();
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let first = soon(marked(&client).campaign()).await.unwrap();
    assert_eq!(*first.previous(), Previous::Clean);
    kill(&proxy).await;
    let second = soon(marked(&place.client().await).campaign())
        .await
        .unwrap();
    assert!(matches!(second.previous(), Previous::Crashed(_)));
    second.resign().await.unwrap();
    let third = soon(marked(&place.client().await).campaign())
        .await
        .unwrap();
    assert_eq!(*third.previous(), Previous::Clean);
    third.resign().await.unwrap();
}

async fn cleared_crash_of_a_leader_is_forgotten(place: Place) {
    let election = election(&place.client().await).crash_mark();
    let leadership = soon(election.campaign()).await.unwrap();
    let held = election.clear_crash_mark().await;
    assert_fails!(held, ErrorKind::Held { .. });
    drop(leadership);
    place.until_children("/election", 1).await;
    assert!(election.clear_crash_mark().await.unwrap());
    assert!(!election.clear_crash_mark().await.unwrap());
    let leadership = soon(election.campaign()).await.unwrap();
    assert_eq!(*leadership.previous(), Previous::Clean);
    leadership.resign().await.unwrap();
}

async fn proclamation_leaves_a_request_to_step_down_in_place(place: Place) {
    let leadership = soon(election(&place.client().await).campaign())
        .await
        .unwrap();
    leadership.set_value("a").await.unwrap();
    let asking = place.client().await;
    let line = Contention::new(&asking, "/election").message("please");
    assert!(
        line.revoke(leadership.node(), leadership.token())
            .await
            .unwrap()
    );
    leadership.set_value("b").await.unwrap();
    let asked = soon(leadership.revoked()).await;
    assert_eq!(asked.message.as_deref(), Some("please"));
    let node = format!("/election/{}", leadership.node());
    let (data, _) = place.outside().get(&node).await.unwrap();
    let data = String::from_utf8(data.to_vec()).unwrap();
    assert!(data.contains("please") && data.contains("\"b\""), "{data}");
    leadership.resign().await.unwrap();
}

async fn observer_follows_leaders_and_what_they_proclaim(place: Place) {
    let mut leaders = election(&place.client().await).observe();
    let mut next = async || soon(leaders.next()).await.unwrap().unwrap();
    assert_eq!(next().await, None, "not even the directory is there");
    let client = place.client().await;
    let first = soon(election(&client).value("a").campaign()).await.unwrap();
    let mut seen = next().await;
    if seen.is_none() {
        // The directory, before it had a candidate.
        seen = next().await;
    }
    let seen = seen.unwrap();
    assert_eq!(
        (seen.value.as_deref(), seen.token),
        (Some("a"), first.token())
    );
    first.set_value("b").await.unwrap();
    assert_eq!(next().await.unwrap().value.as_deref(), Some("b"));
    let second = campaign(&client);
    place.until_children("/election", 2).await;
    first.resign().await.unwrap();
    let second = soon(second).await.unwrap().unwrap();
    let seen = next().await.unwrap();
    assert_eq!((seen.value, seen.token), (None, second.token()));
    second.resign().await.unwrap();
    assert_eq!(next().await, None);
    let third = soon(election(&client).campaign()).await.unwrap();
    assert_eq!(next().await.unwrap().token, third.token());
    drop(leaders);
    third.resign().await.unwrap();
    place.until_no_watches().await;
}

async fn observer_goes_on_in_a_new_session(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let session = client.session_id();
    let mut leaders = election(&client).observe();
    let other = place.client().await;
    let leadership = soon(election(&other).campaign()).await.unwrap();
    let mut next = async || soon(leaders.next()).await.unwrap().unwrap();
    assert_eq!(next().await.unwrap().token, leadership.token());
    expire(&proxy).await;
    leadership.set_value("new").await.unwrap();
    proxy.refuse(false);
    assert_eq!(next().await.unwrap().value.as_deref(), Some("new"));
    assert_ne!(client.session_id(), session);
}

async fn t41_candidacy_that_was_dropped_makes_no_node(place: Place) {
    let leadership = soon(election(&place.client().await).campaign())
        .await
        .unwrap();
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let mut candidacy = election(&client).candidacy();
    running(&mut candidacy).await;
    let waiting = tokio::spawn(async move {
        let standing = candidacy.next().await;
        (standing, candidacy)
    });
    place.until_children("/election", 2).await;
    // Dropped while it is disconnected, and its session expires: the candidate does not return.
    expire(&proxy).await;
    place.until_children("/election", 1).await;
    waiting.abort();
    assert!(soon(waiting).await.is_err());
    proxy.refuse(false);
    soon(client.close()).await;
    // No new session either, and so no node later.
    soon(async {
        while proxy.connections_now() > 0 {
            place.outside().sync("/").await.unwrap();
        }
    })
    .await;
    assert_eq!(place.children("/election").await, [leadership.node()]);
}

async fn t42_flapping_connection_costs_no_new_candidate(place: Place) {
    const CUTS: usize = 20;
    let first = soon(election(&place.client().await).campaign())
        .await
        .unwrap();
    first.resign().await.unwrap();
    let mut candidates = Vec::new();
    for number in 1..=3 {
        let (proxy, client) = place.proxied(Duration::from_secs(10)).await;
        let running = campaign(&client);
        place.until_children("/election", number).await;
        candidates.push((proxy, client, running));
    }
    let mut line = place.children("/election").await;
    line.sort();
    let leader = soon(&mut candidates[0].2).await.unwrap().unwrap();
    for (proxy, ..) in &candidates {
        proxy.reset_counts();
    }
    for _ in 0..CUTS {
        for (proxy, client, _) in &candidates {
            proxy.cut(Cut::Reset).await;
            // It has reconnected when this is answered.
            soon(async { while client.raw().exists("/").await.is_err() {} }).await;
        }
    }
    let mut now = place.children("/election").await;
    now.sort();
    assert_eq!(now, line);
    assert!(leader.is_held());
    for (proxy, ..) in &candidates {
        let requests: usize = proxy.counts().values().sum();
        // Each time: the watches, a ping or a heartbeat, and this test's own request, perhaps sent twice.
        assert!(requests <= CUTS * 6, "{:?}", proxy.counts());
    }
    for ((_, client, running), before) in candidates[1..].iter().zip(&line) {
        let node = format!("/election/{before}");
        place
            .until_waits_for(&[&node], client.session_id(), running)
            .await;
    }
    leader.resign().await.unwrap();
    for (_, _, running) in candidates.drain(1..) {
        let leader = soon(running).await.unwrap().unwrap();
        leader.resign().await.unwrap();
    }
}

async fn t43_leader_that_is_cut_off_ends_before_the_next_begins(place: Place) {
    for held in [Direction::ToServer, Direction::ToClient, Direction::Both] {
        let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
        let leader = soon(election(&client).campaign()).await.unwrap();
        let watch = leader.watch();
        let other = place.client().await;
        let next = tokio::spawn({
            let election = election(&other);
            async move { (election.campaign().await, Instant::now()) }
        });
        place.until_children("/election", 2).await;
        proxy.hold(held);
        soon(leader.lost()).await;
        let lost_at = Instant::now();
        assert!(!watch.is_held() && !leader.is_held());
        let (next, elected_at) = soon(next).await.unwrap();
        assert!(lost_at < elected_at, "{held:?}: two leaders");
        let next = next.unwrap();
        assert!(next.token() > leader.token());
        proxy.resume(held);
        assert!(!leader.is_held(), "lost stays lost");
        next.resign().await.unwrap();
    }
}

async fn t44_leader_of_an_expired_session_starts_at_the_end_with_a_new_node(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let mut candidacy = election(&client).candidacy();
    let session = running(&mut candidacy).await;
    let leader = elected(&mut candidacy).await;
    let other = place.client().await;
    let next = campaign(&other);
    place.until_children("/election", 2).await;
    expire(&proxy).await;
    proxy.refuse(false);
    soon(leader.lost()).await;
    let next = soon(next).await.unwrap().unwrap();
    let renewed = running(&mut candidacy).await;
    assert_ne!(renewed, session);
    let waiting = tokio::spawn(async move { (candidacy.next().await, candidacy) });
    place.until_children("/election", 2).await;
    let node = format!("/election/{}", next.node());
    place.until_waits_for(&[&node], renewed, &waiting).await;
    next.resign().await.unwrap();
    let (Some(CandidacyState::Elected(again)), _) = soon(waiting).await.unwrap() else {
        panic!("not elected");
    };
    let node = format!("/election/{}", again.node());
    let stat = place.outside().exists(&node).await.unwrap().unwrap();
    assert_eq!(
        (stat.ephemeral_owner, stat.czxid),
        (renewed.number(), again.token().number())
    );
    assert!(again.token() > leader.token());
    again.resign().await.unwrap();
}

async fn t45_directory_that_was_wiped_is_made_anew(place: Place) {
    let client = place.client().await;
    let mut candidacy = election(&client).candidacy();
    running(&mut candidacy).await;
    let leader = elected(&mut candidacy).await;
    let other = place.client().await;
    let mut waiting = election(&other).candidacy();
    running(&mut waiting).await;
    let waiting = tokio::spawn(async move { (waiting.next().await, waiting) });
    place.until_children("/election", 2).await;
    let mut names = place.children("/election").await;
    names.sort();
    for name in names.iter().rev() {
        let node = format!("/election/{name}");
        place.outside().delete(&node, None).await.unwrap();
    }
    // Elected in between, or removed at once.
    let (interrupted, mut waiting) = soon(waiting).await.unwrap();
    match interrupted {
        Some(CandidacyState::Interrupted(Error {
            kind: ErrorKind::Removed,
            ..
        })) => {}
        other => panic!("{other:?}"),
    }
    soon(leader.lost()).await;
    match place.outside().delete("/election", None).await {
        Ok(()) | Err(bellwether::zk::Error::NO_NODE) => {}
        Err(error) => panic!("{error}"),
    }
    let leader = elected(&mut waiting).await;
    assert_eq!(place.children("/election").await, [leader.node()]);
    leader.resign().await.unwrap();
    let leader = elected(&mut candidacy).await;
    leader.resign().await.unwrap();
}

async fn t46_candidate_goes_on_over_every_end_and_says_so(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let mut candidacy = election(&client).candidacy();
    let mut session = running(&mut candidacy).await;
    for round in 0..3 {
        let leader = elected(&mut candidacy).await;
        if round % 2 == 0 {
            expire(&proxy).await;
        } else {
            // No connection until the session has expired.
            proxy.refuse(true);
            proxy.cut(Cut::Close).await;
            place.until_children("/election", 0).await;
        }
        proxy.refuse(false);
        soon(leader.lost()).await;
        loop {
            match soon(candidacy.next()).await {
                Some(CandidacyState::Running { session: renewed }) => {
                    assert_ne!(renewed, session, "round {round}");
                    session = renewed;
                    break;
                }
                // No server was reachable just then: this is reported, and retried.
                Some(CandidacyState::Interrupted(Error {
                    kind: ErrorKind::NoSession(_),
                    ..
                })) => {}
                other => panic!("{other:?}"),
            }
        }
    }
    let leader = elected(&mut candidacy).await;
    leader.resign().await.unwrap();
    // It queues again in the same session, without an event.
    let leader = elected(&mut candidacy).await;
    assert!(leader.is_held());
}

async fn t47_not_leader_here_before_it_is_on_the_server(place: Place) {
    for resigns in [true, false] {
        let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
        let leader = soon(election(&client).campaign()).await.unwrap();
        let watch = leader.watch();
        assert!(watch.is_held());
        assert_eq!(watch.token(), leader.token());
        proxy.hold(Direction::ToServer);
        let resigned = match resigns {
            true => Some(tokio::spawn(leader.resign())),
            false => {
                drop(leader);
                None
            }
        };
        soon(watch.lost()).await;
        assert!(!watch.is_held());
        assert_eq!(place.children("/election").await.len(), 1, "too late");
        proxy.resume(Direction::ToServer);
        if let Some(resigned) = resigned {
            soon(resigned).await.unwrap().unwrap();
        }
        place.until_children("/election", 0).await;
    }
}

async fn bad_path_is_refused(place: Place) {
    let election = Election::new(&place.client().await, "/");
    let refused = election.campaign().await;
    assert_fails!(refused, ErrorKind::BadPath(_));
    let observed = soon(election.observe().next()).await.unwrap();
    assert_fails!(observed, ErrorKind::BadPath(_));
}

#[tokio::test]
async fn serves_programs_without_async() {
    let place = Place::embedded().await;
    let address = format!("{}{}", place.server(), place.chroot());
    let task = tokio::task::spawn_blocking(move || {
        let client = connect(address).wait().unwrap();
        let leader = election(&client).value("a").campaign().wait().unwrap();
        let mut leaders = blocking::iter(election(&client).observe());
        let seen = leaders.next().unwrap().unwrap().unwrap();
        assert_eq!(seen.value.as_deref(), Some("a"));
        leader.resign().wait().unwrap();
        assert_eq!(leaders.next().unwrap().unwrap(), None);
    });
    soon(task).await.unwrap();
}
