//! Members that rejoin, and names that are found.

use std::sync::Arc;
use std::time::Duration;

use bellwether::state::{Instance, MembershipState, Seen, Watch};
use bellwether::{Client, Error, ErrorKind, Group, Names, connect, zk};
use bellwether_testkit::{FaultProxy, TestServer};
use bellwether_wire::op::Op;
use futures_util::StreamExt;

use crate::support::dropping::requests;
use crate::support::place::{Place, SESSION_TIMEOUT, soon, until_no_successor};

on_both_engines! {
    members_join_change_and_leave,
    join_with_a_lost_reply_is_one_member,
    t80_member_is_back_after_expiry_with_its_latest_data,
    t80_member_that_left_while_it_was_away_leaves_nothing,
    t80_member_whose_node_was_deleted_is_back,
    t80_name_that_was_taken_meanwhile_is_had_again,
    dropped_join_leaves_nothing,
    leaving_with_a_lost_reply_leaves_the_name_to_the_next,
    update_with_a_lost_reply_leaves_the_next_bearer_alone,
    name_is_borne_by_one,
    name_is_borne_by_one_of_a_session_over_a_lost_request,
    member_that_is_away_has_its_name_before_others_of_its_session,
    join_is_two_requests_in_one_round_trip,
    names_are_registered_resolved_and_listed,
    unique_names_are_found_again_after_a_lost_reply,
    instances_of_a_service_come_and_go,
    too_much_data_is_refused_and_nothing_lost,
    watch_that_begins_without_a_server_goes_on_when_there_is_one,
    join_that_may_not_look_leaves_nothing,
}

async fn next<T>(watch: &mut Watch<T>) -> Seen<T> {
    soon(watch.next()).await.unwrap().unwrap()
}

/// Waits until the members and their data are these.
async fn until(place: &Place, expected: &[(&str, &str)]) {
    let mut watch = Group::new(&place.client().await, "/group").watch();
    loop {
        let Seen::Value(members) = next(&mut watch).await else {
            continue;
        };
        let members = members
            .iter()
            .map(|(name, data)| (name.as_str(), &data[..]));
        if members.eq(expected.iter().map(|(name, data)| (*name, data.as_bytes()))) {
            return;
        }
    }
}

async fn members_join_change_and_leave(place: Place) {
    let (one, other) = (place.client().await, place.client().await);
    let group = Group::new(&one, "/group");
    let mut watch = Group::new(&other, "/group").watch();
    assert_eq!(next(&mut watch).await, Seen::Value([].into()));
    let a = group.join_as("a", "idle").await.unwrap();
    assert_eq!(a.state(), MembershipState::Present(one.session_id()));
    let idle = [("a".to_owned(), b"idle".to_vec())];
    assert_eq!(next(&mut watch).await, Seen::Value(idle.clone().into()));
    assert_eq!(group.members().await.unwrap(), idle.into());
    a.update("busy").await.unwrap();
    until(&place, &[("a", "busy")]).await;
    let b = group.join("b").await.unwrap();
    assert_eq!(group.members().await.unwrap()[b.name()], b"b");
    soon(a.leave()).await;
    assert_eq!(group.members().await.unwrap().len(), 1);
    drop(b);
    place.until_children("/group", 0).await;
    drop(watch);
    place.until_no_watches().await;
}

async fn join_with_a_lost_reply_is_one_member(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let group = Group::new(&client, "/group");
    group.join_as("first", "").await.unwrap().leave().await;
    for op in [Op::Create2, Op::GetData] {
        for swallowed in [true, false] {
            let lost = match swallowed {
                true => proxy.swallow_reply(op),
                false => proxy.drop_request(op),
            };
            let member = soon(group.join_as("a", "1")).await.unwrap();
            lost.happened().await.unwrap();
            assert_eq!(place.children("/group").await, ["a"]);
            soon(member.leave()).await;
            assert!(place.children("/group").await.is_empty());
        }
    }
}

async fn t80_member_is_back_after_expiry_with_its_latest_data(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let session = client.raw();
    let member = Group::new(&client, "/group")
        .join_as("a", "1")
        .await
        .unwrap();
    let mut states = member.states();
    let first = client.session_id();
    assert_eq!(states.next().await, Some(MembershipState::Present(first)));
    for round in 0..3 {
        proxy.refuse(true);
        proxy.expire_session().await.unwrap();
        place.until_children("/group", 0).await;
        // Changed while it is disconnected.
        let data = format!("{round}");
        let update = member.update(data.as_str());
        let (updated, ()) = tokio::join!(soon(update), async { proxy.refuse(false) });
        updated.unwrap();
        until(&place, &[("a", &data)]).await;
    }
    assert!(session.state().is_ended());
    // It reports that, though fast intermediate states may be skipped: another session is another state.
    let mut last = MembershipState::Away;
    while last != member.state() || last == MembershipState::Away {
        last = soon(states.next()).await.unwrap();
    }
    assert_ne!(last, MembershipState::Present(first));
    soon(member.leave()).await;
    assert!(place.children("/group").await.is_empty());
}

async fn t80_member_that_left_while_it_was_away_leaves_nothing(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let member = Group::new(&client, "/group")
        .join_as("a", "1")
        .await
        .unwrap();
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    place.until_children("/group", 0).await;
    let leaving = tokio::spawn(member.leave());
    proxy.refuse(false);
    soon(leaving).await.unwrap();
    soon(client.close()).await;
    assert!(place.children("/group").await.is_empty());
}

async fn t80_member_whose_node_was_deleted_is_back(place: Place) {
    let client = place.client().await;
    let member = Group::new(&client, "/group")
        .join_as("a", "1")
        .await
        .unwrap();
    for _ in 0..3 {
        let (data, stat) = place.outside().get("/group/a").await.unwrap();
        assert_eq!(&data[..], b"1");
        place.outside().delete("/group/a", None).await.unwrap();
        soon(async {
            while !matches!(
                place.outside().exists("/group/a").await.unwrap(),
                Some(now) if now.czxid > stat.czxid
            ) {}
        })
        .await;
    }
    // A change of its data from outside is undone.
    place.outside().set("/group/a", b"2", None).await.unwrap();
    until(&place, &[("a", "1")]).await;
    soon(member.leave()).await;
}

async fn t80_name_that_was_taken_meanwhile_is_had_again(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let member = Group::new(&client, "/group")
        .join_as("a", "1")
        .await
        .unwrap();
    let mut states = member.states();
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    place.until_children("/group", 0).await;
    let other = place.client().await;
    let group = Group::new(&other, "/group");
    let squatter = soon(group.join_as("a", "2")).await.unwrap();
    proxy.refuse(false);
    while soon(states.next()).await.unwrap() != MembershipState::Displaced {}
    until(&place, &[("a", "2")]).await;
    soon(squatter.leave()).await;
    until(&place, &[("a", "1")]).await;
    soon(member.leave()).await;
}

async fn dropped_join_leaves_nothing(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let session = client.raw();
    let group = Group::new(&client, "/group");
    group.join_as("first", "").await.unwrap().leave().await;
    proxy.refuse(true);
    let lost = proxy.swallow_reply(Op::Create2);
    let joining = tokio::spawn({
        let group = group.clone();
        async move { group.join_as("a", "1").await }
    });
    lost.happened().await.unwrap();
    joining.abort();
    assert!(joining.await.unwrap_err().is_cancelled());
    assert_eq!(place.children("/group").await, ["a"]);
    proxy.refuse(false);
    place.until_children("/group", 0).await;
    assert!(
        !session.state().is_ended(),
        "the node did not go with its session"
    );
}

/// Loses the reply to a member's request, and gives its name to another before it can connect again.
async fn give_name_away(
    place: &Place,
    proxy: &FaultProxy,
    op: Op,
    asking: impl Future<Output = ()>,
) {
    proxy.refuse(true);
    let lost = proxy.swallow_reply(op);
    let given = async {
        lost.happened().await.unwrap();
        let names = Names::new(&place.client().await, "/names");
        names.remove("a").await.unwrap();
        names.register_lasting("a", "next").await.unwrap();
        proxy.refuse(false);
    };
    soon(async { tokio::join!(asking, given) }).await;
    let names = Names::new(&place.client().await, "/names");
    assert_eq!(names.resolve("a").await.unwrap().unwrap(), b"next");
}

async fn leaving_with_a_lost_reply_leaves_the_name_to_the_next(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let session = client.raw();
    let names = Names::new(&client, "/names");
    let member = names.register("a", "1").await.unwrap();
    give_name_away(&place, &proxy, Op::Delete, member.leave()).await;
    assert!(!session.state().is_ended());
}

async fn update_with_a_lost_reply_leaves_the_next_bearer_alone(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let names = Names::new(&client, "/names");
    let member = names.register("a", "1").await.unwrap();
    let mut states = member.states();
    let update = async {
        tokio::select! {
            updated = member.update("2") => panic!("{updated:?}"),
            () = async { while states.next().await != Some(MembershipState::Displaced) {} } => {}
        }
    };
    give_name_away(&place, &proxy, Op::SetData, update).await;
    soon(member.leave()).await;
    assert_eq!(names.resolve("a").await.unwrap().unwrap(), b"next");
}

async fn name_is_borne_by_one(place: Place) {
    let client = place.client().await;
    let names = Names::new(&client, "/group");
    let first = names.register("a", "1").await.unwrap();
    // Neither by the same session nor by another.
    for client in [client.clone(), place.client().await] {
        let second = Names::new(&client, "/group").register("a", "2").await;
        assert_fails!(second, ErrorKind::NameTaken);
    }
    let lasting = names.register_lasting("a", "3").await;
    assert_fails!(lasting, ErrorKind::NameTaken);
    assert_eq!(names.resolve("a").await.unwrap().unwrap(), b"1");
    soon(first.leave()).await;
    for name in ["", "a/b", "..", "receipt-1"] {
        let refused = names.register(name, "").await;
        assert_fails!(refused, ErrorKind::BadPath(_));
    }
}

fn assert_taken<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert_fails!(result, ErrorKind::NameTaken);
}

async fn name_is_borne_by_one_of_a_session_over_a_lost_request(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let names = Names::new(&client, "/group");
    let first = names.register("a", "1").await.unwrap();
    let _lost = proxy.drop_request(Op::Create2);
    assert_taken(soon(names.register("a", "2")).await);
    proxy.calm();
    let (data, stat) = place.outside().get("/group/a").await.unwrap();
    assert_eq!((&data[..], stat.version), (b"1".as_slice(), 0));
    // Nor is it deleted by a caller that gave up before it had begun.
    for _ in 0..20 {
        drop(tokio::time::timeout(Duration::ZERO, names.register("a", "2")).await);
    }
    assert_taken(soon(names.register("a", "2")).await);
    let (_, now) = place.outside().get("/group/a").await.unwrap();
    assert_eq!((now.czxid, now.version), (stat.czxid, 0));
    soon(first.leave()).await;
    let second = soon(names.register("a", "2")).await.unwrap();
    soon(second.leave()).await;
}

async fn member_that_is_away_has_its_name_before_others_of_its_session(place: Place) {
    let client = place.client().await;
    let group = Group::new(&client, "/group");
    let first = group.join_as("a", "1").await.unwrap();
    for _ in 0..10 {
        place.outside().delete("/group/a", None).await.unwrap();
        assert_taken(soon(group.join_as("a", "2")).await);
        until(&place, &[("a", "1")]).await;
    }
    soon(first.leave()).await;
}

async fn join_is_two_requests_in_one_round_trip(place: Place) {
    let (proxy, client) = place.proxied(Duration::from_secs(60)).await;
    let group = Group::new(&client, "/group");
    let first = group.join("").await.unwrap();
    proxy.reset_counts();
    let second = group.join("").await.unwrap();
    let mut counts = proxy.counts();
    counts.remove(&Op::Ping);
    assert_eq!(counts, [(Op::Create2, 1), (Op::GetData, 1)].into());
    drop((first, second));
}

async fn names_are_registered_resolved_and_listed(place: Place) {
    let client = place.client().await;
    let names = Names::new(&client, "/names");
    assert_eq!(names.list().await.unwrap(), [""; 0]);
    names.register_lasting("db", "10.0.0.7").await.unwrap();
    let web = names.register("web", "10.0.0.8").await.unwrap();
    assert_eq!(names.list().await.unwrap(), ["db", "web"]);
    assert_eq!(names.resolve("db").await.unwrap().unwrap(), b"10.0.0.7");
    assert_eq!(names.resolve("mail").await.unwrap(), None);
    let mut watch = Names::new(&place.client().await, "/names").watch();
    let Seen::Value(all) = next(&mut watch).await else {
        panic!("the present ones come first");
    };
    assert_eq!(all.len(), 2);
    // Registered names are deleted with their session, permanent ones stay.
    drop((web, names));
    soon(client.close()).await;
    let names = Names::new(&place.client().await, "/names");
    assert_eq!(names.list().await.unwrap(), ["db"]);
    assert!(names.remove("db").await.unwrap());
    assert!(!names.remove("db").await.unwrap());
    // No receipts accumulate, though the session continues.
    place.until_children("/names", 0).await;
}

async fn unique_names_are_found_again_after_a_lost_reply(place: Place) {
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let names = Names::new(&client, "/names");
    let first = names.unique("job-", "1").await.unwrap();
    let lost = proxy.swallow_reply(Op::Multi);
    let second = soon(names.unique("job-", "2")).await.unwrap();
    lost.happened().await.unwrap();
    assert_eq!(names.resolve(&second).await.unwrap().unwrap(), b"2");
    let mut all = [first.clone(), second.clone()];
    all.sort_unstable();
    assert_eq!(names.list().await.unwrap(), all);
    let number = |name: &str| name.rsplit_once('-').unwrap().1.to_owned();
    assert!(number(&first) < number(&second));
}

async fn instances_of_a_service_come_and_go(place: Place) {
    let names = Names::new(&place.client().await, "/names");
    let other = Names::new(&place.client().await, "/names");
    let mut watch = other.watch_instances("web").unwrap();
    assert_eq!(next(&mut watch).await, Seen::Value([].into()));
    let instance = Instance::new("10.0.0.7:80").with("zone", "b");
    let announced = names.announce("web", &instance).await.unwrap();
    let expected = [(announced.name().to_owned(), instance)];
    assert_eq!(
        other.instances("web").await.unwrap(),
        expected.clone().into()
    );
    assert_eq!(next(&mut watch).await, Seen::Value(expected.into()));
    soon(announced.leave()).await;
    assert_eq!(next(&mut watch).await, Seen::Value([].into()));
}

fn assert_too_large<T: std::fmt::Debug>(result: Result<T, Error>) {
    assert_fails!(result, ErrorKind::TooLarge { .. });
}

async fn too_much_data_is_refused_and_nothing_lost(place: Place) {
    let client = place.client().await;
    let too_much = vec![b'x'; 2_000_000];
    let group = Group::new(&client, "/group");
    assert_too_large(soon(group.join(too_much.clone())).await);
    let member = group.join_as("a", "1").await.unwrap();
    assert_too_large(soon(member.update(too_much.clone())).await);
    assert_eq!(place.children("/group").await, ["a"]);
    soon(member.update("2")).await.unwrap();
    until(&place, &[("a", "2")]).await;
    // Data within the limit is accepted.
    soon(member.update(&too_much[..999_000])).await.unwrap();
    soon(member.leave()).await;
    let names = Names::new(&client, "/names");
    assert_too_large(soon(names.register("a", too_much.clone())).await);
    assert_too_large(soon(names.unique("a-", too_much.clone())).await);
    let text = String::from_utf8(too_much).unwrap();
    let instance = Instance::new("10.0.0.7:80").with("zone", text);
    assert_too_large(soon(names.announce("web", &instance)).await);
    assert_eq!(names.list().await.unwrap(), [""; 0]);
}

async fn watch_that_begins_without_a_server_goes_on_when_there_is_one(place: Place) {
    let (proxy, client) = place.impatient().await;
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    soon(client.raw().ended()).await;
    let mut watch = Group::new(&client, "/group").watch();
    let (seen, ()) = tokio::join!(next(&mut watch), async {
        until_no_successor(&client).await;
        proxy.refuse(false);
    });
    assert_eq!(seen, Seen::Value([].into()));
}

async fn join_that_may_not_look_leaves_nothing(place: Place) {
    let client = place.client().await;
    let session = client.raw();
    let group = Group::new(&client, "/group");
    // Creates the directory, which stays for a while.
    soon(group.join("").await.unwrap().leave()).await;
    let all_but_read = zk::acl::WRITE | zk::acl::CREATE | zk::acl::DELETE;
    let blind = group.acl([zk::Acl::new(all_but_read, zk::Id::anyone())]);
    let refused = soon(blind.join("")).await;
    assert_fails!(refused, ErrorKind::Refused { .. });
    place.until_children("/group", 0).await;
    assert!(!session.state().is_ended());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn t81_directory_that_was_never_used_is_reaped() {
    let server = Arc::new(TestServer::start().await.unwrap());
    let proxy = FaultProxy::start(server.address()).await.unwrap();
    let client: Client = connect(proxy.connect_string()).await.unwrap();
    let outside = zk::Client::connect(server.connect_string()).await.unwrap();
    let group = Group::new(&client, "/deep/in/group");
    // It is created, and then this client goes silent.
    let join = tokio::spawn(async move { group.join_as("a", "").await });
    soon(async {
        while proxy.count(Op::Multi) < 3 {
            outside.sync("/").await.unwrap();
        }
    })
    .await;
    proxy.refuse(true);
    proxy.expire_session().await.unwrap();
    soon(async {
        // One level is deleted at a time.
        while outside.exists("/deep").await.unwrap().is_some() {
            server.reap_now().unwrap();
        }
    })
    .await;
    join.abort();
}

/// Its owner, in the same session, could not restore the node yet.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_for_an_absent_name_of_the_same_session_sends_few_requests() {
    const NO_AUTH: i32 = -102;
    let place = Place::embedded().await;
    let (proxy, client) = place.proxied(SESSION_TIMEOUT).await;
    let names = Names::new(&client, "/names");
    let owner = names.register("name", "owner").await.unwrap();
    let kept_out = proxy.answer_with(NO_AUTH, |request| request.op == Op::Create2);
    place.outside().delete("/names/name", None).await.unwrap();
    kept_out.happened().await.unwrap();
    proxy.reset_counts();
    let waiter = tokio::spawn(async move { names.register_when_free("name", "waiter").await });
    place.until_children("/names", 1).await;
    let sent = requests(&proxy);
    assert!(sent < 50, "{sent} requests");
    owner.leave().await;
    let waiter = soon(waiter).await.unwrap().unwrap();
    assert_eq!(place.children("/names").await, ["name"]);
    waiter.leave().await;
}
